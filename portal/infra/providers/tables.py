"""Settings that are TOML tables, one for each provider. A wrong value stops the start with an error that says what is wrong and
where."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

KEY = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")
LOCAL = {"localhost", "127.0.0.1", "::1"}
NO_ADDRESS = re.compile(r"[\s;,'\"*]")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a variable: what follows [key]."""

    variable: str
    key: str
    values: dict[str, Any] = field(repr=False)

    def wrong(self, what: str) -> ImproperlyConfigured:
        return wrong(self.variable, what)

    def check(self, texts: Collection[str], lists: Collection[str] = (), flags: Collection[str] = ()) -> None:
        """Requires that the table has only these names, with values of the right type. Raises ImproperlyConfigured."""
        known = {*texts, *lists, *flags}
        for name, value in self.values.items():
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f": did you mean {close[0]}?" if close else f": there are {', '.join(sorted(known))}"
                raise self.wrong(f"has an unknown {name} for {self.key}{hint}")
            if name in texts and not isinstance(value, str):
                raise self.wrong(f"has a {name} for {self.key} that is not text: put it in quotes")
            if name in lists and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
                raise self.wrong(f'has {name} for {self.key} that is not a list of texts: write ["a", "b"]')
            if name in flags and not isinstance(value, bool):
                raise self.wrong(f"has a {name} for {self.key} that is neither true nor false: {value!r}")

    def text(self, name: str, default: str = "") -> str:
        return str(self.values.get(name) or default)

    def needed(self, name: str) -> str:
        if not self.values.get(name):
            raise self.wrong(f"has no {name} for {self.key}: add it to [{self.key}]")
        return str(self.values[name])

    def secret(self, name: str) -> str:
        """The value of NAME, or the content of the file that NAME_file names. Raises ImproperlyConfigured unless exactly one is
        set."""
        file = self.values.get(f"{name}_file")
        if bool(file) == bool(self.values.get(name)):
            raise self.wrong(f"needs {name}_file or {name} for {self.key}, one of the two")
        if not file:
            return str(self.values[name])
        try:
            text = Path(file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise self.wrong(f"names {file} as {name}_file of {self.key}, which cannot be read: {error}") from None
        if not text:
            raise self.wrong(f"names {file} as {name}_file of {self.key}, which is empty")
        return text

    def address(self, name: str, url: str, schemes: tuple[str, str] = ("https", "http"), also: bool = False) -> None:
        """Requires a URL with TLS, because passwords and secrets are sent to it. Without TLS it must be on this machine, or
        `also` be True: StartTLS encrypts the connection. Raises ImproperlyConfigured."""
        secure, plain = schemes
        parts = urlsplit(url)
        if parts.scheme not in schemes or not parts.hostname:
            raise self.wrong(f"has a {name} for {self.key} that is not an address: {url!r}; it begins with {secure}://")
        if parts.scheme == plain and parts.hostname not in LOCAL and not also:
            raise self.wrong(f"has a {name} for {self.key} without TLS: {url!r}; use {secure}://")
        if NO_ADDRESS.search(url):
            raise self.wrong(f"has a {name} for {self.key} with a character that no address has: {url!r}")


def wrong(variable: str, what: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{variable} {what} (docs/sign-in.md)")


def read(variable: str, text: str, make: Callable[[Table], Made]) -> tuple[Made, ...]:
    """The results of `make` for the text's tables, in their order. Raises ImproperlyConfigured."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what = f"is not TOML: {error}. It has a table for each provider, such as [keycloak]"
        raise wrong(variable, what) from None
    made = []
    for key, values in tables.items():
        if not isinstance(values, dict):
            raise wrong(variable, f"has {key} outside of a table: begin with a line such as [keycloak]")
        if not KEY.fullmatch(key):
            raise wrong(variable, f"names a provider {key!r}: use 1 to 30 lowercase letters, digits and hyphens")
        made.append(make(Table(variable, key, values)))
    return tuple(made)

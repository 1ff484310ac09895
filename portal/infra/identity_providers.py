"""The identity providers (OpenID Connect) that people sign in with, as OIDC_PROVIDERS says: TOML, a table for each.

A wrong value stops the start with what is wrong and where. See docs/sign-in.md.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

VARIABLE = "OIDC_PROVIDERS"
KEY = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")
LOCAL = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """`key` is part of addresses and stands in the database: it must not change. `groups_claim` may name a claim inside
    others: realm_access.roles."""

    key: str
    label: str
    server_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    username_claim: str = "preferred_username"
    groups_claim: str = "groups"
    sign_in_origins: tuple[str, ...] = ()  # where its login page is, if not on the server_url's host

    @property
    def origins(self) -> tuple[str, ...]:
        """Where a browser is sent to sign in: the Content-Security-Policy must allow it."""
        parts = urlsplit(self.server_url)
        return (f"{parts.scheme}://{parts.netloc}", *self.sign_in_origins)

    @property
    def discovery(self) -> str:
        known = "/.well-known/" in self.server_url
        return self.server_url if known else f"{self.server_url}/.well-known/openid-configuration"

    def as_app(self) -> dict[str, Any]:
        """As allauth's settings have it."""
        settings = {
            "server_url": self.server_url,
            "scope": list(self.scopes),
            "oauth_pkce_enabled": True,
            "email_authentication": False,
        }
        return {
            "provider_id": self.key, "name": self.label, "client_id": self.client_id, "secret": self.client_secret,
            "settings": settings,
        }  # fmt: skip


TEXTS = {"label", "server_url", "client_id", "client_secret", "client_secret_file", "username_claim", "groups_claim"}
LISTS = {"scopes", "sign_in_origins"}


def read(text: str) -> tuple[IdentityProvider, ...]:
    """The providers of the text, in its order. Raises ImproperlyConfigured."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise wrong(f"is not TOML: {error}. It has a table for each provider, such as [keycloak]") from None
    return tuple(_provider(key, table) for key, table in tables.items())


def wrong(what: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{VARIABLE} {what} (docs/sign-in.md)")


def _provider(key: str, table: Any) -> IdentityProvider:
    if not isinstance(table, dict):
        raise wrong(f"has {key} outside of a table: begin with a line such as [keycloak]")
    if not KEY.fullmatch(key):
        raise wrong(f"names a provider {key!r}: use 1 to 30 lowercase letters, digits and hyphens")
    for name, value in table.items():
        _check(key, name, value)
    secret = _secret(key, table)
    for name in ("server_url", "client_id"):
        if not table.get(name):
            raise wrong(f"has no {name} for {key}: add it to [{key}]")
    _check_url(key, "server_url", table["server_url"])
    origins = tuple(each.rstrip("/") for each in table.get("sign_in_origins", ()))
    for origin in origins:
        _check_url(key, "sign_in_origins", origin)
    scopes = tuple(table.get("scopes", ("openid", "profile", "email")))
    if "openid" not in scopes:
        raise wrong(f"has scopes without openid for {key}: add it, or nobody is told apart")
    return IdentityProvider(
        key=key, label=table.get("label") or key.capitalize(), server_url=table["server_url"].rstrip("/"),
        client_id=table["client_id"], client_secret=secret, scopes=scopes, sign_in_origins=origins,
        username_claim=table.get("username_claim") or "preferred_username",
        groups_claim=table.get("groups_claim", "groups"),
    )  # fmt: skip


def _check(key: str, name: str, value: Any) -> None:
    known = TEXTS | LISTS
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        hint = f": did you mean {close[0]}?" if close else f": there are {', '.join(sorted(known))}"
        raise wrong(f"has an unknown {name} for {key}{hint}")
    if name in TEXTS and not isinstance(value, str):
        raise wrong(f"has a {name} for {key} that is no text: put it in quotes")
    if name in LISTS and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        raise wrong(f'has {name} for {key} that are no list of texts: write ["a", "b"]')


def _secret(key: str, table: dict[str, Any]) -> str:
    file = table.get("client_secret_file")
    if bool(file) == bool(table.get("client_secret")):
        raise wrong(f"needs client_secret_file or client_secret for {key}, one of the two")
    if not file:
        return str(table["client_secret"])
    try:
        secret = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(f"names {file} as client_secret_file of {key}, which cannot be read: {error}") from None
    if not secret:
        raise wrong(f"names {file} as client_secret_file of {key}, which is empty")
    return secret


def _check_url(key: str, name: str, url: str) -> None:
    """Codes and secrets go there: HTTPS, but on this machine."""
    parts = urlsplit(url)
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        raise wrong(f"has a {name} for {key} that is no address: {url!r}; it begins with https://")
    if parts.scheme == "http" and parts.hostname not in LOCAL:
        raise wrong(f"has a {name} for {key} without TLS: {url!r}; use https://")
    if re.search(r"[\s;,'\"*]", url):
        raise wrong(f"has a {name} for {key} with a character that no address has: {url!r}")

"""Typed readers of the environment. A wrong value stops the start with an error that names the variable; nothing is guessed.

`NAME_FILE` may name a file that holds the value of `NAME`: Compose and Kubernetes pass secrets in this way.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def text(name: str, default: str = "") -> str:
    file = os.environ.get(f"{name}_FILE")
    if file:
        try:
            return Path(file).read_text().strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE names {file}, which cannot be read: {error.strerror}") from error
    return os.environ.get(name, default)


def boolean(name: str, default: bool = False) -> bool:
    value = text(name)
    if value not in {"", "true", "false"}:
        raise ImproperlyConfigured(f"{name} must be true or false, not {value!r}")
    return default if value == "" else value == "true"


def integer(name: str, default: int, minimum: int = 0) -> int:
    value = text(name)
    try:
        number = int(value) if value else default
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {value!r}") from None
    if number < minimum:
        raise ImproperlyConfigured(f"{name} must be at least {minimum}, not {number}")
    return number


def words(name: str, default: str = "") -> list[str]:
    """A comma-separated list, blanks dropped."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def networks(name: str, default: str = "") -> list[str]:
    """A comma-separated list of networks such as 10.0.0.0/8; a single address is a network of one."""
    cidrs = words(name, default)
    for word in cidrs:
        try:
            ipaddress.ip_network(word)
        except ValueError as error:
            raise ImproperlyConfigured(f"{name} must be a list of networks: {error}") from None
    return cidrs


def locale() -> str:
    """The terminal's locale, such as zh_CN.UTF-8: the first of LC_ALL, LC_MESSAGES and LANG that is set, or ""."""
    return next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(name))), "")


def with_own(more: dict[str, str]) -> dict[str, str]:
    """The environment for a child process: that of this process, and `more`."""
    return {**os.environ, **more}

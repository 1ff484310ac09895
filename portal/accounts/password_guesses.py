"""Guessed passwords. django-axes counts the failures of one name from one address; this counts what it cannot see:

- many names from one address: after MANY_NAMES failures within WINDOW nobody signs in from there, except
- a browser that has signed in as that person before. It carries a cookie that says so and has failures of its own, so
  nobody locks others out by guessing at their name from the same office.

Without the cache nothing is counted: better to let people in than to be down.
"""

from __future__ import annotations

import ipaddress
import secrets
from typing import Any

import redis
import structlog
from axes.exceptions import AxesBackendPermissionDenied
from django.conf import settings
from django.contrib.auth.signals import user_login_failed
from django.core import signing
from django.core.cache import cache
from django.http import HttpRequest, HttpResponseBase

from portal.accounts.client_address import parsed

WINDOW = 15 * 60  # s
MANY_NAMES = 60  # failures of one address, whatever the names
OF_A_DEVICE = 8  # failures of one browser that is known
DEVICE_LIFE = 365 * 86400  # s
NAMES_OF_A_DEVICE = 5
SALT = "portal.known-device"
log = structlog.get_logger(__name__)


class TooManyFromHere:
    """The first authentication backend: refuses before any password is looked at. Raises AxesBackendPermissionDenied, which
    axes' middleware answers with portal.web.pages.locked_out."""

    def authenticate(self, request: HttpRequest | None, username: str | None = None, **_: Any) -> None:
        if request is None or knows(request, {"username": username}):
            return
        if counted(_of_address(request)) >= MANY_NAMES:
            request.axes_locked_out = True  # type: ignore[attr-defined]
            raise AxesBackendPermissionDenied("too many failures from this address")


def knows(request: HttpRequest, credentials: dict[str, Any] | None = None) -> bool:
    """AXES_WHITELIST_CALLABLE: whether this browser has signed in under the name before and has not failed too often
    since."""
    device, names = device_of(request)
    name = str((credentials or {}).get("username") or "").casefold()
    return bool(name) and name in names and counted(f"guesses:device:{device}") < OF_A_DEVICE


def device_of(request: HttpRequest) -> tuple[str, list[str]]:
    """(random id of the browser, user names that have signed in with it); ("", []) for an unknown browser."""
    try:
        device, names = signing.loads(request.COOKIES.get(cookie_name(), ""), salt=SALT, max_age=DEVICE_LIFE)
    except (signing.BadSignature, ValueError, TypeError):
        return "", []
    return device, names


def remember(request: HttpRequest, response: HttpResponseBase, username: str) -> None:
    """Marks the browser as known after a successful sign-in."""
    device, names = device_of(request)
    name = username.casefold()
    names = [name, *(other for other in names if other != name)][:NAMES_OF_A_DEVICE]
    value = signing.dumps([device or secrets.token_urlsafe(12), names], salt=SALT)
    response.set_cookie(
        cookie_name(), value, max_age=DEVICE_LIFE, secure=settings.SECURE_BROWSER, httponly=True, samesite="Lax"
    )


def cookie_name() -> str:
    return "__Host-device" if settings.SECURE_BROWSER else "device"


def count(sender: Any, credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    if request is None:
        return
    device, names = device_of(request)
    known = str(credentials.get("username") or "").casefold() in names
    add(f"guesses:device:{device}" if known else _of_address(request))


user_login_failed.connect(count)


def _of_address(request: HttpRequest) -> str:
    """The counter's key: an IPv4 address, or the /64 network that one IPv6 client has to itself."""
    text = str(request.META.get("REMOTE_ADDR", ""))
    address = parsed(text)
    if isinstance(address, ipaddress.IPv6Address):
        text = str(ipaddress.ip_network(f"{address}/64", strict=False))
    return f"guesses:address:{text}"


def counted(key: str) -> int:
    try:
        return int(cache.get(key, 0))
    except redis.RedisError as error:
        log.warning("guesses.cache_away", error=str(error))
        return 0


def add(key: str) -> None:
    try:
        cache.add(key, 0, timeout=WINDOW)
        cache.incr(key)
    except (redis.RedisError, ValueError) as error:  # ValueError: it expired between the two
        log.warning("guesses.cache_away", error=str(error))

"""The throttle on guessed passwords. allauth counts failures in the cache (settings.ACCOUNT_RATE_LIMITS), by these keys:

- one address, for all names; one name from one address; one name from all addresses;
- a browser that has signed in with that name before. A cookie marks it, and its failures are counted separately, so nobody
  can lock others out by guessing at their name.

Without the cache nothing is counted: logins go on rather than fail.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress

import redis
import structlog
from allauth.core.internal import ratelimit
from django.conf import settings
from django.core import signing
from django.core.cache import cache
from django.http import HttpRequest, HttpResponseBase

APP = "allauth.account"
FAILED, FAILED_KNOWN, FAILED_NAME = "login_failed", "login_failed_known", "login_failed_name"
DEVICE_LIFE = 365 * 86400  # s
NAMES_OF_A_DEVICE = 5
SALT = "portal.known-device"
log = structlog.get_logger(__name__)


class Guess:
    """One attempt. It is counted before the password is checked, so that many concurrent attempts all count."""

    def __init__(self, request: HttpRequest, name: str) -> None:
        self.request, self.name = request, name.casefold()
        self.counted: list[ratelimit.RateLimitUsage] = []

    def keys(self) -> list[list[tuple[str, str]]]:
        """Lists of (action, key): the attempt counts under the first list whose limits all allow it."""
        address = ratelimit.get_ip(self.request)
        unknown = [(FAILED, f"{self.name}|{address}"), (FAILED_NAME, self.name)]
        device, names = device_of(self.request)
        return [[(FAILED_KNOWN, device)], unknown] if self.name in names else [unknown]

    def allowed(self) -> bool:
        """Counts the attempt; False if there were too many, and then the password must not be checked."""
        try:
            return any(self._count(keys) for keys in self.keys())
        except redis.RedisError as error:
            log.warning("guesses.cache_away", error=str(error))
            return True

    def _count(self, keys: list[tuple[str, str]]) -> bool:
        counted = [ratelimit.consume(self.request, app=APP, action=action, key=key) for action, key in keys]
        self.counted = [each for each in counted if each is not None]
        return len(self.counted) == len(keys)

    def succeeded(self) -> None:
        """Uncounts this attempt. Earlier failures stay: a successful login in between does not allow more guesses."""
        with suppress(redis.RedisError):
            for each in self.counted:
                each.rollback()

    def wait(self) -> int:
        """Seconds until another attempt is allowed."""
        try:
            return min(self._wait(keys) for keys in self.keys())
        except redis.RedisError:
            return 0

    def _wait(self, keys: list[tuple[str, str]]) -> int:
        now, longest = time.time(), 0.0
        for action, key in keys:
            for rate in ratelimit.get_rates(app=APP, action=action):
                where = ratelimit.get_cache_key(self.request, app=APP, action=action, rate=rate, key=key)
                tries: list[float] = cache.get(where, [])  # the newest first
                if len(tries) >= rate.amount:
                    longest = max(longest, tries[rate.amount - 1] + rate.duration - now)
        return round(longest)


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

"""One Redis client a process: its pool serves every thread, and begins anew after a fork."""

from __future__ import annotations

import threading
from contextlib import suppress

import redis
from django.conf import settings

_clients: dict[str, redis.Redis] = {}
_guard = threading.Lock()


def shared() -> redis.Redis:
    """Where settings.REDIS_URL leads. Kept for good: a client that nobody has any more closes the connections of its pool,
    also one that a thread is just using."""
    with _guard:
        if settings.REDIS_URL not in _clients:
            made = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
            _clients[settings.REDIS_URL] = made
        return _clients[settings.REDIS_URL]


def set_flag(what: str, seconds: int) -> None:
    """Every process knows it for so long, where there is a Redis."""
    if settings.REDIS_URL:
        with suppress(redis.RedisError):
            shared().set(what, 1, ex=seconds)


def has_flag(what: str) -> bool:
    """Whether anybody has said it lately, as far as can be seen."""
    try:
        return bool(settings.REDIS_URL and shared().exists(what))
    except redis.RedisError:
        return False

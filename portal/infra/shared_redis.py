"""One Redis client for each process: its pool serves all threads and is recreated after a fork."""

from __future__ import annotations

import threading
from contextlib import suppress

import redis
from django.conf import settings

_clients: dict[str, redis.Redis] = {}
_guard = threading.Lock()


def shared() -> redis.Redis:
    """The client for settings.REDIS_URL. Never dropped: a client that is garbage-collected closes the connections of
    its pool, even those that other threads are using."""
    with _guard:
        if settings.REDIS_URL not in _clients:
            made = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
            _clients[settings.REDIS_URL] = made
        return _clients[settings.REDIS_URL]


def set_flag(name: str, seconds: int) -> None:
    """Sets a flag that all processes see for so many seconds; does nothing without Redis."""
    if settings.REDIS_URL:
        with suppress(redis.RedisError):
            shared().set(name, 1, ex=seconds)


def has_flag(name: str) -> bool:
    """Whether some process has set the flag; False without Redis or if it does not answer."""
    try:
        return bool(settings.REDIS_URL and shared().exists(name))
    except redis.RedisError:
        return False

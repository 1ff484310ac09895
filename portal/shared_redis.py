"""One Redis client a process: its pool serves every thread, and begins anew after a fork."""

from __future__ import annotations

import threading

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

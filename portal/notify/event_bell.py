"""The bell: "there is something new in the event table". It carries no data, so a lost ring costs only a moment.

In the demo it sets asyncio events of this process. With Redis it is pub/sub with one subscriber per process, which sets them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading

import redis
import structlog
from django.conf import settings

from portal.infra.shared_redis import shared

CHANNEL = "portal:events"
_listeners: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
_guard = threading.Lock()
closing = threading.Event()  # the process is about to end: streams end themselves
log = structlog.get_logger(__name__)


def ring() -> None:
    """Wakes all streams, of this and other processes. Never raises: streams also query the database every few seconds."""
    if not settings.REDIS_URL:
        wake_local()
        return
    try:
        shared().publish(CHANNEL, b"1")
    except redis.RedisError as error:
        log.warning("bus.ring_lost", error=str(error))


def wake_local() -> None:
    with _guard:
        listeners = list(_listeners.items())
    for event, loop in listeners:
        with contextlib.suppress(RuntimeError):  # its loop has ended
            loop.call_soon_threadsafe(event.set)


def listen() -> asyncio.Event:
    """An asyncio event that is set at every ring; return it with `leave`."""
    event = asyncio.Event()
    with _guard:
        _listeners[event] = asyncio.get_running_loop()
    return event


def leave(event: asyncio.Event) -> None:
    with _guard:
        _listeners.pop(event, None)


def close() -> None:
    """Ends all held requests of this process, so that it can stop at once."""
    closing.set()
    wake_local()

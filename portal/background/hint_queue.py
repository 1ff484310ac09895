"""The queue of hints on which the watcher acts within milliseconds: a Redis list that is taken as a whole, without duplicates.

A Celery message costs both sides a millisecond of CPU and is handled alone: each submission of a burst would start a planning
pass. Without Redis, or if no process has taken from the queue lately, hints go through Celery.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import orjson
from django.conf import settings

from portal.infra.shared_redis import has_flag, shared
from portal.infra.telemetry.switch import trace_of

HINTS, TAKEN = "portal:hints", "portal:hints-taken"
KEPT = 60  # s; older hints are useless, because the beat has run since
ALIVE = 10  # s; takers renew their flag at least this often, even with a pass over the largest pool in between
AT_ONCE = 10_000

Hint = tuple[str, dict[str, int | str]]
_kept: ContextVar[list[Hint] | None] = ContextVar("kept", default=None)


@contextmanager
def collected() -> Iterator[list[Hint]]:
    """Collects this thread's hints in a list instead of sending them: the caller acts on them itself."""
    hints: list[Hint] = []
    token = _kept.set(hints)
    try:
        yield hints
    finally:
        _kept.reset(token)


def put(name: str, ids: dict[str, int | str]) -> bool:
    """Queues a hint; returns whether a process will act on it soon. Raises redis.RedisError."""
    if (hints := _kept.get()) is not None:
        hints.append((name, ids))
        return True
    if not settings.REDIS_URL:
        return False
    with shared().pipeline(transaction=False) as pipe:
        pipe.rpush(HINTS, orjson.dumps([name, ids | trace_of()], option=orjson.OPT_SORT_KEYS))
        pipe.expire(HINTS, KEPT)
        pipe.exists(TAKEN)
        return bool(pipe.execute()[-1])


def alive() -> bool:
    """Whether a process has taken hints in the last ALIVE seconds."""
    return has_flag(TAKEN)


def take(seconds: float, *, well: bool = True) -> list[Hint]:
    """All hints, oldest first and each once; waits up to `seconds` for the first one. Raises redis.RedisError.

    `well` False: the caller failed to act on its last hints, and does not announce itself as alive.
    """
    client = shared()
    if well:
        client.set(TAKEN, 1, ex=ALIVE)
    first = cast("tuple[bytes, bytes] | None", client.blpop([HINTS], timeout=seconds))
    if first is None:
        return []
    more = cast("list[bytes] | None", client.lpop(HINTS, AT_ONCE)) or []
    hints: list[Any] = [orjson.loads(text) for text in dict.fromkeys([first[1], *more])]
    return [(name, ids) for name, ids in hints]


def waiting() -> int:
    """How many hints are waiting to be taken, duplicates included. Raises redis.RedisError."""
    return shared().llen(HINTS)

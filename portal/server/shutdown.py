"""Ending held requests when the process stops: first they are asked to end (portal.notify.event_bell), then cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from functools import partial

from portal.notify import event_bell

PATIENCE = 1.0  # seconds for requests to end by themselves
_guard = threading.Lock()
_held: dict[asyncio.Task[object], asyncio.AbstractEventLoop] = {}


@contextlib.contextmanager
def held() -> Iterator[None]:
    """While inside, the current task is cancelled when the process ends."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 only called inside the event loop
    with _guard:
        _held[task] = asyncio.get_running_loop()
    try:
        yield
    finally:
        with _guard:
            _held.pop(task, None)


def count() -> int:
    return len(_held)


def close() -> None:
    """Asks held requests to end, then cancels them. From any thread or signal handler; returns at once."""
    event_bell.close()
    for loop in set(_held.values()):
        with contextlib.suppress(RuntimeError):  # that loop has ended
            loop.call_soon_threadsafe(partial(loop.call_later, PATIENCE, _cancel, loop))


def _cancel(loop: asyncio.AbstractEventLoop) -> None:
    for task, its in list(_held.items()):
        if its is loop:
            task.cancel()

"""Requests that are held open (event streams, `?wait`, `follow=1`, notebooks): how they ask, and how they end.

A view that holds its reader is an ordinary synchronous view; it answers with a StreamingHttpResponse over an async
generator. The view's part runs in a page thread, the generator on the event loop (portal/hybrid.py), where it
- asks the database only by `await query(…)`,
- looks at `is_closing()` after every wake-up of the bus and then says its last word: the process has been told to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.db import connections

from portal import bus

P = ParamSpec("P")
T = TypeVar("T")
PATIENCE = 1.0  # seconds for last words before what is still held is cancelled

_closing = threading.Event()
_guard = threading.Lock()
_held: dict[asyncio.Task[None], asyncio.AbstractEventLoop] = {}
_readers = ThreadPoolExecutor(2, thread_name_prefix="held-query")


def is_closing() -> bool:
    return _closing.is_set()


async def query(ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs `ask` in one of a few threads, and gives its connection back: hundreds of readers do not hold hundreds."""

    def work() -> T:
        try:
            return ask(*args, **kwargs)
        finally:
            connections.close_all()

    return await asyncio.get_running_loop().run_in_executor(_readers, work)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """The current task is cancelled when the process ends and it has not ended by itself."""
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
    """Told once, from any thread or a signal handler; returns at once."""
    if _closing.is_set():
        return
    _closing.set()
    bus.wake_local()
    with _guard:
        loops = set(_held.values())
    for loop in loops:
        with contextlib.suppress(RuntimeError):  # that loop has ended
            loop.call_soon_threadsafe(partial(loop.call_later, PATIENCE, _cancel, loop))


def _cancel(loop: asyncio.AbstractEventLoop) -> None:
    with _guard:
        tasks = [task for task, its in _held.items() if its is loop]
    for task in tasks:
        task.cancel()


def reopen() -> None:
    """For tests, which start and stop several servers in one process."""
    _closing.clear()

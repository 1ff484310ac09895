"""A work queue like client-go's: keys that need processing, each of them once.
An added key becomes *dirty*. Once taken it is *processing* until `done`; if it is added again meanwhile, it stays dirty and is
handed out once more after that. So no key is ever processed by two threads at once, however often it is added, and no change
is missed. `retry` puts a key back after a pause that doubles with each failure.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=object)

FIRST_RETRY, LONGEST_RETRY = 0.5, 30.0  # s


class WorkQueue(Generic[Key]):
    """Thread-safe. Keys are handed out in the order in which they became due."""

    def __init__(self) -> None:
        self._dirty: dict[Key, None] = {}  # to be processed; a dict keeps their order
        self._processing: set[Key] = set()
        self._later: list[tuple[float, int, Key]] = []  # (monotonic time, a number that makes it unique, key): a heap
        self._due: dict[Key, float] = {}  # of what is in the heap, the earliest time
        self._failures: Counter[Key] = Counter()
        self._changed = threading.Condition()
        self._number, self._closed = 0, False

    def add(self, key: Key, after: float = 0.0) -> None:
        """Add a key that is due in `after` seconds, unless it is due sooner anyway."""
        with self._changed:
            if after > 0 and key not in self._dirty:
                self._put_later(key, time.monotonic() + after)
            else:
                self._due.pop(key, None)
                self._dirty[key] = None
            self._changed.notify()

    def add_all(self, keys: Iterable[Key]) -> None:
        with self._changed:
            for key in keys:
                self._due.pop(key, None)
                self._dirty[key] = None
            self._changed.notify_all()

    def take(self, most: int = 1) -> list[Key]:
        """Wait for the first key, then return up to `most` keys, which belong to the caller until `done` or `retry`. Empty once
        the queue is closed."""
        with self._changed:
            while not self._closed:
                wait = self._ripen()
                ready = list(islice((key for key in self._dirty if key not in self._processing), most))
                if ready:
                    for key in ready:
                        del self._dirty[key]
                    self._processing.update(ready)
                    return ready
                self._changed.wait(wait)
            return []

    def done(self, key: Key) -> None:
        """Give back a processed key; it is due again if it was added in the meantime."""
        with self._changed:
            self._processing.discard(key)
            self._failures.pop(key, None)
            if key in self._dirty:
                self._changed.notify()

    def retry(self, key: Key) -> None:
        """Give back a key whose processing failed: it is due after a pause that doubles with each failure in a row."""
        with self._changed:
            self._processing.discard(key)
            self._failures[key] += 1
            pause = min(FIRST_RETRY * 2 ** (self._failures[key] - 1), LONGEST_RETRY)
            if key not in self._dirty:
                self._put_later(key, time.monotonic() + pause)
            self._changed.notify()

    def close(self) -> None:
        """Hand out no further keys."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        """How many keys wait, including those that are due later."""
        with self._changed:
            return len(self._dirty) + len(self._due)

    def _put_later(self, key: Key, at: float) -> None:
        if at < self._due.get(key, float("inf")):
            self._due[key] = at
            self._number += 1
            heapq.heappush(self._later, (at, self._number, key))

    def _ripen(self) -> float | None:
        """Make due keys available; returns seconds until the next one, None if none waits."""
        now = time.monotonic()
        while self._later:
            at, _, key = self._later[0]
            if self._due.get(key) != at:  # superseded
                heapq.heappop(self._later)
            elif at > now:
                return at - now
            else:
                heapq.heappop(self._later)
                del self._due[key]
                self._dirty[key] = None
        return None

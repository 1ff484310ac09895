"""Python's search for garbage, in processes that hold many objects for long."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ALLOCATIONS, YOUNG, OLD = 10_000, 5, 5  # before a look at the newest objects (Python: 700, 10, 10), at younger, at all


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Thousands of objects are made and all are kept: to look for garbage among them again and again is in vain. Half a
    second instead of one and a half for the pages of 5,000 pods."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def look_seldom() -> None:
    """What has been loaded until now stays; what comes is looked at in larger heaps. For processes that run for long.

    Not too seldom: rows and what they refer to refer to each other, so every listing of many runs leaves some to be found."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(ALLOCATIONS, YOUNG, OLD)

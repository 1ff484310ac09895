"""Errors of volume_program as those of the contract (files.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from workloads.runtime import volume_program
from workloads.runtime.files import FileFailure


@contextlib.contextmanager
def failures() -> Iterator[None]:
    """Wraps calls of volume_program: raises FileFailure for its Failed."""
    try:
        yield
    except volume_program.Failed as failed:
        raise FileFailure(**vars(failed)) from None

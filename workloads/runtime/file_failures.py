"""What volume_program could not do, in the words of the contract (files.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from workloads.runtime import volume_program
from workloads.runtime.files import FileFailure


@contextlib.contextmanager
def failures() -> Iterator[None]:
    """Around calls of volume_program. Raises FileFailure for its Failed."""
    try:
        yield
    except volume_program.Failed as failed:
        raise FileFailure(**vars(failed)) from None

"""One kind of lock: the row of a pool group. Whoever makes capacity less available takes it first, then reads.

Holding a LockedGroup is the proof: functions that may oversell ask for one. Freeing capacity needs no lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, close_old_connections, connection, transaction

from portal.errors import Busy


@contextmanager
def durable() -> Iterator[None]:
    """The outermost transaction of a write. A lock that cannot be taken in time raises Busy (503, or a retry of the
    task)."""
    try:
        with transaction.atomic(durable=True):
            yield
    except OperationalError as error:
        if is_lock_timeout(error):
            raise Busy from error
        raise


def is_lock_timeout(error: OperationalError) -> bool:
    if connection.vendor == "postgresql":
        return getattr(error.__cause__, "sqlstate", "") in {"55P03", "40P01"}  # lock not available, deadlock
    return "locked" in str(error)


def lend_connection() -> None:
    """Returns the thread's connection to the pool before a slow call; never inside an open transaction."""
    if not connection.in_atomic_block:
        close_old_connections()

"""The transaction of a write. What it locks, and in which order, docs/concurrency.md says: lock first, then read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import OperationalError, close_old_connections, connection, transaction

from portal.errors import Busy

_joined: ContextVar[bool] = ContextVar("joined", default=False)


@contextmanager
def durable() -> Iterator[None]:
    """The outermost transaction of a write; inside `together` a savepoint of that. A lock that cannot be taken in time
    raises Busy (503, or a retry of the task)."""
    try:
        with transaction.atomic(durable=not _joined.get()):
            yield
    except OperationalError as error:
        if is_lock_timeout(error):
            raise Busy from error
        raise


@contextmanager
def together() -> Iterator[None]:
    """One transaction of several writes that each are one by themselves: all of them, or none.

    The caller takes the locks of all of them first. Not for writes that talk to others between two transactions.
    """
    with durable():
        token = _joined.set(True)
        try:
            yield
        finally:
            _joined.reset(token)


def keep_alive() -> None:
    """Between two long computations in one transaction: PostgreSQL ends one that asks nothing for a minute, as of a process
    that is gone (idle_in_transaction_session_timeout)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def is_lock_timeout(error: OperationalError) -> bool:
    if connection.vendor == "postgresql":
        return getattr(error.__cause__, "sqlstate", "") in {"55P03", "40P01"}  # lock not available, deadlock
    return "locked" in str(error)


def lend_connection() -> None:
    """Returns the thread's connection to the pool before a slow call; never inside an open transaction."""
    if not connection.in_atomic_block:
        close_old_connections()

"""Transactions of writes: lock first, then read. What they lock, and in which order: docs/concurrency.md."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import OperationalError, close_old_connections, connection, transaction

from portal.errors import Busy

_joined: ContextVar[bool] = ContextVar("joined", default=False)


@contextmanager
def durable() -> Iterator[None]:
    """The outermost transaction of a write; inside `together` a savepoint. Raises Busy (503, or a retry of the task) if a lock
    cannot be taken in time."""
    try:
        with transaction.atomic(durable=not _joined.get()):
            yield
    except OperationalError as error:
        if is_lock_timeout(error):
            raise Busy from error
        raise


@contextmanager
def together() -> Iterator[None]:
    """One transaction for several writes that are otherwise a transaction each: all of them, or none.

    The caller takes the locks of all of them first. Not for writes that call other systems between two transactions.
    """
    with durable():
        token = _joined.set(True)
        try:
            yield
        finally:
            _joined.reset(token)


def keep_alive() -> None:
    """Keeps a transaction open between two long computations: PostgreSQL ends a session that has sent no query for a minute
    (idle_in_transaction_session_timeout)."""
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

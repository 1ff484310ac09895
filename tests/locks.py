"""Locks in tests."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def short_waits() -> Iterator[None]:
    """This connection waits 0.2 s for a lock. Reset at the end, since its next user gets it from the pool and expects 10 s."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '200ms'")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")

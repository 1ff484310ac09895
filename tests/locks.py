"""Database locks in tests."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def short_waits() -> Iterator[None]:
    """Limits lock waits of this connection to 0.2 s. Reset at the end, since the pool gives the connection to others, which
    expect 10 s."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '200ms'")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")

"""Empties the database after a test with real commits, by deleting the few rows that exist.

Django itself truncates every table and recreates all content types and permissions, which takes ten times as long as most of
these tests.
"""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction
from django.test import TransactionTestCase

KEPT = {"django_content_type", "auth_permission", "django_migrations"}  # filled by migrations, always the same
_teardown = TransactionTestCase._fixture_teardown


def empty() -> None:
    """Deletes all rows. Waits for running writers, as TRUNCATE does: their rows would otherwise appear in the next test."""
    tables = [connection.ops.quote_name(name) for name in connection.introspection.table_names() if name not in KEPT]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
        cursor.execute(" UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT FROM {name})" for name in tables))
        filled = [name for (name,) in cursor.fetchall()]
        cursor.execute("SET LOCAL session_replication_role = replica")  # no checks of foreign keys, so in any order
        for name in filled:
            cursor.execute(f"DELETE FROM {name}")


def teardown(case: Any) -> None:
    if connection.vendor == "postgresql":
        empty()
    else:
        _teardown(case)

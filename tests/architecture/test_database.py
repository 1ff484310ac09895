"""Rows that a test commits are deleted before the next one begins, and rows written by migrations remain."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from tests.architecture.doors import build
from tests.database import KEPT, empty


@pytest.mark.django_db
def test_only_rows_written_by_migrations_remain() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite's tables are emptied by Django")
    before = Permission.objects.count(), ContentType.objects.count()
    build()
    empty()
    with connection.cursor() as cursor:
        for name in set(connection.introspection.table_names()) - KEPT:
            cursor.execute(f"SELECT count(*) FROM {connection.ops.quote_name(name)}")
            assert cursor.fetchone() == (0,), name
    assert (Permission.objects.count(), ContentType.objects.count()) == before > (0, 0)

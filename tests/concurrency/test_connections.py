"""Pooled connections that PostgreSQL has closed while they were idle."""

from __future__ import annotations

import threading

import pytest
from django.db import OperationalError, connection
from django.test import Client

from portal.models import User
from tests.concurrency.test_planning import in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency]
CONNECTIONS = 3


def use_in_parallel() -> list[int]:
    """The server processes of as many connections as there are threads at once; afterwards the connections are idle in the
    pool."""
    backends, all_there = list[int](), threading.Barrier(CONNECTIONS)

    def use() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            backends.append(cursor.fetchone()[0])
        all_there.wait(10)

    for thread in [in_thread(use) for _ in range(CONNECTIONS)]:
        thread.join()
    return backends


def end(backends: list[int]) -> None:
    """Ends all of them except the process of this connection."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM unnest(%s) AS pid WHERE pid <> pg_backend_pid()", [backends]
        )


def query_in_turn() -> None:
    for _ in range(CONNECTIONS):
        User.objects.exists()
        connection.close()


def test_request_after_closed_connections_succeeds(client: Client) -> None:
    before = use_in_parallel()
    end(before)
    assert client.get("/login/").status_code == 200
    assert len(set(before) & set(use_in_parallel())) <= 1  # the one that ended the others


def test_request_fails_without_the_health_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]
    monkeypatch.setitem(connection.settings_dict, "CONN_HEALTH_CHECKS", False)
    try:
        end(use_in_parallel())
        connection.close()
        with pytest.raises(OperationalError):
            query_in_turn()
    finally:
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]

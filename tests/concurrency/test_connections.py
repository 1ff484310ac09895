"""Connections of the pool that PostgreSQL has ended while nobody used them."""

from __future__ import annotations

import threading

import pytest
from django.db import OperationalError, connection
from django.test import Client

from portal.models import User
from tests.concurrency.test_planning import in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.concurrency]
CONNECTIONS = 3


def together() -> list[int]:
    """As many processes of the server as there are threads at once; afterwards their connections rest in the pool."""
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
    """All but the one that says so."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM unnest(%s) AS pid WHERE pid <> pg_backend_pid()", [backends]
        )


def ask_in_turn() -> None:
    for _ in range(CONNECTIONS):
        User.objects.exists()
        connection.close()


def test_whoever_comes_next_does_not_notice(client: Client) -> None:
    before = together()
    end(before)
    assert client.get("/login/").status_code == 200
    assert len(set(before) & set(together())) <= 1  # the one that ended the others


def test_without_the_check_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]
    monkeypatch.setitem(connection.settings_dict, "CONN_HEALTH_CHECKS", False)
    try:
        end(together())
        connection.close()
        with pytest.raises(OperationalError):
            ask_in_turn()
    finally:
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]

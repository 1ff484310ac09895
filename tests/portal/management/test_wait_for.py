"""`manage.py wait_for`, which runs before the processes of an installation start."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection

from portal.management.commands import wait_for
from portal.server.health import CHECKS, NotMigrated
from tests.concurrency.test_planning import in_thread


@pytest.mark.django_db
@pytest.mark.parametrize("requirement", ["database", "migrations"])
def test_command_ends_at_once_when_nothing_is_missing(requirement: str) -> None:
    output = io.StringIO()
    call_command("wait_for", requirement, stderr=output)
    assert output.getvalue() == ""


def test_command_prints_each_reason_once_and_ends_when_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = NotMigrated("3 migrations are not applied")
    reasons = [OperationalError("connection refused\n\tIs it running?")] * 3 + [missing] * 2 + [None]

    def check() -> None:
        if error := reasons.pop(0):
            raise error

    monkeypatch.setitem(CHECKS, "migrations", check)
    monkeypatch.setattr(wait_for, "EVERY", 0)
    output = io.StringIO()
    call_command("wait_for", "migrations", stderr=output)
    assert output.getvalue().splitlines() == ["connection refused Is it running?", "3 migrations are not applied"]


@pytest.mark.concurrency
@pytest.mark.django_db(transaction=True)
def test_command_reconnects_when_the_database_has_dropped_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons, backends = list[str](), list[int]()

    def check() -> None:
        """Fails after 20 attempts, as a command that keeps the broken connection would never end."""
        assert len(reasons) < 20
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                backends.append(cursor.fetchone()[0])
        except OperationalError as error:
            reasons.append(str(error))
            raise
        if len(backends) == 1:
            raise NotMigrated("1 migration is not applied")

    def drop() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [backends[0]])

    def sleep(seconds: float) -> None:
        if not reasons and len(backends) == 1:
            in_thread(drop).join()

    monkeypatch.setitem(CHECKS, "migrations", check)
    monkeypatch.setattr(wait_for.time, "sleep", sleep)
    call_command("wait_for", "migrations", stderr=io.StringIO())
    assert len(set(backends)) == 2

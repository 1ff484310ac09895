"""`manage.py wait_for`, before the processes of an installation begin."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection

from portal.management.commands import wait_for
from portal.server.health import CHECKS, NotMigrated
from tests.concurrency.test_planning import in_thread


@pytest.mark.django_db
@pytest.mark.parametrize("what", ["database", "migrations"])
def test_it_ends_at_once_where_all_is_there(what: str) -> None:
    said = io.StringIO()
    call_command("wait_for", what, stderr=said)
    assert said.getvalue() == ""


def test_it_says_each_reason_once_and_ends_when_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = NotMigrated("3 migrations are not applied")
    reasons = [OperationalError("connection refused\n\tIs it running?")] * 3 + [missing] * 2 + [None]

    def check() -> None:
        if error := reasons.pop(0):
            raise error

    monkeypatch.setitem(CHECKS, "migrations", check)
    monkeypatch.setattr(wait_for, "EVERY", 0)
    said = io.StringIO()
    call_command("wait_for", "migrations", stderr=said)
    assert said.getvalue().splitlines() == ["connection refused Is it running?", "3 migrations are not applied"]


@pytest.mark.concurrency
@pytest.mark.django_db(transaction=True)
def test_it_does_not_keep_a_connection_that_the_database_has_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons, backends = list[str](), list[int]()

    def check() -> None:
        """Never ends by itself while the connection stays a broken one."""
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

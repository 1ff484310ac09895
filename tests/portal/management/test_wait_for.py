"""`manage.py wait_for`, before the processes of an installation begin."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command
from django.db import OperationalError

from portal.management.commands import wait_for
from portal.server.health import CHECKS, NotMigrated


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

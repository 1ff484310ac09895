"""The probes, and what they need not: a host that is allowed, a session, a user."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.db.utils import OperationalError
from django.test import Client
from django.utils import timezone

from portal.models import Heartbeat, JobRun
from portal.server import health


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_migrated", False)


def test_live_asks_nothing_of_the_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(connection, "cursor", away)
    assert client.get("/livez", headers={"host": "10.1.2.3:8000"}).content == b"ok\n"


@pytest.mark.django_db
def test_ready_when_database_and_migrations_are_there(client: Client) -> None:
    answer = client.get("/readyz", headers={"host": "10.1.2.3:8000"})
    told = {"status": "degraded", "failed": [], "watcher_seconds": None, "planned_seconds": None}
    assert (answer.status_code, answer.json()) == (200, told)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("seconds", "error", "status"), [(10, "", "ok"), (500, "", "degraded"), (10, "KeyError: 'n1'", "degraded")]
)
def test_ready_says_when_nothing_plans(client: Client, seconds: int, error: str, status: str) -> None:
    ended = timezone.now() - dt.timedelta(seconds=seconds)
    JobRun.objects.create(job="quotas.plan_all", slot=1, started_at=ended, finished_at=ended, error=error)
    JobRun.objects.create(job="quotas.plan_all", slot=2)  # under way, or killed
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["status"] == status
    assert answer.json()["planned_seconds"] in ([None] if error else range(seconds, seconds + 30))


@pytest.mark.django_db
def test_ready_tells_since_when_no_watcher_gave_a_sign_of_life(client: Client) -> None:
    Heartbeat.objects.create(name="watch:here", at=timezone.now() - dt.timedelta(seconds=90))
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert 90 <= answer.json()["watcher_seconds"] < 120
    assert "here" not in answer.content.decode()


@pytest.mark.django_db
def test_not_ready_without_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise OperationalError("password authentication failed for user portal")

    monkeypatch.setattr(connection, "cursor", away)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "database" in answer.json()["failed"]
    assert b"password" not in answer.content


@pytest.mark.django_db
def test_not_ready_while_a_migration_is_missing(client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'workloads'")
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["failed"]) == (503, ["migrations"])


@pytest.mark.django_db
def test_not_ready_while_redis_is_away(client: Client, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["failed"]) == (503, ["redis"])

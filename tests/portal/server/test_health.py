"""The probes, which need no allowed host, session or user."""

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


def test_liveness_does_not_need_the_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any) -> None:
        raise OperationalError("unreachable")

    monkeypatch.setattr(connection, "cursor", unreachable)
    assert client.get("/livez", headers={"host": "10.1.2.3:8000"}).content == b"ok\n"


@pytest.mark.django_db
def test_ready_when_the_database_is_reachable_and_migrated(client: Client) -> None:
    answer = client.get("/readyz", headers={"host": "10.1.2.3:8000"})
    expected = {"status": "degraded", "failed": [], "watcher_seconds": None, "planned_seconds": None}
    assert (answer.status_code, answer.json()) == (200, expected)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("seconds", "error", "status"), [(10, "", "ok"), (500, "", "degraded"), (10, "KeyError: 'n1'", "degraded")]
)
def test_readiness_is_degraded_when_planning_is_overdue_or_fails(
    client: Client, seconds: int, error: str, status: str
) -> None:
    ended = timezone.now() - dt.timedelta(seconds=seconds)
    JobRun.objects.create(job="quotas.plan_all", slot=1, started_at=ended, finished_at=ended, error=error)
    JobRun.objects.create(job="quotas.plan_all", slot=2)  # under way, or killed
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["status"] == status
    assert answer.json()["planned_seconds"] in ([None] if error else range(seconds, seconds + 30))


@pytest.mark.django_db
def test_readiness_reports_the_seconds_since_the_last_heartbeat_of_a_watcher(client: Client) -> None:
    Heartbeat.objects.create(name="watch:here", at=timezone.now() - dt.timedelta(seconds=90))
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert 90 <= answer.json()["watcher_seconds"] < 120
    assert "here" not in answer.content.decode()


@pytest.mark.django_db
def test_not_ready_without_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any) -> None:
        raise OperationalError("password authentication failed for user portal")

    monkeypatch.setattr(connection, "cursor", unreachable)
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
def test_migrations_are_not_looked_up_again_once_all_are_applied(client: Client) -> None:
    assert client.get("/readyz").status_code == 200
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'workloads'")
    assert client.get("/readyz").status_code == 200


@pytest.mark.django_db
def test_other_addresses_than_those_of_probes_require_an_allowed_host(client: Client) -> None:
    for path in ("/livez/", "/livez/x", "/login/"):
        assert client.get(path, headers={"host": "10.1.2.3:8000"}).status_code == 400, path


@pytest.mark.django_db
def test_not_ready_while_redis_is_unreachable(client: Client, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["failed"]) == (503, ["redis"])

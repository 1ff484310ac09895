"""A real Prometheus scrapes a real portal in use, and gets every query of the dashboards and of the alerts."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from django.conf import settings
from django.utils import timezone

from portal.access import SYSTEM
from portal.models import AuditEntry, Department, Heartbeat, InboxItem, JobRun
from portal.server import answers
from quotas.models import Card, ClaimState, Node, OutsidePod, PlanPass, PoolGroup, WorkHour
from scripts import dashboards
from tests import builders as make
from tests.clients import token_of
from tests.clusters.realcluster import CHART, cannot
from tests.portal.server.web_server import WebServer, web_server
from tests.workloads.measurement import bed
from tests.workloads.measurement.bed import Prometheus, World
from workloads.models import Attempt, IdleSpell, MeasuredBucket, MetricsSource, StopCause

pytestmark = pytest.mark.django_db(transaction=True)

ALERTS = CHART / "alerts.yaml"
BOARDS = sorted((CHART / "dashboards").glob("*.json"))
TOKEN = "scrape-me"


def alerts() -> dict[str, str]:
    return {rule["alert"]: rule["expr"] for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]}


def ask(server: Prometheus, query: str, at: float | None = None) -> list[Any]:
    """The series of the response. A query that Prometheus cannot read fails the test."""
    answer = httpx.get(
        f"{server.url}/api/v1/query", params={"query": query} | ({"time": at} if at else {}), timeout=20
    ).json()
    assert answer["status"] == "success", (query, answer)
    return [row for row in answer["data"]["result"] if row["value"][1] != "NaN"]


def ago(**times: float) -> dt.datetime:
    return timezone.now() - dt.timedelta(**times)


@pytest.fixture
def here() -> World:
    """An installation without problems: one department lends to another, work runs and is measured."""
    here = bed.world("http://127.0.0.1:1")
    make.quota(here.vision, here.pool, 6)
    nlp = make.department("nlp")
    make.quota(nlp, here.pool, 2)
    MetricsSource.objects.update(measured_at=timezone.now(), ranks=1, gpu_ranks=1)
    running = bed.attempt(here, units=2)
    make.holding(nlp, here.pool, borrowed={here.vision: 2})
    make.claim(nlp, here.pool, 8, queued_at=ago(minutes=1), submitted_at=ago(minutes=1))
    measure(running, 700)
    PoolGroup.objects.update(planned_at=timezone.now())
    PlanPass.objects.create(group=here.pool.group, milliseconds=20, snapshot=b"")
    Heartbeat.objects.create(name="watch:a100-cluster", at=timezone.now())
    JobRun.objects.create(job="quotas.plan_all", slot=0)
    AuditEntry.objects.create(actor_name=SYSTEM.name, action="backup.made", target="all")
    return here


def measure(attempt: Attempt, gpu: int) -> None:
    MeasuredBucket.objects.create(attempt=attempt, rank=0, at=ago(minutes=1), gpu=gpu, cards=1)


def recalled(here: World, **fields: Any) -> Attempt:
    attempt = bed.attempt(here)
    fields = {"recalled_at": ago(minutes=20), "reclaim_at": ago(minutes=15), "announced_at": ago(minutes=20)} | fields
    Attempt.objects.filter(pk=attempt.pk).update(stop_cause=StopCause.RECALLED, **fields)
    return attempt


def break_everything(here: World) -> None:
    """Gives every alert a reason to fire."""
    recalled(here)
    returned = recalled(here, finished_at=ago(minutes=1), outcome="recalled")
    returned.workload.state = "succeeded"
    returned.workload.save()
    returned.claim.state, returned.claim.released_at = ClaimState.RELEASED, timezone.now()
    returned.claim.save()
    returned.claim.ledger.update(ended_at=timezone.now())
    idle = bed.attempt(here)
    measure(idle, 0)
    IdleSpell.objects.create(attempt=idle, since=ago(hours=1), warned_at=ago(minutes=5))
    MetricsSource.objects.update(failing_since=ago(hours=1))
    here.cluster.unreachable_since = ago(minutes=5)
    here.cluster.save()
    node = Node.objects.get()
    Card.objects.filter(node=node, index__gt=4).update(quarantined=True)  # 5 are available, 8 are promised
    OutsidePod.objects.create(node=node, pool=here.pool, uid="u", namespace="kube-system", name="dcgm", units=1)
    PoolGroup.objects.update(planned_at=ago(minutes=10))
    member = make.member(here.vision)
    InboxItem.objects.create(user=member, kind="workload.finished", mail_due_at=timezone.now())
    InboxItem.objects.update(created_at=ago(hours=1))
    AuditEntry.objects.filter(action="backup.made").update(at=ago(days=3))


@contextmanager
def in_use(server: WebServer, here: World) -> Iterator[None]:
    """Pages and the API are requested all the time."""
    over = threading.Event()
    secret = token_of(make.member(here.vision), here.vision, ["read"])[1]
    paths = ("/login/", "/api/v1/departments/vision/workloads/", "/api/v1/pools/", "/")

    def go_on() -> None:
        with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {secret}"}, timeout=20) as client:
            for path in itertools.cycle(paths):
                if over.wait(0.05):
                    return
                client.get(path)

    with ThreadPoolExecutor(2) as threads:
        for _ in range(2):
            threads.submit(go_on)
        try:
            yield
        finally:
            over.set()


def meter(here: World, seconds: int) -> None:
    """In each of these seconds a scheduled job fails, some responses are late or errors, and use grows."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    share = {"pool": here.pool, "hour": hour, "person": "ann", "kind": "job"}
    row = WorkHour.objects.create(department=here.vision, own=True, unit_seconds=1, **share)
    WorkHour.objects.create(
        department=Department.objects.get(slug="nlp"), own=False, lender=here.vision, unit_seconds=1, **share
    )
    for second in range(seconds):
        WorkHour.objects.filter(pk=row.pk).update(unit_seconds=10 * second)
        JobRun.objects.create(job="quotas.meter", slot=second, error="ValueError: x")
        for _ in range(40):
            for path in ("/api/v1/pools/", "/login/"):
                answers.count(path, 503, 3.0)
        answers.keep()
        time.sleep(1)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[WebServer, Prometheus]]:
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{settings.DATABASES['default']['NAME']}").geturl()
    if not database.startswith("postgres"):
        cannot("needs PostgreSQL")
    environment = {"DATABASE_URL": database, "DATA_DIR": str(tmp_path), "REDIS_URL": "", "LOG_LEVEL": "ERROR"}
    with web_server(**environment, METRICS_TOKEN=TOKEN) as server:
        scrape = {
            "job_name": "portal", "honor_labels": True, "scrape_interval": "1s", "scrape_timeout": "1s",
            "authorization": {"credentials": TOKEN}, "static_configs": [{"targets": [server.url.removeprefix("http://")]}],
        }  # fmt: skip
        with bed.prometheus(tmp_path, scrape) as prometheus:
            yield server, prometheus


def filled(query: str, chosen: dict[str, str]) -> str:
    for name, value in {"__range": "1h", "__rate_interval": "1m", **chosen}.items():
        query = query.replace(f"${name}", value)
    return query


def unanswered(server: Prometheus, board: dict[str, Any]) -> list[str]:
    """Panels of a dashboard without a series, and variables without a value."""
    chosen = {variable["name"]: ".*" for variable in board["templating"]["list"] if variable["type"] == "query"}
    empty = []
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            where, _, label = variable["query"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
            if not ask(server, filled(f"group by ({label}) ({where})", chosen)):
                empty.append(variable["query"])
    for panel in board["panels"]:
        empty += [
            f"{panel['title']}: {target['expr']}"
            for target in panel["targets"]
            if not ask(server, filled(target["expr"], chosen))
        ]
    return empty


@pytest.mark.timeout(100)
def test_every_query_returns_series_and_alerts_fire_exactly_when_they_should(
    site: tuple[WebServer, Prometheus], here: World
) -> None:
    begun = time.time() - 60
    server, prometheus = site
    with in_use(server, here):
        prometheus.until('sum(portal_request_seconds_count{kind="api", status="2xx"}) > 0')
        firing = [name for name, query in alerts().items() if ask(prometheus, query)]
        assert firing == []
        break_everything(here)
        meter(here, 12)
        assert ask(prometheus, alerts()["PortalAbsent"], at=begun)
        silent = [name for name, query in alerts().items() if name != "PortalAbsent" and not ask(prometheus, query)]
        assert silent == []
        empty = {path.stem: unanswered(prometheus, json.loads(path.read_text())) for path in BOARDS}
        assert {name: rows for name, rows in empty.items() if rows} == {}
    board = ask(prometheus, 'portal_recalls{stage="late"}')
    assert [row["value"][1] for row in board] == ["1"]
    [lost] = ask(prometheus, "portal_reclaim_lost_unit_seconds")
    # One card, which ran for an hour until a minute ago.
    assert float(lost["value"][1]) == pytest.approx(59 * 60, abs=5)
    activity = {
        row["metric"]["what"]: float(row["value"][1])
        for row in ask(prometheus, "sum by (what) (portal_activity_units)")
    }
    assert activity["measured"] == 3
    assert activity["active"] == pytest.approx(2 * 0.7)


def test_dashboard_files_are_what_the_script_writes() -> None:
    assert [path.stem for path in BOARDS] == sorted(dashboards.DASHBOARDS)
    for path in BOARDS:
        assert path.read_text() == dashboards.written(path.stem), "make docs"


def test_prometheus_accepts_the_alert_rules(tmp_path: Path) -> None:
    try:
        checked = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True)
    except FileNotFoundError:
        cannot("promtool is not installed")
    assert checked.returncode == 0, checked.stdout + checked.stderr

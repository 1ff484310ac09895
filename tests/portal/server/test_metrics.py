"""`/metrics`: who can read it, and that its figures are those of the database."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from portal.models import Department, JobRun
from quotas.metrics import quantile
from quotas.models import (
    Card,
    Claim,
    ClaimState,
    Cluster,
    ClusterKind,
    LedgerEntry,
    Node,
    PlanPass,
    Pool,
    PoolGroup,
    Quota,
    WorkHour,
)

pytestmark = pytest.mark.django_db


def scrape(client: Client, **headers: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


@pytest.fixture
def pool() -> Pool:
    cluster = Cluster.objects.create(name="c", kind=ClusterKind.EMBEDDED)
    group = PoolGroup.objects.create(name="g", cluster=cluster)
    pool = Pool.objects.create(
        slug="a100", name="A100", group=group, product="A100", sharing="whole", unit="card", nominal=8
    )
    node = Node.objects.create(cluster=cluster, name="n1")
    for index in range(8):
        Card.objects.create(node=node, pool=pool, index=index, units=1, healthy=index != 7)
    return pool


@pytest.fixture
def lender(pool: Pool) -> Department:
    department = Department.objects.create(slug="vision", name="Vision")
    Quota.objects.create(department=department, pool=pool, guaranteed=6)
    return department


def borrow(pool: Pool, lender: Department) -> Department:
    borrower = Department.objects.create(slug="nlp", name="NLP")
    now = timezone.now()
    claim = Claim.objects.create(
        department=borrower,
        pool=pool,
        name="x",
        workload="w1",
        units_per_pod=3,
        state=ClaimState.HOLDING,
        started_at=now,
    )
    LedgerEntry.objects.create(
        claim=claim, pool=pool, department=borrower, own=False, lender=lender, units=2, started_at=now
    )
    LedgerEntry.objects.create(claim=claim, pool=pool, department=borrower, own=False, units=1, started_at=now)
    Claim.objects.create(
        department=borrower, pool=pool, name="y", workload="w2", units_per_pod=4,
        submitted_at=now - dt.timedelta(seconds=90),
    )  # fmt: skip
    return borrower


def test_usage_is_reported_by_pool_department_and_share(client: Client, pool: Pool, lender: Department) -> None:
    borrow(pool, lender)
    found = scrape(client)

    def of(name: str, **labels: str) -> float:
        return found[name, frozenset(labels.items())]

    def usage(department: str, share: str) -> float:
        return of("portal_usage_units", pool="a100", department=department, leaf="true", unit="card", share=share)

    assert (usage("nlp", "own"), usage("nlp", "borrowed"), usage("vision", "lent")) == (0, 3, 2)
    assert of("portal_guaranteed_units", pool="a100", department="vision", leaf="true", unit="card") == 6
    assert of("portal_queue_units", pool="a100", department="nlp", leaf="true", unit="card") == 4
    assert 90 <= of("portal_queue_oldest_seconds", pool="a100") < 120
    assert of("portal_pool_units", pool="a100", unit="card", kind="nominal") == 8
    assert of("portal_pool_units", pool="a100", unit="card", kind="present") == 7
    assert of("portal_pool_units", pool="a100", unit="card", kind="free") == 4


def test_pass_duration_and_metered_hours_are_reported(client: Client, pool: Pool, lender: Department) -> None:
    for milliseconds in (10, 20, 400):
        PlanPass.objects.create(group=pool.group, milliseconds=milliseconds, snapshot=b"")
    borrower = Department.objects.create(slug="nlp", name="NLP")
    for hour in (1, 2):
        at = dt.datetime(2026, 11, 21, hour, tzinfo=dt.UTC)
        WorkHour.objects.create(
            department=lender, pool=pool, hour=at, person="ann", kind="job", own=True, unit_seconds=3600
        )
        WorkHour.objects.create(department=borrower, pool=pool, hour=at, own=False, lender=lender, unit_seconds=100)
    JobRun.objects.create(job="quotas.meter", slot=0, error="ValueError: x")
    found = scrape(client)
    assert found["portal_plan_pass_seconds", frozenset({("group", "g"), ("quantile", "0.5")})] == 0.02
    assert found["portal_plan_pass_seconds", frozenset({("group", "g"), ("quantile", "1.0")})] == 0.4
    labels = {"pool": "a100", "department": "vision", "unit": "card"}
    assert found["portal_used_unit_seconds_total", frozenset({**labels, "share": "own"}.items())] == 7200
    assert found["portal_used_unit_seconds_total", frozenset({**labels, "share": "lent"}.items())] == 200
    of_ann = frozenset({**labels, "person": "ann", "share": "own"}.items())
    assert found["portal_person_used_unit_seconds_total", of_ann] == 7200
    unknown = frozenset({**labels, "department": "nlp", "person": "", "share": "borrowed"}.items())
    assert found["portal_person_used_unit_seconds_total", unknown] == 200
    assert found["portal_job_failed_runs", frozenset({("job", "quotas.meter")})] == 1


def test_the_number_of_queries_does_not_grow_with_departments(client: Client, pool: Pool, lender: Department) -> None:
    scrape(client)
    with CaptureQueriesContext(connection) as few:
        scrape(client)
    for number in range(20):
        department = Department.objects.create(slug=f"d{number}", name="D")
        Quota.objects.create(department=department, pool=pool, guaranteed=0)
    with CaptureQueriesContext(connection) as many:
        scrape(client)
    assert len(many) == len(few)


@pytest.mark.parametrize(
    ("remote", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.0.0.7", {}, 404),
        ("127.0.0.1", {"x-forwarded-for": "10.0.0.7"}, 404),
        ("127.0.0.1", {"forwarded": "for=10.0.0.7"}, 404),
        ("", {}, 404),
    ],
)
def test_without_a_token_only_the_local_machine_can_read(
    client: Client, remote: str, headers: dict[str, str], status: int
) -> None:
    assert client.get("/metrics", headers=headers, REMOTE_ADDR=remote).status_code == status


def test_with_a_token_only_its_holders_can_read(client: Client, settings: Any) -> None:
    settings.METRICS_TOKEN = "scrape-me"
    assert client.get("/metrics").status_code == 404
    assert client.get("/metrics", headers={"authorization": "Bearer wrong"}).status_code == 404
    right = client.get("/metrics", headers={"authorization": "Bearer scrape-me"}, REMOTE_ADDR="10.0.0.7")
    assert right.status_code == 200


@pytest.mark.parametrize(("values", "q", "expected"), [([1], 0.95, 1), ([1, 2, 3, 4], 0.5, 2), ([1, 2, 3], 1.0, 3)])
def test_quantiles_are_values_that_were_measured(values: list[float], q: float, expected: float) -> None:
    assert quantile(values, q) == expected

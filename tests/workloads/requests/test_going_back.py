"""Borrowers learn before submitting, and while their workload runs, when a lending window closes."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from portal.access import Actor
from portal.models import Department
from quotas.lending import windows
from quotas.lending.schedule import Window
from quotas.models import Pool, Quota
from tests import builders as make
from workloads.models import Image, Workload
from workloads.requests.request import WorkloadRequest
from workloads.requests.verdict import verdict_of
from workloads.status.status_line import shares_of

pytestmark = pytest.mark.django_db
HOUR = 3600


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=8, notice=60, grace=10)


@pytest.fixture
def vision(pool: Pool) -> Department:
    """Lends nothing for an hour, three hours from now."""
    begin = timezone.now().astimezone(dt.UTC) + dt.timedelta(hours=3)
    start = begin.hour * 60 + begin.minute
    window = Window((begin.weekday(),), start, (start + 60) % 1440 or 1440, 0)
    vision = make.department("vision")
    make.quota(vision, pool, 8, windows=[windows.to_json(window)], zone="UTC")
    return vision


@pytest.fixture
def nlp() -> Department:
    return make.department("nlp")


def verdict_lines(nlp: Department, pool: Pool, max_runtime: int | None) -> str:
    image, _ = Image.objects.get_or_create(name="python:3.11", defaults={"title": "Python"})
    request = WorkloadRequest(
        pool=pool, image=image, kind="job", name="x", command=("python",), units_per_pod=2, max_runtime=max_runtime
    )
    return " ".join(verdict_of(actor=Actor(make.member(nlp)), department=nlp, request=request).lines)


def test_verdict_says_when_borrowed_capacity_will_be_recalled(vision: Department, nlp: Department, pool: Pool) -> None:
    assert "Vision lends nothing: anything borrowed from it is recalled by then." in verdict_lines(nlp, pool, None)
    assert "Vision lends nothing" in verdict_lines(nlp, pool, 4 * HOUR)
    assert "Vision lends nothing" not in verdict_lines(nlp, pool, HOUR)  # ends before the window
    Quota.objects.update(windows=[])
    assert "recalled by then" not in verdict_lines(nlp, pool, None)


def test_page_of_a_running_borrower_says_the_same(vision: Department, nlp: Department, pool: Pool) -> None:
    claim = make.holding(nlp, pool, borrowed={vision: 2})
    claim.borrowed = 2
    workload = Workload(pool=pool, department=nlp)
    assert any("From " in line and "Vision lends nothing" in line for line in shares_of(workload, claim))
    claim.max_runtime = HOUR
    assert not any("Vision lends nothing" in line for line in shares_of(workload, claim))

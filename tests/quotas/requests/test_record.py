"""The recent record of a department, shown to those who decide its requests."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from quotas.models import ClaimState
from quotas.requests.record import record_of
from tests import builders as make
from workloads.models import MeasuredWork

pytestmark = pytest.mark.django_db


def test_wait_of_a_recalled_workload_counts_from_its_last_queueing() -> None:
    vision, pool, now = make.department("vision"), make.pool("a100"), timezone.now()
    for minutes in (2, 4):
        make.claim(vision, pool, 1, ClaimState.HOLDING, submitted_at=now - dt.timedelta(days=3),
                   queued_at=now - dt.timedelta(minutes=minutes), started_at=now)  # fmt: skip
    record = record_of(vision, pool)
    assert (record.starts, record.median_wait) == (2, 180)


def test_measured_use_is_that_of_the_department_and_its_teams_in_the_pool() -> None:
    vision, nlp = make.department("vision"), make.department("nlp")
    team = make.department("segmentation", parent=vision)
    pool, other = make.pool("a100"), make.pool("h100")
    assert (record_of(vision, pool).used, record_of(vision, pool).share) == (None, None)
    now = timezone.now()
    for department, where, days in (
        (vision, pool, 1),
        (team, pool, 29),
        (nlp, pool, 1),
        (vision, other, 1),
        (team, pool, 31),
    ):
        MeasuredWork.objects.create(
            department=department, pool=where, person="alice", kind="job", hour=now - dt.timedelta(days=days),
            active=1800, covered=7200,
        )  # fmt: skip
    record = record_of(vision, pool)
    assert (record.used, record.measured, record.share) == (1.0, 4.0, 0.25)

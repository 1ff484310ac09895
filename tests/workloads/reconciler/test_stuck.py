"""Attempts that a cluster has but does not start."""

from __future__ import annotations

import datetime as dt

from django.utils import timezone

from quotas.models import ClaimState, PoolGroup
from quotas.planning.run_pass import run_pass
from tests.workloads.conftest import Bed
from workloads.clusters.run_spec import ref_of
from workloads.lifecycle import Event
from workloads.models import Attempt, Workload
from workloads.reconciler.transitions import record_event
from workloads.runtime.base import Observed, Phase


def attempt_of(workload: Workload) -> Attempt:
    rows = Attempt.objects.select_related("workload__pool", "workload__department", "claim", "cluster")
    return rows.get(workload=workload, finished_at=None)


def lost_run(attempt: Attempt, reason: str) -> Observed:
    return Observed(
        ref_of(attempt), attempt.workload.public_id, attempt.number, Phase.LOST, reason=reason, exit_code=137
    )


def create_attempt(workload: Workload) -> Attempt:
    workload.attempts.latest("number").claim.__class__.objects.update(backoff_until=None)
    run_pass(group_id=PoolGroup.objects.get().pk)
    for event in (Event.ADMIT, Event.CREATED):
        assert record_event(attempt_of(workload), event, now=timezone.now())
    return attempt_of(workload)


def test_pod_rejected_by_its_node_is_requeued_with_a_growing_backoff(bed: Bed) -> None:
    job, waits = bed.submit(bed.alice, bed.vision, "pass"), []
    for _ in range(3):
        attempt, now = create_attempt(job), timezone.now()
        assert record_event(attempt, Event.LOST, now=now, run=lost_run(attempt, "UnexpectedAdmissionError"))
        until = attempt_of(job).claim.backoff_until
        assert until is not None
        waits.append(until - now)
    assert waits == [dt.timedelta(seconds=wait) for wait in (5, 10, 20)]
    assert [each.reason for each in job.attempts.order_by("number")] == ["UnexpectedAdmissionError"] * 3 + [""]


def test_attempt_that_cannot_start_keeps_its_cards_until_gone_and_then_gives_the_reason(bed: Bed) -> None:
    job = bed.submit(bed.alice, bed.vision, "pass")
    attempt, now = create_attempt(job), timezone.now()
    obstacle = Observed(
        ref_of(attempt), job.public_id, 1, Phase.PENDING, reason="ImagePullBackOff", message="no such tag"
    )
    assert record_event(attempt, Event.STUCK, now=now, run=obstacle)
    attempt = attempt_of(job)
    assert (bed.state(job), attempt.claim.state) == ("stopping", ClaimState.LEAVING)
    assert record_event(attempt, Event.GONE_STUCK, now=now, run=lost_run(attempt, "Stopped"))
    job.refresh_from_db()
    assert (job.state, job.reason, job.message, job.exit_code) == ("failed", "ImagePullBackOff", "no such tag", None)
    assert job.attempts.get().claim.state == ClaimState.RELEASED

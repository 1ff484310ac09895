"""Steps that are due at a time rather than after an event: end of notice, maximum runtime, maximum wait."""

from __future__ import annotations

import datetime as dt

import structlog
from django.db.models import Q

from portal.background import hint_queue
from portal.background.hints import wake
from portal.infra.locks import durable
from quotas.models import Claim, ClaimState
from quotas.rules.draining import leaves_by
from workloads.clusters.run_spec import ROWS
from workloads.lifecycle import Event, State
from workloads.models import Attempt
from workloads.reconciler.next_steps import AHEAD, next_steps
from workloads.reconciler.reconcile import reconcile_claim, view_of, viewed
from workloads.reconciler.transitions import record_event
from workloads.runtime.base import ClusterError

log = structlog.get_logger(__name__)


def keep(*, now: dt.datetime) -> int:
    """Take the steps that are due; returns how many attempts changed or were handed to the watcher's workers."""
    _bring_back(now)
    moved = _reject_overdue(now)
    late = Attempt.objects.filter(finished_at=None).filter(
        Q(workload__state=State.RECALLED, reclaim_at__lte=now)
        | Q(workload__state=State.RECALLED, ready_at__isnull=False)
        | Q(workload__state=State.RUNNING, workload__max_runtime__isnull=False)
        | Q(workload__cancel_requested_at__isnull=False) & ~Q(workload__state=State.STOPPING)
    )
    for attempt in viewed(late):
        if not next_steps(view_of(attempt), None, now):
            continue
        if hint_queue.alive():
            wake("workloads.converge", claim=attempt.claim.public_id)
            moved += 1
            continue
        try:
            moved += reconcile_claim(attempt.claim.public_id)
        except ClusterError as error:
            log.error("cluster.failed", cluster=attempt.cluster.name, error=str(error))
    return moved


def _bring_back(now: dt.datetime) -> None:
    """Reset deadlines that are too far in the future for any correct clock, because a clock was ahead for a while."""
    late = now + AHEAD
    for claim in Claim.objects.filter(state=ClaimState.LEAVING, leave_by__gt=late).select_related("pool"):
        latest = leaves_by(claim, now=now)
        if claim.leave_by is None or claim.leave_by <= latest + AHEAD:
            continue
        log.warning("deadline.brought_back", claim=claim.public_id, was=claim.leave_by.isoformat())
        with durable():
            if Claim.objects.filter(pk=claim.pk, leave_by=claim.leave_by).update(leave_by=latest):
                announced = Attempt.objects.filter(claim=claim, finished_at=None, reclaim_at=claim.leave_by)
                announced.update(reclaim_at=latest, announced_at=None)
    Claim.objects.filter(state=ClaimState.PENDING, queued_at__gt=late).update(queued_at=now, backoff_until=None)


def _reject_overdue(now: dt.datetime) -> int:
    """Reject workloads queued longer than their max_wait, unless their claim has got capacity since."""
    waiting = Attempt.objects.filter(
        finished_at=None, workload__state=State.QUEUED, workload__max_wait__isnull=False, claim__state="pending"
    ).select_related(*ROWS)
    over = [a for a in waiting if now >= a.queued_at + dt.timedelta(seconds=a.workload.max_wait or 0)]
    return sum(record_event(attempt, Event.REJECT, now=now, reason="max_wait") for attempt in over)

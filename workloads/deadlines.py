"""What is due at a time rather than after an event: the end of a notice, of a time limit, of a longest wait."""

from __future__ import annotations

import datetime as dt

import structlog
from django.db.models import Q

from workloads.clusters.base import ClusterError
from workloads.converge import ROWS, converge
from workloads.drivers import driver_for
from workloads.happenings import happened
from workloads.lifecycle import Event, State
from workloads.models import Attempt

log = structlog.get_logger(__name__)


def keep(*, now: dt.datetime) -> int:
    """Returns how many attempts took a step."""
    moved = _reject_overdue(now)
    due = Attempt.objects.filter(finished_at=None).filter(
        Q(workload__state=State.RECALLED, reclaim_at__lte=now)
        | Q(workload__state=State.RECALLED, ready_at__isnull=False)
        | Q(workload__state=State.RUNNING, workload__max_runtime__isnull=False)
        | Q(workload__cancel_requested_at__isnull=False) & ~Q(workload__state=State.STOPPING)
    )
    for attempt in due.select_related(*ROWS):
        try:
            moved += converge(attempt, driver_for(attempt.cluster))
        except ClusterError as error:
            log.error("cluster.failed", cluster=attempt.cluster.name, error=str(error))
    return moved


def _reject_overdue(now: dt.datetime) -> int:
    """Queued longer than its max_wait. A claim that has since been given capacity is left alone."""
    waiting = Attempt.objects.filter(
        finished_at=None, workload__state=State.QUEUED, workload__max_wait__isnull=False, claim__state="pending"
    ).select_related(*ROWS)
    over = [a for a in waiting if now >= a.queued_at + dt.timedelta(seconds=a.workload.max_wait or 0)]
    return sum(happened(attempt, Event.REJECT, now=now, reason="max_wait") for attempt in over)

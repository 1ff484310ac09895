"""Invariants of workloads, attempts and their claims, checked in the database."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from django.db.models import Count, Q
from django.utils import timezone

from quotas.models import ClaimState, Node
from workloads.lifecycle import FINAL, ON_CLUSTER, State
from workloads.models import Attempt, Workload

# The allowed states of the claim of a workload's live attempt, including short moments in between (planned, not yet started).
CLAIMS = {
    State.QUEUED: {ClaimState.PENDING, ClaimState.HOLDING, ClaimState.LEAVING},
    **{state: {ClaimState.HOLDING, ClaimState.LEAVING} for state in ON_CLUSTER},
}

LATE = dt.timedelta(minutes=10)  # beyond notice and grace, on a cluster that answers and nodes that work


def violations() -> Iterator[str]:
    yield from live_workloads_have_one_live_attempt()
    yield from claims_agree_with_states()
    yield from what_is_over_holds_nothing()
    yield from preempted_work_has_left(timezone.now())


def live_workloads_have_one_live_attempt() -> Iterator[str]:
    live = Count("attempts", filter=Q(attempts__finished_at=None))
    for workload in Workload.objects.exclude(state__in=FINAL).annotate(live=live).exclude(live=1):
        yield f"{workload.public_id} is {workload.state} and has {workload.live} live attempts"
    for workload in Workload.objects.filter(state__in=FINAL).annotate(live=live).exclude(live=0):
        yield f"{workload.public_id} is {workload.state} and has a live attempt"


def claims_agree_with_states() -> Iterator[str]:
    for attempt in Attempt.objects.filter(finished_at=None).select_related("workload", "claim"):
        state = State(attempt.workload.state)
        if state in CLAIMS and attempt.claim.state not in CLAIMS[state]:
            yield f"{attempt.workload.public_id} is {state.value} and its claim is {attempt.claim.state}"


def what_is_over_holds_nothing() -> Iterator[str]:
    over = Attempt.objects.filter(finished_at__isnull=False).exclude(claim__state=ClaimState.RELEASED)
    for attempt in over.select_related("claim"):
        yield f"{attempt.run_name} is over and its claim is {attempt.claim.state}"


def preempted_work_has_left(now: dt.datetime) -> Iterator[str]:
    """A preempted workload has ended soon after its deadline, because the owner of the quota waits for it. On a node that does
    not answer it may still run until the operator gives the node up."""
    away = Node.objects.filter(Q(present=False) | ~Q(held_back_by=[]))
    silent = set(away.values_list("cluster", "name"))
    overdue = Attempt.objects.filter(claim__state=ClaimState.LEAVING, claim__leave_by__lt=now - LATE)
    for attempt in overdue.filter(cluster__unreachable_since=None, cluster__active=True).select_related("claim"):
        nodes = {(attempt.cluster_id, place["node"]) for place in attempt.claim.placement or ()}
        leave_by = attempt.claim.leave_by
        if leave_by and leave_by + dt.timedelta(seconds=attempt.grace) < now - LATE and not nodes & silent:
            yield f"{attempt.run_name} was to leave by {leave_by:%Y-%m-%d %H:%M:%S} UTC and still has its capacity"

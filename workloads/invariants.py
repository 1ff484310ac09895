"""What must always be true of workloads, attempts and their claims, asked of the database."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count, Q

from quotas.models import ClaimState
from workloads.lifecycle import FINAL, ON_CLUSTER, State
from workloads.models import Attempt, Workload

# What the claim of a workload's live attempt may be; a moment of each hand-over is in it (planned, not yet started).
CLAIMS = {
    State.QUEUED: {ClaimState.PENDING, ClaimState.HOLDING, ClaimState.LEAVING},
    **{state: {ClaimState.HOLDING, ClaimState.LEAVING} for state in ON_CLUSTER},
}


def violations() -> Iterator[str]:
    yield from live_workloads_have_one_live_attempt()
    yield from claims_agree_with_states()
    yield from what_is_over_holds_nothing()


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

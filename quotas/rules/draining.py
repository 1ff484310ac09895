"""Emptying a node within each claim's contract: notice, grace, and back into the queue.

The node must be drained first, so that nothing new starts there. Called under the locks of its pools' groups.
"""

from __future__ import annotations

import datetime as dt

from portal.background.hints import wake
from quotas.board.usage_now import available, read
from quotas.models import OCCUPYING, Claim, ClaimState, Node


def on_node(node: Node) -> list[Claim]:
    """Claims on the node, holding or leaving."""
    rows = Claim.objects.filter(state__in=OCCUPYING, pods__gt=0, pool__group__cluster=node.cluster_id)
    rows = rows.select_related("department", "pool", "user").order_by("public_id")
    return [claim for claim in rows if any(place["node"] == node.name for place in claim.placement or ())]


def leaves_by(claim: Claim, *, now: dt.datetime) -> dt.datetime:
    """When SIGTERM would be sent if notice began now: not before the pool's minimum runtime is over."""
    shortest = dt.timedelta(seconds=max(claim.min_runtime, claim.pool.min_runtime))
    return max(now, (claim.started_at or now) + shortest) + dt.timedelta(seconds=claim.notice)


def announce_drain(node: Node, deadlines: dict[str, str], *, now: dt.datetime) -> dict[str, str]:
    """Begins the notice of every preemptible claim on the node; returns {public id: deadline} of all so far.

    A claim whose recall was withdrawn by a plan in between keeps its first deadline.
    """
    for claim in on_node(node):
        if claim.state != ClaimState.HOLDING or not claim.preemptible:
            continue
        first = deadlines.get(claim.public_id)
        leave_by = max(now, dt.datetime.fromisoformat(first)) if first else leaves_by(claim, now=now)
        if Claim.objects.filter(pk=claim.pk, state=ClaimState.HOLDING).update(
            state=ClaimState.LEAVING, leave_by=leave_by, held_for=None
        ):
            deadlines = {**deadlines, claim.public_id: leave_by.isoformat()}
            wake("workloads.converge", claim=claim.public_id)
    return deadlines


def withdraw_drain(node: Node, deadlines: dict[str, str], *, now: dt.datetime) -> int:
    """Withdraws the notices: claims without SIGTERM continue unless their units are no longer their department's to
    use.

    Returns how many continue.
    """
    stay = 0
    for claim in on_node(node):
        if (
            claim.public_id not in deadlines
            or claim.held_for_id
            or claim.term_at
            or (claim.leave_by and claim.leave_by <= now)
        ):
            continue
        if available(read([claim.pool]), claim.department_id, claim.pool_id) < claim.units:
            continue
        if Claim.objects.filter(pk=claim.pk, state=ClaimState.LEAVING, term_at=None, held_for=None).update(
            state=ClaimState.HOLDING, leave_by=None
        ):
            stay += 1
            wake("workloads.converge", claim=claim.public_id)
    return stay

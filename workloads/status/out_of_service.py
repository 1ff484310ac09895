"""Whether a claim leaves because an operator or a fault took its hardware out of service. That counts neither as a recall nor
as a failure."""

from __future__ import annotations

from quotas.health.quarantines import that_stops
from quotas.models import Claim
from workloads.models import ModeChange


def mode_change_of(claim: Claim) -> ModeChange | None:
    """The mode change of its node because of which the claim must leave; None if there is none."""
    if claim.preempted_for_id is not None:
        return None
    names = {place["node"] for place in claim.placement or ()}
    changes = ModeChange.objects.filter(
        finished_at=None,
        node__name__in=names,
        node__cluster=claim.pool.group.cluster_id,
        deadlines__has_key=claim.public_id,
    )
    return changes.select_related("node").first()


def is_out_of_service(claim: Claim) -> bool:
    return that_stops(claim) is not None or mode_change_of(claim) is not None

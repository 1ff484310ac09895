"""Recalls: units an owner called back without a workload, and the workloads that draw from them.

A holding recall of N units counts N less what its department's workloads that started after it use; when they end it
counts again. A claim that draws from a recall stands on called-back units and is nobody's victim.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from quotas.engine.types import Claim, ClaimId, DepartmentId
from quotas.engine.units import entered_at


@dataclass(slots=True)
class Standing:
    """What each holding claim counts for, what is `left` of each department's recalls, and who draws from one."""

    charges: dict[ClaimId, int] = field(default_factory=dict)
    left: dict[DepartmentId, int] = field(default_factory=dict)
    drawing: set[ClaimId] = field(default_factory=set)


def standing_of(holding: Iterable[Claim], now: int) -> Standing:
    """Work out the standing of the holding claims of one pool. A recall that began only now is drawn from later."""
    standing = Standing()
    recalls: dict[DepartmentId, list[Claim]] = {}
    workloads: list[Claim] = []
    for claim in holding:
        standing.charges[claim.id] = claim.units
        if claim.is_recall:
            recalls.setdefault(claim.department, []).append(claim)
        else:
            workloads.append(claim)
    for department, mine in recalls.items():
        drawers = [claim for claim in workloads if claim.department == department]
        _draw(standing, sorted(mine, key=_by_start), sorted(drawers, key=_by_start))
        standing.left[department] = sum(standing.charges[recall.id] for recall in mine if _by_start(recall)[0] < now)
    return standing


def _draw(standing: Standing, recalls: list[Claim], workloads: list[Claim]) -> None:
    """Each workload draws from the oldest recalls that stood when it started."""
    for workload in workloads:
        wanted = workload.units
        for recall in recalls:
            if wanted and _by_start(recall)[0] < _by_start(workload)[0]:
                drawn = min(wanted, standing.charges[recall.id])
                standing.charges[recall.id] -= drawn
                wanted -= drawn
        if wanted < workload.units:
            standing.drawing.add(workload.id)


def _by_start(claim: Claim) -> tuple[int, str]:
    return entered_at(claim), claim.id

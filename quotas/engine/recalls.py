"""Recalls: units an owner called back without a workload, and the workloads that draw from them.

A holding recall of N units counts N less what workloads of its department, or of departments below, use that started after it;
when they end it counts again. A claim that draws from a recall stands on called-back units and is nobody's victim.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from quotas.engine.types import Claim, ClaimId, Department, DepartmentId
from quotas.engine.units import entered_at


@dataclass(slots=True)
class Standing:
    """What each holding claim counts for, and who draws from a recall. Of each department the `recalls` that claims may draw
    from, the oldest first, and what is `left` of them; one that began only now is drawn from later."""

    charges: dict[ClaimId, int] = field(default_factory=dict)
    left: dict[DepartmentId, int] = field(default_factory=dict)
    recalls: dict[DepartmentId, list[Claim]] = field(default_factory=dict)
    drawing: set[ClaimId] = field(default_factory=set)


def standing_of(holding: Iterable[Claim], now: int, departments: Iterable[Department]) -> Standing:
    """Work out the standing of the holding claims of one pool."""
    standing = Standing()
    recalls: dict[DepartmentId, list[Claim]] = {}
    workloads: list[Claim] = []
    for claim in holding:
        standing.charges[claim.id] = claim.units
        if claim.is_recall:
            recalls.setdefault(claim.department, []).append(claim)
        else:
            workloads.append(claim)
    if not recalls:
        return standing
    for mine in recalls.values():
        mine.sort(key=_by_start)
    parents = {department.id: department.parent for department in departments}
    for workload in sorted(workloads, key=_by_start):
        _draw(standing, workload, _recalls_above(workload.department, recalls, parents))
    for department, mine in recalls.items():
        standing.recalls[department] = [recall for recall in mine if entered_at(recall) < now]
        standing.left[department] = sum(standing.charges[recall.id] for recall in standing.recalls[department])
    return standing


def _recalls_above(
    department: DepartmentId | None,
    recalls: Mapping[DepartmentId, list[Claim]],
    parents: Mapping[DepartmentId, DepartmentId | None],
) -> list[Claim]:
    """The recalls of a department and of those above it, the nearest first."""
    found: list[Claim] = []
    while department is not None:
        found += recalls.get(department, ())
        department = parents[department]
    return found


def _draw(standing: Standing, workload: Claim, recalls: Iterable[Claim]) -> None:
    """It draws from the recalls that stood when it started."""
    wanted = workload.units
    for recall in recalls:
        if wanted and entered_at(recall) < entered_at(workload):
            drawn = min(wanted, standing.charges[recall.id])
            standing.charges[recall.id] -= drawn
            wanted -= drawn
    if wanted < workload.units:
        standing.drawing.add(workload.id)


def _by_start(claim: Claim) -> tuple[int, str]:
    return entered_at(claim), claim.id

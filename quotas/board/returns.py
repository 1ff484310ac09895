"""Units on their way back: to a department that reclaims them, or away from a borrower."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass

from portal.models import Department
from quotas.board.usage_now import Live, LiveClaim
from quotas.board.usage_now import leavers as leavers_of
from quotas.models import ClaimState, Pool


@dataclass(frozen=True, slots=True)
class Leaver:
    """One victim. `name` and `workload` are blank for readers of other departments."""

    department: Department
    units: int
    leave_by: dt.datetime | None
    name: str = ""
    workload: str = ""


@dataclass(frozen=True, slots=True)
class Return:
    """A claim of the department that waits for victims to leave; or a recall, even one that already holds.

    `name` is blank if the reader may not see the claim's department, such as a team they do not belong to.
    """

    claim: LiveClaim
    department: Department
    name: str
    pool: Pool
    units: int
    back: int  # the part of `units` that has come back already
    leavers: tuple[Leaver, ...]

    @property
    def is_holding(self) -> bool:
        return self.claim.state == ClaimState.HOLDING


@dataclass(frozen=True, slots=True)
class Departure:
    """A claim of the department that is being recalled. `to`: the department that gets what it frees. `name` as in Return."""

    claim: LiveClaim
    department: Department
    name: str
    pool: Pool
    to: Department | None


def coming_back(live: Live, departments: Collection[int], seen: Collection[int]) -> list[Return]:
    """What the departments get back: recalls first, then workloads with a reservation, each by promised time."""
    returns, leavers = [], leavers_of(live.all_claims())
    for claim in live.all_claims():
        if (
            claim.department_id in departments
            and (claim.is_recall or claim.reserved)
            and claim.state != ClaimState.LEAVING
        ):
            victims = [_leaver(live, leaver, seen) for leaver in leavers.get(claim.pk, ())]
            on_way = tuple(sorted(victims, key=lambda leaver: str(leaver.leave_by)))
            outstanding = min(claim.units, sum(leaver.units for leaver in on_way))
            settled = claim.state == ClaimState.HOLDING or claim.reserved
            back = claim.units - outstanding if settled else 0
            returns.append(Return(claim, *_of(live, claim, seen), live.pools[claim.pool_id], claim.units, back, on_way))
    return sorted(returns, key=lambda row: (not row.claim.is_recall, str(row.claim.promised_at or ""), row.claim.pk))


def _of(live: Live, claim: LiveClaim, seen: Collection[int]) -> tuple[Department, str]:
    return live.departments[claim.department_id], claim.name if claim.department_id in seen else ""


def _leaver(live: Live, claim: LiveClaim, seen: Collection[int]) -> Leaver:
    known = claim.department_id in seen
    return Leaver(
        live.departments[claim.department_id],
        claim.units,
        claim.leave_by,
        claim.name if known else "",
        claim.workload if known else "",
    )


def going_away(live: Live, departments: Collection[int], seen: Collection[int]) -> list[Departure]:
    """Claims that are being recalled, the earliest deadline first."""
    claims = list(live.all_claims())
    takers = {claim.pk: live.departments[claim.department_id] for claim in claims}
    departures = [
        Departure(claim, *_of(live, claim, seen), live.pools[claim.pool_id], takers.get(claim.preempted_for_id or 0))
        for claim in claims
        if claim.state == ClaimState.LEAVING and claim.department_id in departments
    ]
    return sorted(departures, key=lambda row: str(row.claim.leave_by))

"""What would happen if …: a request before it is submitted, a changed quota, a recall, a drained node.

Nothing here decides. The snapshot with the change goes through `decide`, and its answer is reduced to what a page needs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from quotas.engine.admission import decide
from quotas.engine.ledger import Ledger
from quotas.engine.loans import loans_of
from quotas.engine.reasons import Reason
from quotas.engine.recalls import standing_of
from quotas.engine.types import (
    Claim,
    ClaimId,
    ClaimState,
    Decision,
    DecisionKind,
    DepartmentId,
    Placed,
    Plan,
    PoolId,
    Quota,
    Snapshot,
)
from quotas.engine.units import grace_of, notice_of


class Headline(StrEnum):
    """The five things a verdict can say."""

    STARTS_OWN = "starts_own"
    STARTS_BORROWING = "starts_borrowing"
    STARTS_BY = "starts_by"
    WAITS = "waits"
    CANNOT = "cannot"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One request's fate, with every number its sentences need. Units are the pool's, times the snapshot's seconds.

    `in_use` is the department's usage before, `in_use_after` with this request; `borrowing` is what it borrows already.
    `returning` says which departments give back how much, for a start that waits on others. `notice` and `grace` are
    what this request would be promised if its borrowed units were called back.
    """

    headline: Headline
    claim: ClaimId
    department: DepartmentId
    pool: PoolId
    asked: int
    own: int
    borrowed: int
    from_: Mapping[DepartmentId, int]
    guaranteed: int
    in_use: int
    in_use_after: int
    borrow_limit: int | None
    borrowing: int
    ceiling: int
    notice: int
    grace: int
    placement: tuple[Placed, ...] | None
    by: int | None
    returning: Mapping[DepartmentId, int]
    waiting_on: tuple[ClaimId, ...]
    position: int
    ahead: tuple[ClaimId, ...]
    largest: int | None
    reasons: tuple[Reason, ...]


def verdict(snapshot: Snapshot, claim: Claim) -> Verdict:
    """What `decide` would answer if this pending claim were submitted now. Raises ValueError when the claim's id is
    taken or it is not pending."""
    if claim.state is not ClaimState.PENDING:
        raise ValueError(f"{claim.id} is {claim.state}, not pending")
    plan = decide(with_claim(snapshot, claim))
    decision = next(decision for decision in plan.decisions if decision.claim == claim.id)
    pool = next(pool for pool in snapshot.pools if pool.id == claim.pool)
    ledger = usage_of(snapshot, claim.pool)
    account = ledger[claim.department]
    gone_for_it = {leaver.id: leaver for leaver in snapshot.claims if leaver.id in decision.waiting_on}
    returning: dict[DepartmentId, int] = {}
    for leaver in gone_for_it.values():
        returning[leaver.department] = returning.get(leaver.department, 0) + leaver.units
    return Verdict(
        headline=headline_of(decision),
        claim=claim.id,
        department=claim.department,
        pool=claim.pool,
        asked=claim.units,
        own=decision.own,
        borrowed=decision.borrowed,
        from_=decision.from_,
        guaranteed=account.guaranteed,
        in_use=account.usage,
        in_use_after=account.usage + claim.units,
        borrow_limit=account.quota.borrow_limit,
        borrowing=max(0, account.usage - account.guaranteed),
        ceiling=account.ceiling,
        notice=notice_of(claim, pool, snapshot.settings),
        grace=grace_of(claim, pool, snapshot.settings),
        placement=decision.placement,
        by=decision.by,
        returning=dict(sorted(returning.items())),
        waiting_on=decision.waiting_on,
        position=decision.position,
        ahead=decision.ahead,
        largest=decision.largest,
        reasons=decision.reasons,
    )


def headline_of(decision: Decision) -> Headline:
    """The headline of a decision."""
    match decision.decision:
        case DecisionKind.ADMIT:
            return Headline.STARTS_BORROWING if decision.borrowed else Headline.STARTS_OWN
        case DecisionKind.RECLAIM:
            return Headline.STARTS_BY
        case DecisionKind.WAIT:
            return Headline.WAITS
        case DecisionKind.IMPOSSIBLE:
            return Headline.CANNOT


def usage_of(snapshot: Snapshot, pool_id: PoolId) -> Ledger:
    """The ledger of a pool as it stands: holding claims and reservations, leaving ones counted as gone."""
    pool = next(pool for pool in snapshot.pools if pool.id == pool_id)
    ledger = Ledger(pool, snapshot.departments)
    mine = [claim for claim in snapshot.claims if claim.pool == pool_id]
    charges = standing_of((c for c in mine if c.state is ClaimState.HOLDING), snapshot.now).charges
    for claim in mine:
        if claim.id in charges:
            ledger.add(claim.department, charges[claim.id])
        elif claim.state is ClaimState.PENDING and claim.reserved is not None:
            ledger.add(claim.department, claim.reserved.units)
    return ledger


# Changed snapshots ----------------------------------------------------------------------------------------------------


def with_claim(snapshot: Snapshot, claim: Claim) -> Snapshot:
    """The snapshot and one more claim: a request, or a recall (`pods=0`). Raises ValueError when its id is taken."""
    if any(other.id == claim.id for other in snapshot.claims):
        raise ValueError(f"claim {claim.id} is there already")
    return replace(snapshot, claims=(*snapshot.claims, claim))


def with_quota(snapshot: Snapshot, department: DepartmentId, pool: PoolId, quota: Quota) -> Snapshot:
    """The snapshot with one quota changed. Raises ValueError for an unknown department."""
    if all(other.id != department for other in snapshot.departments):
        raise ValueError(f"no department {department}")
    changed = (
        replace(other, quotas={**other.quotas, pool: quota}) if other.id == department else other
        for other in snapshot.departments
    )
    return replace(snapshot, departments=tuple(changed))


def without_nodes(snapshot: Snapshot, names: Iterable[str]) -> Snapshot:
    """The snapshot with nodes drained; nominal capacity stays what it was."""
    gone = frozenset(names)
    pools = tuple(
        pool
        if pool.nodes is None
        else replace(
            pool,
            nodes=tuple(node for node in pool.nodes if node.name not in gone),
            nominal=Ledger(pool, snapshot.departments).nominal,
        )
        for pool in snapshot.pools
    )
    return replace(snapshot, pools=pools)


# The difference -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """One pending claim whose answer differs (None: it is not asked in that snapshot)."""

    claim: ClaimId
    before: Decision | None
    after: Decision | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Who is affected by a change.

    `told` are claims that would be told to leave only because of it, `told_units` the same by department, `spared`
    those who would not be any more. `recallable` says by how many units each department borrows more (or, negative,
    less) as things stand, before anybody is told anything.
    """

    before: Plan
    after: Plan
    changes: tuple[Change, ...]
    told: tuple[ClaimId, ...]
    told_units: Mapping[DepartmentId, int]
    spared: tuple[ClaimId, ...]
    recallable: Mapping[tuple[DepartmentId, PoolId], int]


def what_if(snapshot: Snapshot, changed: Snapshot) -> Difference:
    """Plan both and compare."""
    before, after = decide(snapshot), decide(changed)
    old = {decision.claim: decision for decision in before.decisions}
    new = {decision.claim: decision for decision in after.decisions}
    told_before, told_after = _told(before), _told(after)
    told = sorted(told_after - told_before)
    units: dict[DepartmentId, int] = {}
    for claim in changed.claims:
        if claim.id in told_after - told_before:
            units[claim.department] = units.get(claim.department, 0) + claim.units
    return Difference(
        before=before,
        after=after,
        changes=tuple(
            Change(claim, old.get(claim), new.get(claim))
            for claim in sorted({*old, *new})
            if old.get(claim) != new.get(claim)
        ),
        told=tuple(told),
        told_units=dict(sorted(units.items())),
        spared=tuple(sorted(told_before - told_after)),
        recallable=_recallable(snapshot, changed),
    )


def _told(plan: Plan) -> set[ClaimId]:
    return {victim for decision in plan.decisions for victim in decision.victims}


def _recallable(snapshot: Snapshot, changed: Snapshot) -> dict[tuple[DepartmentId, PoolId], int]:
    borrowed: dict[tuple[DepartmentId, PoolId], int] = {}
    for side, sign in ((snapshot, -1), (changed, 1)):
        for pool in side.pools:
            for loan in loans_of(side, pool.id):
                key = loan.borrower, pool.id
                borrowed[key] = borrowed.get(key, 0) + sign * loan.units
    return {key: units for key, units in sorted(borrowed.items()) if units}

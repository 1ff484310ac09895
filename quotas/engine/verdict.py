"""What would happen to one request if it were submitted now.

Nothing here decides. The snapshot with the request goes through `decide`, and its answer is reduced to what a page needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from quotas.engine.admission import decide
from quotas.engine.quota_tree import Ledger, standing_of
from quotas.engine.reasons import Reason
from quotas.engine.types import (
    Claim,
    ClaimId,
    ClaimState,
    Decision,
    DecisionKind,
    DepartmentId,
    Placed,
    PoolId,
    Snapshot,
)
from quotas.engine.units import grace_of, notice_of, stranded_units
from quotas.engine.whatif import with_claim


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
        in_use_after=account.usage + claim.units - _drawn(snapshot, claim),
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


def _drawn(snapshot: Snapshot, claim: Claim) -> int:
    """Units of the claim that its department has called back already, and uses by that."""
    holding = [c for c in snapshot.claims if c.pool == claim.pool and c.state is ClaimState.HOLDING]
    left = standing_of(holding, snapshot.now, snapshot.departments).left.get(claim.department, 0)
    return 0 if claim.is_recall else min(claim.units, left)


def headline_of(decision: Decision) -> Headline:
    """The headline of a decision."""
    return {
        DecisionKind.ADMIT: Headline.STARTS_BORROWING if decision.borrowed else Headline.STARTS_OWN,
        DecisionKind.RECLAIM: Headline.STARTS_BY,
        DecisionKind.WAIT: Headline.WAITS,
        DecisionKind.IMPOSSIBLE: Headline.CANNOT,
    }[decision.decision]


def usage_of(snapshot: Snapshot, pool_id: PoolId) -> Ledger:
    """The ledger of a pool as it stands: holding claims and reservations, leaving ones counted as gone."""
    pool = next(pool for pool in snapshot.pools if pool.id == pool_id)
    mine = [claim for claim in snapshot.claims if claim.pool == pool_id]
    holding = [claim for claim in mine if claim.state is ClaimState.HOLDING]
    ledger = Ledger(pool, snapshot.departments, sum(stranded_units(pool, holding).values()))
    charges = standing_of(holding, snapshot.now, snapshot.departments).charges
    for claim in mine:
        if claim.id in charges:
            ledger.add(claim.department, charges[claim.id])
        elif claim.state is ClaimState.PENDING and claim.reserved is not None:
            ledger.add(claim.department, claim.reserved.units)
    return ledger

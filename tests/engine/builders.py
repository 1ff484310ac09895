"""Plain builders for engine tests: a pool, departments and claims in one line each, and applying a plan."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from quotas.engine.planning_pass import decide
from quotas.engine.quota_tree import Ledger
from quotas.engine.types import (
    Card,
    Claim,
    ClaimState,
    Decision,
    DecisionKind,
    Department,
    Node,
    Plan,
    Policy,
    Pool,
    Quota,
    Reservation,
    Settings,
    Snapshot,
)

POOL = "gpu"


def a_pool(capacity: int | None = None, **more: Any) -> Pool:
    return Pool(more.pop("id", POOL), capacity=capacity, **more)


def nodes(*cards: int, units: int = 1, cores: int | None = None, **more: Any) -> tuple[Node, ...]:
    """Nodes n1, n2, … with the given numbers of cards."""
    return tuple(
        Node(f"n{index}", tuple(Card(units, cores) for _ in range(count)), **more)
        for index, count in enumerate(cards, start=1)
    )


def a_department(
    id: str, guaranteed: int = 0, borrow_limit: int | None = None, lend_limit: int | None = None, **more: Any
) -> Department:
    return Department(id, quotas={POOL: Quota(guaranteed, borrow_limit, lend_limit)}, **more)  # type: ignore[dict-item,arg-type]


def holding(id: str, department: str, units: int, **more: Any) -> Claim:
    """A claim that has run for ten minutes."""
    more = {"started_at": -600, "submitted_at": -900, **more}
    return Claim(id, department, more.pop("pool", POOL), units, ClaimState.HOLDING, **more)  # type: ignore[arg-type]


def pending(id: str, department: str, units: int, **more: Any) -> Claim:
    more = {"submitted_at": -10, **more}
    return Claim(id, department, more.pop("pool", POOL), units, ClaimState.PENDING, **more)  # type: ignore[arg-type]


def leaving(id: str, department: str, units: int, **more: Any) -> Claim:
    more = {"started_at": -600, "submitted_at": -900, "leave_by": 300, **more}
    return Claim(id, department, more.pop("pool", POOL), units, ClaimState.LEAVING, **more)  # type: ignore[arg-type]


def a_snapshot(
    pool: Pool | Iterable[Pool],
    departments: Iterable[Department],
    claims: Iterable[Claim],
    now: int = 0,
    **settings: Any,
) -> Snapshot:
    pools = (pool,) if isinstance(pool, Pool) else tuple(pool)
    return Snapshot("case", now, pools, tuple(departments), tuple(claims), Settings(**settings))


def a_policy(**words: Any) -> Policy:
    return Policy(**words)


def answers(snapshot: Snapshot) -> dict[str, Decision]:
    return {decision.claim: decision for decision in decide(snapshot).decisions}


def is_overdrawn(ledger: Ledger, department: Any) -> bool:
    """Whether the department, or one above it, exceeds what it may use."""
    upwards = ledger[department].upwards()
    return any(ledger.available(each.id) < 0 for each in upwards) or ledger.root.usage > ledger.root.promised


def carried_out(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot after the plan is applied: admitted claims hold, victims are leaving, withdrawn ones stay."""
    decided = {decision.claim: decision for decision in plan.decisions}
    preemptors = {victim: decision.claim for decision in plan.decisions for victim in decision.victims}
    pools = {pool.id: pool for pool in snapshot.pools}
    claims = []
    for claim in snapshot.claims:
        pool = pools[claim.pool]
        if claim.id in decided:
            claims.append(_answered(claim, decided[claim.id], snapshot.now))
        elif claim.id in preemptors:
            notice = next(n for n in (claim.notice, pool.notice, snapshot.settings.notice) if n is not None)
            leave_by = snapshot.now + notice
            claims.append(
                replace(claim, state=ClaimState.LEAVING, leave_by=leave_by, preempted_for=preemptors[claim.id])
            )
        elif claim.id in plan.withdrawn:
            claims.append(replace(claim, state=ClaimState.HOLDING, leave_by=None, preempted_for=None))
        else:
            claims.append(claim)
    return replace(snapshot, claims=tuple(claims))


def _answered(claim: Claim, decision: Decision, now: int) -> Claim:
    match decision.decision:
        case DecisionKind.ADMIT:
            return replace(claim, state=ClaimState.HOLDING, started_at=now, placement=decision.placement, reserved=None)
        case DecisionKind.RECLAIM:
            units = decision.own + decision.borrowed
            return replace(claim, reserved=Reservation(units, decision.placement or ()))
        case _:
            return replace(claim, reserved=None)


def plain(decision: Decision) -> dict[str, Any]:
    """A decision in the form of the worked examples in docs/quota-rules*.md: reasons by code only."""
    return {
        "decision": str(decision.decision),
        "own": decision.own,
        "borrowed": decision.borrowed,
        "from": decision.from_,
        "victims": decision.victims,
        "waiting_on": decision.waiting_on,
        "by": decision.by,
        "reasons": tuple(reason.code for reason in decision.reasons),
        "position": decision.position,
        "largest": decision.largest,
    }

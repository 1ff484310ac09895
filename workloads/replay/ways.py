"""The ways of sharing that a replay compares. Each is a function from a snapshot to a plan, like the planner."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from quotas.engine.placement import Room, Space, find_places
from quotas.engine.planning_pass import decide
from quotas.engine.queue import queue_order
from quotas.engine.quota_tree import Ledger, usage_of
from quotas.engine.types import Claim, ClaimState, Decision, DecisionKind, Plan, PoolId, Snapshot

Way = Callable[[Snapshot], Plan]

FEW = 20
"""How many equal claims of a department are planned: if one of them must wait, those behind them must wait too."""


def planner(snapshot: Snapshot) -> Plan:
    """The portal's own planner. Of equal claims of a department only the first FEW are planned: while one of these must wait, the
    others must too. With thousands of waiting claims, a month takes minutes instead of hours by this."""
    few = FEW
    while True:
        asked, behind = _first(snapshot, few)
        plan = decide(asked, hints=False)
        waiting = {decision.claim for decision in plan.decisions if decision.decision is DecisionKind.WAIT}
        if all(waiting & ids for ids in behind):
            return plan
        few *= 2


def _first(snapshot: Snapshot, few: int) -> tuple[Snapshot, list[set[str]]]:
    """The snapshot without the pending claims behind the first `few` equal ones, and, for each group from which claims were left
    out, the ids of its first `few`."""
    equals: dict[object, list[Claim]] = defaultdict(list)
    claims: list[Claim] = []
    for claim in snapshot.claims:
        backs_off = claim.backoff_until is not None and claim.backoff_until > snapshot.now
        if claim.state is ClaimState.PENDING and claim.reserved is None and not backs_off:
            kind = (
                claim.department, claim.pool, claim.user, claim.priority, claim.pods, claim.shape, claim.units, claim.max_runtime,
                claim.must_stay_inside, claim.same_domain,
            )  # fmt: skip
            equals[kind].append(claim)
        else:
            claims.append(claim)
    behind: list[set[str]] = []
    for group in equals.values():
        if len(group) > few:
            group.sort(key=queue_order)
            del group[few:]
            behind.append({claim.id for claim in group})
        claims += group
    return replace(snapshot, claims=tuple(claims)), behind


def pooled(snapshot: Snapshot) -> Plan:
    """One queue for all cards without quotas, first come, first served; smaller claims may pass. Nothing is ever preempted, so no
    work is lost, and no capacity is guaranteed."""
    return _first_come(snapshot, partition=False)


def static(snapshot: Snapshot) -> Plan:
    """Every department has only its guaranteed quota, first come, first served; nothing is lent."""
    return _first_come(snapshot, partition=True)


def _first_come(snapshot: Snapshot, partition: bool) -> Plan:
    ledgers = {pool.id: usage_of(snapshot, pool.id) for pool in snapshot.pools}
    left = {pool: ledger.capacity for pool, ledger in ledgers.items()}
    for claim in snapshot.claims:
        if claim.state is not ClaimState.PENDING:
            left[claim.pool] -= claim.units
    decisions: list[Decision] = []
    may_start: list[Claim] = []
    for claim in snapshot.claims:
        ledger, units = ledgers[claim.pool], claim.units
        if claim.state is not ClaimState.PENDING:
            continue
        if units > (ledger[claim.department].promised if partition else ledger.capacity):
            decisions.append(Decision(claim.id, DecisionKind.IMPOSSIBLE))
        elif units <= left[claim.pool] and not (partition and not ledger.inside(claim.department, units)):
            may_start.append(claim)
    return Plan(snapshot.id, (*decisions, *_started(snapshot, may_start, ledgers, partition)))


def _started(
    snapshot: Snapshot, claims: list[Claim], ledgers: Mapping[PoolId, Ledger], partition: bool
) -> Iterator[Decision]:
    """Decisions to admit, in the order of the queue, for the claims that have a place."""
    if not claims:
        return
    pools, room = {pool.id: pool for pool in snapshot.pools}, Room(Space(snapshot.pools, snapshot.departments))
    for claim in snapshot.claims:
        if claim.state is not ClaimState.PENDING:
            room.add(room.space.taken(claim, claim.placement), -1)
    full: set[object] = set()  # requests without a place: during a pass nothing becomes free
    for claim in sorted(claims, key=queue_order):
        ledger, kind = ledgers[claim.pool], (claim.pool, claim.pods, claim.shape, claim.same_domain)
        if kind in full or (partition and not ledger.inside(claim.department, claim.units)):
            continue
        places = find_places(claim, pools[claim.pool], room)
        if places is None:
            full.add(kind)
            continue
        room.add(room.space.taken(claim, places), -1)
        ledger.add(claim.department, claim.units)
        yield Decision(claim.id, DecisionKind.ADMIT, own=claim.units, placement=places or None)


WAYS: dict[str, Way] = {"planner": planner, "pooled": pooled, "static": static}

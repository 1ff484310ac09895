"""What must always be true (docs/quota-rules.md, "Invariants"): of a state, and of a plan made for it.

Property tests call both after every step; `manage.py check_invariants` calls `of_state` on a live database.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quotas.engine.quota_tree import Ledger, standing_of
from quotas.engine.space import NO_MACHINE, NOWHERE, Row, Space, Vector, names
from quotas.engine.types import Claim, ClaimState, Decision, DecisionKind, DepartmentId, Plan, Pool, PoolId, Snapshot
from quotas.engine.units import stranded_units


@dataclass(frozen=True, slots=True)
class Violation:
    """`rule` is the number of the invariant on the rules page; `about` the claim, department or place."""

    rule: int
    about: str
    sentence: str


def of_state(snapshot: Snapshot) -> tuple[Violation, ...]:
    """What is wrong with the claims as they stand. An excess that lost capacity left behind is not counted."""
    return (*_overfull(snapshot), *_held_twice(snapshot), *_unstoppable(snapshot))


def of_plan(snapshot: Snapshot, plan: Plan) -> tuple[Violation, ...]:
    """What is wrong with a plan for the snapshot."""
    return (*_unanswered(snapshot, plan), *_worse_space(snapshot, plan), *_worse_rights(snapshot, plan))


# Of a state -----------------------------------------------------------------------------------------------------------


def free_space(snapshot: Snapshot, space: Space) -> Row:
    """What holding and leaving claims leave free of every card, node and pool; negative where they are too many."""
    free = [*space.capacity]
    for pool in snapshot.pools:
        mine = [claim for claim in snapshot.claims if claim.pool == pool.id]
        charges = standing_of(_holding(mine), snapshot.now, snapshot.departments).charges
        stranded = stranded_units(pool, mine)
        for claim in mine:
            if claim.state is not ClaimState.PENDING:
                charge = charges.get(claim.id, claim.units) - stranded.get(claim.id, 0)
                _take(free, space.taken(claim, claim.placement, charge))
    return free


def _take(free: Row, vector: Vector) -> None:
    for slot, amount in vector.items():
        free[slot] -= amount


def _overfull(snapshot: Snapshot) -> Iterator[Violation]:
    """1: holding and leaving claims never exceed a card, node or pool in any real dimension."""
    space = Space(snapshot.pools, snapshot.departments)
    short = {space.pool[pool.id] for pool in snapshot.pools if _lost(snapshot, pool)}
    for slot, amount in enumerate(free_space(snapshot, space)):
        lost = slot == NOWHERE or (space.at[slot] != NO_MACHINE and not space.capacity[slot])  # or quarantined
        if amount < 0 and slot not in short and not lost:
            yield Violation(1, names(space)[slot], f"{-amount} more are occupied than there are")


def _holding(claims: Iterable[Claim]) -> list[Claim]:
    return [claim for claim in claims if claim.state is ClaimState.HOLDING]


def _lost(snapshot: Snapshot, pool: Pool) -> bool:
    ledger = Ledger(pool, snapshot.departments)
    return ledger.capacity < ledger.nominal


def _held_twice(snapshot: Snapshot) -> Iterator[Violation]:
    """3: a claim holds at most once, and a reservation belongs to exactly one live claim."""
    for claim, times in Counter(claim.id for claim in snapshot.claims).items():
        if times > 1:
            yield Violation(3, claim, f"the claim stands {times} times")
    for claim_ in snapshot.claims:
        pods = Counter(placed.pod for placed in claim_.placement or ())
        if any(times > 1 or pod >= claim_.pods for pod, times in pods.items()):
            yield Violation(3, claim_.id, "a pod is placed twice, or is not one of the claim's")
        if claim_.reserved is not None and claim_.state is not ClaimState.PENDING:
            yield Violation(3, claim_.id, f"a {claim_.state} claim has a reservation")


def _unstoppable(snapshot: Snapshot) -> Iterator[Violation]:
    """The guard of the arithmetic: work that may not be stopped stays inside the guarantee."""
    for pool in snapshot.pools:
        ledger = Ledger(pool, snapshot.departments)
        for department in snapshot.departments:
            guaranteed = ledger[department.id].subtree
            held = sum(
                claim.units
                for claim in snapshot.claims
                if (claim.pool, claim.department, claim.state) == (pool.id, department.id, ClaimState.HOLDING)
                and not claim.preemptible
            )
            if held > guaranteed:
                yield Violation(2, department.id, f"{held} units may not be stopped, {guaranteed} are guaranteed")


# Of a plan ------------------------------------------------------------------------------------------------------------


def _unanswered(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """Every pending claim gets exactly one answer, nobody else does, and only holding claims are victims."""
    pending = {claim.id for claim in snapshot.claims if claim.state is ClaimState.PENDING}
    answered = Counter(decision.claim for decision in plan.decisions)
    for claim in pending ^ set(answered) | {claim for claim, times in answered.items() if times > 1}:
        yield Violation(3, claim, f"the claim got {answered[claim]} answers")
    holding = {claim.id for claim in snapshot.claims if claim.state is ClaimState.HOLDING}
    victims = Counter(victim for decision in plan.decisions for victim in decision.victims)
    for claim, times in victims.items():
        if claim not in holding or times > 1:
            yield Violation(3, claim, "the victim does not hold, or was named twice")


def _worse_space(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """1: no decision exceeds a card, node or pool, nor worsens an excess that a lost node left."""
    space, left = Space(snapshot.pools, snapshot.departments), _left_of_recalls(snapshot)
    free = free_space(snapshot, space)
    for claim, decision in _decided(snapshot, plan):
        if decision.decision is DecisionKind.ADMIT:
            drawn = sum(_drawn(snapshot, claim, decision, left[claim.pool]).values())
            taken = space.taken(claim, decision.placement, claim.units - drawn)
            _take(free, taken)
            for slot, amount in taken.items():
                if amount and free[slot] < 0:
                    yield Violation(1, claim.id, f"{names(space)[slot]} has no room for it")


Left = dict[DepartmentId, int]


def _left_of_recalls(snapshot: Snapshot) -> dict[PoolId, Left]:
    """What is left of each department's recalls in each pool."""
    of_pools = {pool.id: _holding(c for c in snapshot.claims if c.pool == pool.id) for pool in snapshot.pools}
    return {pool: standing_of(mine, snapshot.now, snapshot.departments).left for pool, mine in of_pools.items()}


def _drawn(snapshot: Snapshot, claim: Claim, decision: Decision, left: Left) -> Left:
    """What the claim draws from the recalls of its department and, once it starts, of those above; it is `left` no more."""
    parents = {department.id: department.parent for department in snapshot.departments}
    wanted, drawn = 0 if claim.is_recall else claim.units, Left()
    department: DepartmentId | None = claim.department
    while department is not None and left:
        drawn[department] = min(wanted, left.get(department, 0))
        left[department] = left.get(department, 0) - drawn[department]
        wanted -= drawn[department]
        department = parents[department] if decision.decision is DecisionKind.ADMIT else None
    return drawn


def _worse_rights(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """2: nobody is admitted above its borrow limit, into what others keep, or – if it must not borrow – to borrowing."""
    for pool in snapshot.pools:
        ledger = _ledger_after(snapshot, pool, plan)
        for claim, decision in _decided(snapshot, plan):
            if claim.pool != pool.id or decision.decision not in (DecisionKind.ADMIT, DecisionKind.RECLAIM):
                continue
            account = ledger[claim.department]
            limit = account.quota.borrow_limit
            if limit is not None and decision.borrowed and account.usage - account.guaranteed > limit:
                yield Violation(2, claim.id, f"{account.id} would stand {account.usage - account.guaranteed} above")
            if ledger.available(claim.department) < 0 and decision.borrowed:
                yield Violation(2, claim.id, f"{account.id} would use what others keep")
            if sum(decision.from_.values()) != decision.borrowed:
                yield Violation(8, claim.id, f"it borrows {decision.borrowed} of {dict(decision.from_)}")
            if claim.must_stay_inside and decision.borrowed and claim.reserved is None:
                yield Violation(2, claim.id, "it must not borrow")


def _ledger_after(snapshot: Snapshot, pool: Pool, plan: Plan) -> Ledger:
    """Usage once the plan is carried out, leaving claims counted as gone."""
    mine = [claim for claim in snapshot.claims if claim.pool == pool.id]
    holding = _holding(mine)
    ledger = Ledger(pool, snapshot.departments, sum(stranded_units(pool, holding).values()))
    standing = standing_of(holding, snapshot.now, snapshot.departments)
    victims = {victim for decision in plan.decisions for victim in decision.victims}
    for claim in mine:
        if claim.id in standing.charges and claim.id not in victims:
            ledger.add(claim.department, standing.charges[claim.id])
        elif claim.id in plan.withdrawn:
            ledger.add(claim.department, claim.units)
    for claim, decision in _decided(snapshot, plan):
        if claim.pool == pool.id and decision.own + decision.borrowed:
            ledger.add(claim.department, claim.units)
            for department, units in _drawn(snapshot, claim, decision, standing.left).items():
                ledger.remove(department, units)
    return ledger


def _decided(snapshot: Snapshot, plan: Plan) -> list[tuple[Claim, Decision]]:
    claims = {claim.id: claim for claim in snapshot.claims}
    return [(claims[decision.claim], decision) for decision in plan.decisions if decision.claim in claims]

"""What must always be true (docs/quota-rules-reference.md, "Invariants"): of a state, and of a plan made for it.

Property tests call both after every step.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from quotas.engine.placement import NO_MACHINE, NOWHERE, Row, Slot, Space, Vector
from quotas.engine.quota_tree import Ledger, Standing, standing_of, usage_of
from quotas.engine.reasons import Fragmented, GuaranteeKeptFor, HeldFor, NoNodeToClear, WaitingForGang
from quotas.engine.types import Claim, ClaimState, Decision, DecisionKind, DepartmentId, Plan, Pool, PoolId, Snapshot
from quotas.engine.units import gone_by, spent_budget, stranded_units


@dataclass(frozen=True, slots=True)
class Violation:
    """`rule` is the number of the invariant on the rules page; `about` the claim, department or place."""

    rule: int
    about: str
    sentence: str


def of_state(snapshot: Snapshot) -> tuple[Violation, ...]:
    """Violations in the claims of a snapshot. An excess that lost capacity leaves behind does not count."""
    return (*_overfull(snapshot), *_held_twice(snapshot), *_unstoppable(snapshot))


def of_plan(snapshot: Snapshot, plan: Plan) -> tuple[Violation, ...]:
    """Violations of a plan for the snapshot."""
    return (
        *_unanswered(snapshot, plan),
        *_worse_space(snapshot, plan),
        *_worse_rights(snapshot, plan),
        *_over_budget(snapshot, plan),
        *_promised_twice(snapshot, plan),
        *_contradicted(snapshot, plan),
    )


# Of a state -----------------------------------------------------------------------------------------------------------


def free_space(snapshot: Snapshot, space: Space) -> Row:
    """What holding and leaving claims leave free of every card, node and pool; negative where they exceed it."""
    free = [*space.capacity]
    for pool in snapshot.pools:
        occupying = snapshot.claims_of(pool.id, ClaimState.HOLDING, ClaimState.LEAVING)
        charges, stranded = _standing(snapshot, pool).charges, stranded_units(pool, occupying)
        for claim in occupying:
            charge = charges.get(claim.id, claim.units) - stranded.get(claim.id, 0)
            _take(free, space.taken(claim, claim.placement, charge))
    return free


def _standing(snapshot: Snapshot, pool: Pool) -> Standing:
    return standing_of(snapshot.claims_of(pool.id, ClaimState.HOLDING), snapshot.now, snapshot.departments)


def _take(free: Row, vector: Vector) -> None:
    for slot, amount in vector.items():
        free[slot] -= amount


def _overfull(snapshot: Snapshot) -> Iterator[Violation]:
    """1: holding and leaving claims never exceed a card, node or pool in any real dimension."""
    space = Space(snapshot.pools, snapshot.departments)
    ledgers = {pool.id: Ledger(pool, snapshot.departments) for pool in snapshot.pools}
    short = {space.pool[id] for id, ledger in ledgers.items() if ledger.capacity < ledger.nominal}
    for slot, amount in enumerate(free_space(snapshot, space)):
        lost = slot == NOWHERE or (space.at[slot] != NO_MACHINE and not space.capacity[slot])  # or quarantined
        if amount < 0 and slot not in short and not lost:
            yield Violation(1, names(space)[slot], f"{-amount} more units are occupied than there are")


def _held_twice(snapshot: Snapshot) -> Iterator[Violation]:
    """3: a claim holds at most once, and a reservation belongs to exactly one live claim."""
    for id, times in Counter(claim.id for claim in snapshot.claims).items():
        if times > 1:
            yield Violation(3, id, f"the claim is in the snapshot {times} times")
    for claim in snapshot.claims:
        pods = Counter(placed.pod for placed in claim.placement or ())
        if any(times > 1 or pod >= claim.pods for pod, times in pods.items()):
            yield Violation(3, claim.id, "a pod is placed twice, or is not one of the claim's")
        if claim.reserved is not None and claim.state is not ClaimState.PENDING:
            yield Violation(3, claim.id, f"a {claim.state} claim has a reservation")


def _unstoppable(snapshot: Snapshot) -> Iterator[Violation]:
    """2: non-preemptible work stays inside the guarantee of its department."""
    for pool in snapshot.pools:
        ledger, held = Ledger(pool, snapshot.departments), Counter[DepartmentId]()
        for claim in snapshot.claims_of(pool.id, ClaimState.HOLDING):
            held[claim.department] += 0 if claim.preemptible else claim.units
        for department in snapshot.departments:
            units, guaranteed = held[department.id], ledger[department.id].promised
            if units > guaranteed:
                yield Violation(2, department.id, f"{units} units are non-preemptible, {guaranteed} are guaranteed")


# Of a plan ------------------------------------------------------------------------------------------------------------


def _unanswered(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """3: every pending claim gets exactly one answer, no other claim gets one, and only holding claims are victims."""
    pending = {claim.id for claim in snapshot.claims if claim.state is ClaimState.PENDING}
    answered = Counter(decision.claim for decision in plan.decisions)
    for claim in pending ^ set(answered) | {claim for claim, times in answered.items() if times > 1}:
        yield Violation(3, claim, f"the claim got {answered[claim]} answers")
    holding = {claim.id for claim in snapshot.claims if claim.state is ClaimState.HOLDING}
    victims = Counter(victim for decision in plan.decisions for victim in decision.victims)
    for claim, times in victims.items():
        if claim not in holding or times > 1:
            yield Violation(3, claim, "the victim does not hold, or is named twice")


def _worse_space(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """1: no decision exceeds a card, node or pool, nor worsens an excess that a lost node leaves behind."""
    space = Space(snapshot.pools, snapshot.departments)
    left = {pool.id: _standing(snapshot, pool).left for pool in snapshot.pools}
    free = free_space(snapshot, space)
    for claim, decision in _decided(snapshot, plan):
        if decision.decision is DecisionKind.ADMIT:
            drawn = sum(_drawn(snapshot, claim, decision, left[claim.pool]).values())
            taken = space.taken(claim, decision.placement, claim.units - drawn)
            _take(free, taken)
            for slot, amount in taken.items():
                if amount and free[slot] < 0:
                    yield Violation(1, claim.id, f"{names(space)[slot]} has no room for it")


def _drawn(
    snapshot: Snapshot, claim: Claim, decision: Decision, left: dict[DepartmentId, int]
) -> dict[DepartmentId, int]:
    """The units that the claim draws from recalls of its department and, once it starts, of those above. They are subtracted
    from `left`."""
    parents = {department.id: department.parent for department in snapshot.departments}
    wanted, drawn = 0 if claim.is_recall else claim.units, dict[DepartmentId, int]()
    department: DepartmentId | None = claim.department
    while department is not None and left:
        drawn[department] = min(wanted, left.get(department, 0))
        left[department] = left.get(department, 0) - drawn[department]
        wanted -= drawn[department]
        department = parents[department] if decision.decision is DecisionKind.ADMIT else None
    return drawn


def _worse_rights(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """2: no claim is admitted above a borrow limit, into quota that others keep, or as a borrower if it must stay inside."""
    for pool in snapshot.pools:
        ledger = _ledger_after(snapshot, pool, plan)
        for claim, decision in _decided(snapshot, plan):
            if claim.pool != pool.id or decision.decision not in (DecisionKind.ADMIT, DecisionKind.RECLAIM):
                continue
            account = ledger[claim.department]
            limit = account.quota.borrow_limit
            if limit is not None and decision.borrowed and account.usage - account.guaranteed > limit:
                yield Violation(
                    2, claim.id, f"{account.id} would be {account.usage - account.guaranteed} above its guarantee"
                )
            if ledger.available(claim.department) < 0 and decision.borrowed:
                yield Violation(2, claim.id, f"{account.id} would use what others keep")
            if sum(decision.from_.values()) != decision.borrowed:
                yield Violation(8, claim.id, f"it borrows {decision.borrowed} of {dict(decision.from_)}")
            if claim.must_stay_inside and decision.borrowed and claim.reserved is None:
                yield Violation(2, claim.id, "it must not borrow")


def _over_budget(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """2: a claim that a used-up budget holds back neither starts nor reserves nor preempts."""
    departments = {department.id: department for department in snapshot.departments}
    for claim, decision in _decided(snapshot, plan):
        budget = spent_budget(departments[claim.department], claim)
        if budget is not None and decision.decision in (DecisionKind.ADMIT, DecisionKind.RECLAIM):
            if not budget.borrowing_only:
                yield Violation(2, claim.id, f"the budget of {budget.department} is used up")
            elif decision.borrowed:
                yield Violation(2, claim.id, f"the budget of {budget.department} leaves nothing to borrow")


def _promised_twice(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """10: at each promised time there are enough units for all claims that are promised units by then: no unit that is
    released is promised twice. An excess that lost capacity leaves behind does not count."""
    space = Space(snapshot.pools, snapshot.departments)
    free, claims = free_space(snapshot, space), {claim.id: claim for claim in snapshot.claims}
    for pool in snapshot.pools:
        standing, slot = _standing(snapshot, pool), space.pool[pool.id]
        left = dict(standing.left)
        changes = [(snapshot.now, 1, free[slot], "")]
        for id in _gone_after(snapshot, plan):
            claim = claims[id]
            if claim.pool == pool.id:
                when = max(snapshot.now, gone_by(claim, pool, snapshot.settings, snapshot.now))
                changes.append((when, 0, standing.charges.get(id, claim.units), id))
        for claim, decision in _decided(snapshot, plan):
            if claim.pool == pool.id and decision.decision in (DecisionKind.ADMIT, DecisionKind.RECLAIM):
                drawn = sum(_drawn(snapshot, claim, decision, left).values())
                changes.append((max(snapshot.now, decision.by or 0), 2, drawn - claim.units, claim.id))
        available = 0
        for when, _order, units, id in sorted(changes):
            available += units
            if units < 0 and available < 0 <= free[slot]:
                yield Violation(10, id, f"{-available} units promised for {when} are promised to others")


def _contradicted(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """11: a reason never says that as much fits as the claim requests, nor that less is free and kept for others."""
    free = _free_after(snapshot, plan)
    for claim, decision in _decided(snapshot, plan):
        for reason in decision.reasons:
            if isinstance(reason, HeldFor | GuaranteeKeptFor) and free[claim.pool] < claim.units:
                yield Violation(
                    11, claim.id, f"{free[claim.pool]} are free, {claim.units} are said to be kept for others"
                )
            if isinstance(reason, Fragmented | NoNodeToClear) and reason.largest_fit >= claim.pods * claim.on_card:
                yield Violation(
                    11, claim.id, f"{reason.largest_fit} are said to fit, {claim.on_card} per pod are requested"
                )
            if isinstance(reason, WaitingForGang) and reason.have >= reason.need:
                yield Violation(11, claim.id, f"{reason.have} pods are said to fit, {reason.need} are requested")


def _free_after(snapshot: Snapshot, plan: Plan) -> dict[PoolId, int]:
    """By pool, the units that nobody uses once all claims that may start have started, with those of recalls."""
    space = Space(snapshot.pools, snapshot.departments)
    row = free_space(snapshot, space)
    free = {pool.id: row[space.pool[pool.id]] + sum(_standing(snapshot, pool).left.values()) for pool in snapshot.pools}
    for claim, decision in _decided(snapshot, plan):
        if decision.decision is DecisionKind.ADMIT:
            free[claim.pool] -= claim.units
    return free


def _gone_after(snapshot: Snapshot, plan: Plan) -> set[str]:
    """The claims that leave once the plan is carried out."""
    leaving = {claim.id for claim in snapshot.claims if claim.state is ClaimState.LEAVING}
    return leaving - {*plan.withdrawn} | {victim for decision in plan.decisions for victim in decision.victims}


def _ledger_after(snapshot: Snapshot, pool: Pool, plan: Plan) -> Ledger:
    """Usage once the plan is carried out, leaving claims counted as gone."""
    victims = {victim for decision in plan.decisions for victim in decision.victims}
    ledger, standing = usage_of(snapshot, pool.id, reserved=False), _standing(snapshot, pool)
    for claim in snapshot.claims_of(pool.id, ClaimState.HOLDING):
        if claim.id in victims:
            ledger.remove(claim.department, standing.charges[claim.id])
    for claim in snapshot.claims_of(pool.id, ClaimState.LEAVING):
        if claim.id in plan.withdrawn:
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


def names(space: Space) -> dict[Slot, str]:
    """The names of slots in messages, such as card/a100/n1/0."""
    result = {NOWHERE: "a lost place"} | {slot: f"pool/{pool}" for pool, slot in space.pool.items()}
    for pool, hosts in space.hosts.items():
        for host in hosts.values():
            named = {f"{what}/{host.name}": slot for what, slot in host.beside.items()}
            path = f"{pool}/{host.name}"
            named |= {f"card/{path}/{card}": slot for card, slot in enumerate(host.cards)}
            named |= {f"cores/{path}/{card}": slot for card, slot in enumerate(host.cores)}
            named |= {f"instance/{path}/{profile}": slot for profile, slot in host.instances.items()}
            named |= {f"media/{path}/{card}": slot for card, slot in enumerate(host.media)}
            for card, part in enumerate(host.slices):
                named |= {f"slice/{path}/{card}/{n}": slot for n, slot in enumerate(range(part.start, part.stop))}
            result |= {slot: name for name, slot in named.items() if slot is not None}
    return result

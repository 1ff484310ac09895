"""What would happen with another request, a recall, a changed quota or a drained node.

A changed snapshot goes through `decide`, and the answers are compared or summarised. `what_if` compares two plans, `verdict`
answers one request, `alternatives` finds for each victim the claims that would be preempted instead of it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import partial

from quotas.engine.placement import rooms_of
from quotas.engine.planning_pass import decide
from quotas.engine.preemption_rules import Cost, Preemptor, cost, preemptor_of
from quotas.engine.quota_tree import Ledger, loans_of, standing_of, usage_of
from quotas.engine.reservations import initial_state
from quotas.engine.types import (
    Card,
    Claim,
    ClaimId,
    ClaimState,
    Decision,
    DecisionKind,
    DepartmentId,
    Node,
    Plan,
    Pool,
    PoolId,
    Quota,
    Snapshot,
)
from quotas.engine.units import grace_of, notice_of

# Changed snapshots ----------------------------------------------------------------------------------------------------


def with_claim(snapshot: Snapshot, claim: Claim) -> Snapshot:
    """The snapshot with one more claim: a request, or a recall (`pods=0`). Raises ValueError if its id is taken."""
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
    """The snapshot with nodes drained; nominal capacity does not change."""
    gone = frozenset(names)
    return _with_nodes(snapshot, lambda nodes: (node for node in nodes if node.name not in gone))


def without_card(snapshot: Snapshot, name: str, index: int) -> Snapshot:
    """The snapshot with one card of a node quarantined; nominal capacity does not change."""

    def reduced(node: Node) -> Node:
        if node.name != name:
            return node
        return replace(node, cards=tuple(Card(0) if i == index else card for i, card in enumerate(node.cards)))

    return _with_nodes(snapshot, partial(map, reduced))


def _with_nodes(snapshot: Snapshot, change: Callable[[tuple[Node, ...]], Iterable[Node]]) -> Snapshot:
    """The snapshot with changed nodes in every pool that has nodes; nominal capacity does not change."""

    def changed(pool: Pool) -> Pool:
        if pool.nodes is None:
            return pool
        return replace(pool, nodes=tuple(change(pool.nodes)), nominal=Ledger(pool, snapshot.departments).nominal)

    return replace(snapshot, pools=tuple(map(changed, snapshot.pools)))


ClaimsOnNodes = Mapping[str, tuple[ClaimId, ...]]
"""Node → the claims that hold or leave a place there."""


def claims_on(snapshot: Snapshot, names: Iterable[str]) -> ClaimsOnNodes:
    """The claims on each of these nodes. They run until they end if it is drained, and are preempted if it is emptied."""
    found: dict[str, list[ClaimId]] = {name: [] for name in names}
    for claim in snapshot.claims:
        if claim.state is not ClaimState.PENDING:
            for name in found.keys() & {placed.node for placed in claim.placement or ()}:
                found[name].append(claim.id)
    return {name: tuple(sorted(claims)) for name, claims in found.items()}


# The difference -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """A claim whose answer differs; None: it is not pending there."""

    claim: ClaimId
    before: Decision | None
    after: Decision | None


@dataclass(frozen=True, slots=True)
class Difference:
    """What a change affects: claims whose answer `changes`, claims `recalled` only because of it (`recalled_units` by
    department), and those `spared`. `recallable`: how many more (negative: fewer) units of each department would count as
    borrowed at once, before any preemption."""

    before: Plan
    after: Plan
    changes: tuple[Change, ...]
    recalled: tuple[ClaimId, ...]
    recalled_units: Mapping[DepartmentId, int]
    spared: tuple[ClaimId, ...]
    recallable: Mapping[tuple[DepartmentId, PoolId], int]


def what_if(snapshot: Snapshot, changed: Snapshot) -> Difference:
    """Plan both snapshots and compare the plans."""
    return compare(snapshot, decide(snapshot), changed, decide(changed))


def compare(snapshot: Snapshot, before: Plan, changed: Snapshot, after: Plan) -> Difference:
    """The difference between the plan `before` and the plan `after`, which is of the changed snapshot."""
    old = {decision.claim: decision for decision in before.decisions}
    new = {decision.claim: decision for decision in after.decisions}
    victims_before, victims_after = _victims(before), _victims(after)
    units: Counter[DepartmentId] = Counter()
    for claim in changed.claims:
        if claim.id in victims_after - victims_before:
            units[claim.department] += claim.units
    changes = (Change(claim, old.get(claim), new.get(claim)) for claim in sorted({*old, *new}))
    return Difference(
        before=before,
        after=after,
        changes=tuple(change for change in changes if change.before != change.after),
        recalled=tuple(sorted(victims_after - victims_before)),
        recalled_units=dict(sorted(units.items())),
        spared=tuple(sorted(victims_before - victims_after)),
        recallable=_recallable(snapshot, changed),
    )


def _victims(plan: Plan) -> set[ClaimId]:
    return {victim for decision in plan.decisions for victim in decision.victims}


def _recallable(snapshot: Snapshot, changed: Snapshot) -> dict[tuple[DepartmentId, PoolId], int]:
    borrowed: Counter[tuple[DepartmentId, PoolId]] = Counter()
    for side, sign in ((snapshot, -1), (changed, 1)):
        for pool in side.pools:
            for loan in loans_of(side, pool.id):
                borrowed[loan.borrower, pool.id] += sign * loan.units
    return {key: units for key, units in sorted(borrowed.items()) if units}


# One request -----------------------------------------------------------------------------------------------------------


class Headline(StrEnum):
    """The five possible verdicts."""

    STARTS_OWN = "starts_own"
    STARTS_BORROWING = "starts_borrowing"
    STARTS_BY = "starts_by"
    WAITS = "waits"
    CANNOT = "cannot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Decision):
    """The answer to one request that is not submitted yet, with further numbers for its sentences.
    `in_use` is what its department uses without it, `in_use_after` with it; `notice` and `grace` are what it would be promised.
    `returning` has the units that each department gives back if the start waits for others.
    """

    headline: Headline
    department: DepartmentId
    asked: int
    guaranteed: int
    in_use: int
    in_use_after: int
    notice: int
    grace: int
    returning: Mapping[DepartmentId, int]


def verdict(snapshot: Snapshot, claim: Claim) -> Verdict:
    """What `decide` would answer if this pending claim were submitted now. Raises ValueError if the claim's id is taken or it
    is not pending."""
    if claim.state is not ClaimState.PENDING:
        raise ValueError(f"{claim.id} is {claim.state}, not pending")
    plan = decide(with_claim(snapshot, claim))
    decision = next(decision for decision in plan.decisions if decision.claim == claim.id)
    pool = snapshot.pool(claim.pool)
    account = usage_of(snapshot, claim.pool)[claim.department]
    holding = snapshot.claims_of(claim.pool, ClaimState.HOLDING)
    called_back = standing_of(holding, snapshot.now, snapshot.departments).left.get(claim.department, 0)
    returning: Counter[DepartmentId] = Counter()
    for leaver in snapshot.claims:
        if leaver.id in decision.waiting_on:
            returning[leaver.department] += leaver.units
    return Verdict(
        **{f.name: getattr(decision, f.name) for f in fields(decision)},
        headline=headline_of(decision),
        department=claim.department,
        asked=claim.units,
        guaranteed=account.guaranteed,
        in_use=account.usage,
        in_use_after=account.usage + claim.units - (0 if claim.is_recall else min(claim.units, called_back)),
        notice=notice_of(claim, pool, snapshot.settings),
        grace=grace_of(claim, pool, snapshot.settings),
        returning=dict(sorted(returning.items())),
    )


def headline_of(decision: Decision) -> Headline:
    return {
        DecisionKind.ADMIT: Headline.STARTS_BORROWING if decision.borrowed else Headline.STARTS_OWN,
        DecisionKind.RECLAIM: Headline.STARTS_BY,
        DecisionKind.WAIT: Headline.WAITS,
        DecisionKind.IMPOSSIBLE: Headline.CANNOT,
    }[decision.decision]


# Other victims ---------------------------------------------------------------------------------------------------------


class Criterion(StrEnum):
    """The criteria for choosing victims, in order. Of the first two, OWN applies to a claim inside its guarantee, else OTHERS."""

    OWN = "own"
    OTHERS = "others"
    SHARES = "shares"
    BELOW_GUARANTEE = "below_guarantee"
    PRIORITY = "priority"
    LOST_WORK = "lost_work"
    COUNT = "count"
    UNITS = "units"
    ORDER = "order"


@dataclass(frozen=True, slots=True)
class Alternative:
    """The answer if the `spared` claims could not be preempted.
    `worse_in` is the first criterion in which the other victims cost more, by the snapshot alone, with both numbers (units,
    priorities, unit-seconds or claims; None if the criterion has no number). It is None if there are no other victims, or if
    they cost no more: then other answers of the pass were in the way.
    """

    spared: tuple[ClaimId, ...]
    answer: Decision
    worse_in: Criterion | None = None
    chosen: int | None = None
    instead: int | None = None


def alternatives(
    snapshot: Snapshot, asker: ClaimId, victims: Collection[ClaimId], most: int
) -> tuple[Alternative, ...]:
    """For each of the `most` dearest `victims` of the asker, the answer if it could not be preempted; victims that the same
    others would replace are grouped. Each costs a pass. Raises ValueError if a claim is not in the snapshot."""
    claims = {claim.id: claim for claim in snapshot.claims}
    if unknown := {asker, *victims} - claims.keys():
        raise ValueError(f"no claim {min(unknown)} in this snapshot")
    state = initial_state(snapshot, snapshot.pool(claims[asker].pool), *rooms_of(snapshot))
    asking = state.claims[asker]
    if asker in state.earmarks:  # what it has reserved must not be counted twice
        state.give_up(asking)
    preemptor, chosen = preemptor_of(state, asking), tuple(claims[victim] for victim in sorted(victims))
    dearest = sorted(chosen, key=lambda victim: cost(preemptor, (victim,)), reverse=True)[:most]
    found: dict[tuple[ClaimId, ...], Alternative] = {}
    for spared in dearest:
        answer = _answer_without(snapshot, asker, spared)
        if answer.victims in found:
            known = found[answer.victims]
            found[answer.victims] = replace(known, spared=tuple(sorted((*known.spared, spared.id))))
            continue
        found[answer.victims] = Alternative((spared.id,), answer)
        others = [state.claims[victim] for victim in answer.victims]
        if others:
            found[answer.victims] = _compared(
                found[answer.victims], preemptor, cost(preemptor, chosen), cost(preemptor, others)
            )
    state.close()
    return tuple(found.values())


def _answer_without(snapshot: Snapshot, asker: ClaimId, spared: Claim) -> Decision:
    """The asker's answer if the spared claim could not be preempted."""
    claims = (replace(claim, preemptible=False) if claim is spared else claim for claim in snapshot.claims)
    plan = decide(replace(snapshot, claims=tuple(claims)))
    return next(decision for decision in plan.decisions if decision.claim == asker)


def _compared(alternative: Alternative, preemptor: Preemptor, spent: Cost, other: Cost) -> Alternative:
    """The alternative with the first criterion in which the other victims differ, if they cost more."""
    if other <= spent:
        return alternative
    criteria = (Criterion.OWN if preemptor.inside else Criterion.OTHERS, *tuple(Criterion)[2:])
    compared = zip(criteria, spent, other, strict=True)
    criterion, chosen, instead = next((name, mine, its) for name, mine, its in compared if mine != its)
    if isinstance(chosen, int) and isinstance(instead, int):
        return replace(alternative, worse_in=criterion, chosen=chosen, instead=instead)
    return replace(alternative, worse_in=criterion)

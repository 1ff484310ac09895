"""Properties of the plan of every snapshot (docs/quota-rules-reference.md, "Invariants")."""

import copy
import random

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.placement import rooms_of
from quotas.engine.planning_pass import decide
from quotas.engine.preemption import choose
from quotas.engine.reservations import initial_state
from quotas.engine.snapshot_json import one_level, parse_snapshot, snapshot_to_json
from quotas.engine.types import ClaimState, DecisionKind, Plan, Snapshot
from tests.engine import invariants
from tests.engine.builders import carried_out
from tests.engine.effort import examples, patient
from tests.engine.strategies import balanced, snapshots

WITHOUT = snapshots() | snapshots(nested=True) | snapshots(placed=True) | snapshots(placed=True, nested=True)
ANY = WITHOUT | balanced(WITHOUT)
pytestmark = patient
many = settings(max_examples=examples(50, 3000), deadline=None)


@many
@given(ANY)
def test_every_pending_claim_gets_one_answer_within_capacity_and_quota(snapshot: Snapshot) -> None:
    assert invariants.of_plan(snapshot, decide(snapshot)) == ()


@many
@given(ANY, st.randoms(use_true_random=False))
def test_plan_does_not_change_the_snapshot_or_depend_on_the_order_of_its_parts(
    snapshot: Snapshot, chance: random.Random
) -> None:
    before = copy.deepcopy(snapshot)
    plan = decide(snapshot)
    assert snapshot == before
    claims, departments = list(snapshot.claims), list(snapshot.departments)
    chance.shuffle(claims)
    chance.shuffle(departments)
    shuffled = Snapshot("case", 0, snapshot.pools, tuple(departments), tuple(claims), snapshot.settings)
    assert decide(shuffled) == plan
    assert parse_snapshot(snapshot_to_json(snapshot)) == snapshot
    written = orjson.dumps(snapshot, default=one_level, option=orjson.OPT_PASSTHROUGH_DATACLASS)  # as passes are stored
    assert written == orjson.dumps(snapshot_to_json(snapshot))


def changes_of(plan: Plan) -> list[tuple[str, ...]]:
    """What a plan changes when it is carried out: starts, preemptions and withdrawn notices."""
    changes = [(d.claim, *d.victims) for d in plan.decisions if d.decision is DecisionKind.ADMIT or d.victims]
    return changes + [(claim,) for claim in plan.withdrawn]


def reserved(plan: Plan) -> set[str]:
    return {decision.claim for decision in plan.decisions if decision.decision is DecisionKind.RECLAIM}


@many
@given(ANY)
def test_a_plan_carried_out_leaves_nothing_to_decide(snapshot: Snapshot) -> None:
    """Invariant 6 with its exception: no claim is preempted in the pass that starts it, so a claim inside its guarantee whose
    turn came after a borrower started may preempt that borrower in the next pass."""
    plan = decide(snapshot)
    started = {d.claim for d in plan.decisions if d.decision is DecisionKind.ADMIT}
    again = decide(carried_out(snapshot, plan))
    if any(started & {*decision.victims} for decision in again.decisions):
        return
    assert changes_of(again) == []
    assert reserved(again) == reserved(plan)


@many
@given(ANY)
def test_no_claim_inside_its_guarantee_waits_while_victims_could_make_it_fit(snapshot: Snapshot) -> None:
    """Invariant 4, except for what other claims inside their guarantees hold that lack a place: free units, units that become
    free, and their part of a guarantee."""
    plan = decide(snapshot)
    after = carried_out(snapshot, plan)
    state = initial_state(after, after.pools[0], *rooms_of(after))
    started = {d.claim for d in plan.decisions if d.decision is DecisionKind.ADMIT}
    waiting = {d.claim for d in plan.decisions if d.decision is DecisionKind.WAIT}
    inside = [c for c in after.claims if c.id in waiting and c.state is ClaimState.PENDING and state.inside(c)]
    choices = {claim.id: choose(state, claim) for claim in inside}
    holders = [claim for claim in inside if choices[claim.id] is None]
    for claim in inside:
        if (chosen := choices[claim.id]) is not None and not {victim.id for victim in chosen.victims} & started:
            assert holders

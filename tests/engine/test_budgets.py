"""Used-up budgets (rule 24): which claims they hold back, what still starts, and that pools with them come to rest
(docs/adr/0050)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine import explain
from quotas.engine.planning_pass import decide
from quotas.engine.reasons import OverBudget
from quotas.engine.snapshot_json import SnapshotError, parse_snapshot, snapshot_to_json
from quotas.engine.types import (
    Claim,
    ClaimState,
    DecisionKind,
    Department,
    DepartmentId,
    Pool,
    PoolId,
    Reservation,
    Snapshot,
    SpentBudget,
)
from quotas.engine.units import spent_budget
from tests.engine import invariants
from tests.engine.builders import (
    POOL,
    a_department,
    a_pool,
    a_snapshot,
    answers,
    carried_out,
    holding,
    leaving,
    nodes,
    pending,
)
from tests.engine.effort import examples, patient
from tests.engine.forward import played
from tests.engine.strategies import snapshots
from tests.engine.test_properties import changes_of

LATER = 86_400


def spent(department: str = "a", **more: object) -> SpentBudget:
    values = {"limit": 100, "used": 103, "resets_at": LATER, **more}
    return SpentBudget(DepartmentId(department), **values)  # type: ignore[arg-type]


def over_budget(department: str = "a", **more: object) -> tuple[OverBudget]:
    return (OverBudget(department, 100, 103, LATER, **more),)  # type: ignore[arg-type]


# Case by case -------------------------------------------------------------------------------------------------------


def test_with_a_used_up_budget_nothing_new_starts() -> None:
    vision = a_department("a", 4, budgets=(spent(),))
    decided = answers(
        a_snapshot(a_pool(8), [vision, a_department("b", 4)], [pending("w", "a", 1), pending("x", "b", 1)])
    )
    assert (decided["w"].decision, decided["w"].reasons) == (DecisionKind.WAIT, over_budget())
    assert decided["x"].decision is DecisionKind.ADMIT


def test_claim_over_budget_preempts_nothing_and_holds_nothing() -> None:
    """Without the budget, `w` is inside its guarantee: it would reclaim from the borrower and hold what is free until then."""
    vision = a_department("a", 4, budgets=(spent(),))
    claims = [holding("lent", "b", 3), pending("w", "a", 4), pending("x", "b", 1)]
    decided = answers(a_snapshot(a_pool(4), [vision, a_department("b")], claims))
    assert (decided["w"].victims, decided["w"].reasons) == ((), over_budget())
    assert decided["x"].decision is DecisionKind.ADMIT
    without = answers(a_snapshot(a_pool(4), [a_department("a", 4), a_department("b")], claims))
    assert without["w"].victims == ("lent",)


def test_borrowing_only_budget_lets_work_inside_the_guarantee_start() -> None:
    vision = a_department("a", 4, budgets=(spent(borrowing_only=True),))
    claims = [holding("h", "a", 2), pending("inside", "a", 2, submitted_at=-20), pending("beyond", "a", 1)]
    decided = answers(a_snapshot(a_pool(8), [vision, a_department("b", 4)], claims))
    assert (decided["inside"].decision, decided["inside"].borrowed) == (DecisionKind.ADMIT, 0)
    assert decided["beyond"].reasons == over_budget(borrowing_only=True)


def test_borrowing_only_budget_lets_a_claim_inside_the_guarantee_reclaim() -> None:
    vision = a_department("a", 4, budgets=(spent(borrowing_only=True),))
    decided = answers(a_snapshot(a_pool(4), [vision, a_department("b")], [holding("l", "b", 4), pending("w", "a", 4)]))
    assert (decided["w"].decision, decided["w"].victims, decided["w"].borrowed) == (DecisionKind.RECLAIM, ("l",), 0)


def test_claim_that_needs_to_borrow_waits_for_the_reset_and_is_not_impossible() -> None:
    vision = a_department("a", 2, budgets=(spent(borrowing_only=True),))
    decided = answers(a_snapshot(a_pool(8), [vision], [pending("w", "a", 5)]))
    assert (decided["w"].decision, decided["w"].reasons) == (DecisionKind.WAIT, over_budget(borrowing_only=True))


def test_a_claim_above_the_ceiling_is_impossible_whatever_the_budget() -> None:
    vision = a_department("a", 2, 0, budgets=(spent(),))
    assert answers(a_snapshot(a_pool(8), [vision], [pending("w", "a", 5)]))["w"].decision is DecisionKind.IMPOSSIBLE


def test_personal_budget_holds_back_that_person_only() -> None:
    vision = a_department("a", 4, budgets=(spent(user="7"),))
    claims = [pending("hers", "a", 1, user="7"), pending("his", "a", 1, user="8")]
    decided = answers(a_snapshot(a_pool(4), [vision], claims))
    assert decided["hers"].reasons == over_budget(personal=True)
    assert decided["his"].decision is DecisionKind.ADMIT


def test_budget_for_one_pool_holds_back_claims_of_that_pool_only() -> None:
    vision = Department(DepartmentId("a"), budgets=(spent(pool="gpu"),))
    pools = [a_pool(4), a_pool(4, id="other")]
    decided = answers(a_snapshot(pools, [vision], [pending("here", "a", 1), pending("there", "a", 1, pool="other")]))
    assert decided["here"].reasons == over_budget()
    assert decided["there"].decision is DecisionKind.ADMIT


def test_used_up_budget_does_not_affect_running_and_leaving_work() -> None:
    vision = a_department("a", 2, budgets=(spent(),))
    claims = [holding("h", "a", 2), leaving("l", "a", 1, preempted_for="gone")]
    plan = decide(a_snapshot(a_pool(4), [vision], claims))
    assert (plan.decisions, plan.withdrawn) == ((), ("l",))


def test_a_reservation_ends_when_the_budget_is_used_up() -> None:
    """Its victim keeps running."""
    claims = [
        leaving("l", "b", 2, preempted_for="w", leave_by=50),
        pending("w", "a", 2, reserved=Reservation(2)),
    ]
    snapshot = a_snapshot(a_pool(2), [a_department("a", 2), a_department("b")], claims)
    assert answers(snapshot)["w"].decision is DecisionKind.RECLAIM
    plan = decide(replace(snapshot, departments=(a_department("a", 2, budgets=(spent(),)), a_department("b"))))
    assert (plan.decisions[0].decision, plan.decisions[0].reasons) == (DecisionKind.WAIT, over_budget())
    assert plan.withdrawn == ("l",)


def test_reservation_that_would_borrow_ends_under_a_borrowing_only_budget() -> None:
    claims = [leaving("l", "b", 2, leave_by=50), pending("w", "a", 2, reserved=Reservation(2))]
    vision = a_department("a", 0, budgets=(spent(borrowing_only=True),))
    decided = answers(a_snapshot(a_pool(2), [vision, a_department("b")], claims))
    assert decided["w"].reasons == over_budget(borrowing_only=True)


def test_reason_names_the_strictest_budget_and_of_those_the_one_that_resets_last() -> None:
    budgets = (spent(borrowing_only=True, resets_at=9 * LATER), spent(resets_at=LATER), spent("x", resets_at=2 * LATER))
    department, claim = a_department("a", 4, budgets=budgets), pending("w", "a", 1)
    assert spent_budget(department, claim) == budgets[2]
    assert spent_budget(replace(department, budgets=budgets[::-1]), claim) == budgets[2]


def test_recall_is_held_back_by_a_used_up_budget_unless_it_is_borrowing_only() -> None:
    recall = pending("r", "a", 2, pods=0)
    for budget, decision in ((spent(), DecisionKind.WAIT), (spent(borrowing_only=True), DecisionKind.ADMIT)):
        department = a_department("a", 2, budgets=(budget,))
        assert answers(a_snapshot(a_pool(2), [department], [recall]))["r"].decision is decision


def test_over_budget_sentence_names_the_department_the_hours_and_the_reset() -> None:
    (reason,) = over_budget()
    assert explain.sentence(reason) == (
        "The budget of a is used up (103 of 100 GPU-hours): nothing new starts until 86400."
    )
    for kind in ({"personal": True}, {"borrowing_only": True}, {"personal": True, "borrowing_only": True}):
        assert "103 of 100 GPU-hours" in explain.sentence(over_budget(**kind)[0])


@pytest.mark.parametrize(
    ("budget", "key"),
    [
        ({"department": "zoo", "limit": 1, "used": 1, "resets_at": 9}, "departments[0].budgets[0].department"),
        ({"department": "a", "limit": 1, "used": 1, "resets_at": 9, "pool": "zoo"}, "departments[0].budgets[0].pool"),
        ({"department": "a", "limit": -1, "used": 1, "resets_at": 9}, "departments[0].budgets[0].limit"),
        ({"department": "a", "limit": 1, "used": 1}, "departments[0].budgets[0].resets_at"),
    ],
)
def test_unreadable_budget_is_rejected_with_its_key(budget: dict[str, object], key: str) -> None:
    data = snapshot_to_json(a_snapshot(a_pool(1), [a_department("a", 1)], []))
    data["departments"][0]["budgets"] = [budget]
    with pytest.raises(SnapshotError) as error:
        parse_snapshot(data)
    assert error.value.key == key


# Properties ---------------------------------------------------------------------------------------------------------

USERS = ["ann", "ben", ""]
budgets = st.builds(
    SpentBudget,
    department=st.sampled_from(["a", "b", "x"]).map(DepartmentId),
    limit=st.integers(0, 100),
    used=st.integers(100, 200),
    resets_at=st.integers(1, 10_000),
    user=st.sampled_from([None, None, *USERS[:2]]),
    pool=st.sampled_from([None, PoolId(POOL)]),
    borrowing_only=st.booleans(),
)


@st.composite
def with_budgets(draw: st.DrawFn) -> Snapshot:
    kinds = snapshots() | snapshots(nested=True) | snapshots(placed=True) | snapshots(placed=True, nested=True)
    snapshot: Snapshot = draw(kinds)
    known = {department.id: department for department in snapshot.departments}
    applicable = [each for each in draw(st.lists(budgets, min_size=1, max_size=3)) if each.department in known]
    departments = tuple(
        replace(each, budgets=tuple(b for b in applicable if b.department in _upwards(known, each)))
        for each in known.values()
    )
    claims = tuple(replace(claim, user=draw(st.sampled_from(USERS))) for claim in snapshot.claims)
    return replace(snapshot, departments=departments, claims=claims)


def _upwards(known: dict[DepartmentId, Department], department: Department) -> set[DepartmentId]:
    above = {department.id}
    while department.parent is not None:
        department = known[department.parent]
        above.add(department.id)
    return above


def binding(snapshot: Snapshot) -> dict[str, SpentBudget]:
    """The budget that holds each pending claim back, if any."""
    departments = {department.id: department for department in snapshot.departments}
    binding_budgets = {
        claim.id: spent_budget(departments[claim.department], claim)
        for claim in snapshot.claims
        if claim.state is ClaimState.PENDING
    }
    return {id: budget for id, budget in binding_budgets.items() if budget is not None}


pytestmark = patient
many = settings(max_examples=examples(150, 5000), deadline=None)


@many
@given(with_budgets())
def test_claims_over_budget_neither_start_nor_reserve_nor_preempt(snapshot: Snapshot) -> None:
    plan, bound = decide(snapshot), binding(snapshot)
    assert invariants.of_plan(snapshot, plan) == ()
    for decision in plan.decisions:
        budget = bound.get(decision.claim)
        if budget is None or decision.decision is DecisionKind.IMPOSSIBLE:
            continue
        if not budget.borrowing_only:
            assert decision.decision is DecisionKind.WAIT
            assert (decision.victims, decision.waiting_on) == ((), ())
        if any(isinstance(reason, OverBudget) for reason in decision.reasons):
            assert (decision.decision, decision.victims, decision.waiting_on) == (DecisionKind.WAIT, (), ())
        assert decision.borrowed == 0


@many
@given(with_budgets())
def test_plan_with_budgets_leaves_nothing_to_decide_in_any_input_order(snapshot: Snapshot) -> None:
    plan = decide(snapshot)
    turned = tuple(replace(each, budgets=each.budgets[::-1]) for each in snapshot.departments[::-1])
    assert decide(replace(snapshot, departments=turned, claims=snapshot.claims[::-1])) == plan
    assert parse_snapshot(snapshot_to_json(snapshot)) == snapshot
    again = decide(carried_out(snapshot, plan))
    started = {d.claim for d in plan.decisions if d.decision is DecisionKind.ADMIT}
    if not any(started & {*decision.victims} for decision in again.decisions):
        assert changes_of(again) == []


@settings(max_examples=examples(60, 3000), deadline=None)
@given(with_budgets())
def test_pool_with_budgets_comes_to_rest_when_played_forward(snapshot: Snapshot) -> None:
    rest = tuple(replace(each, budgets=()) for each in snapshot.departments)
    most = 60
    if played(replace(snapshot, departments=rest), most).settled:
        assert played(snapshot, most).settled


@many
@given(with_budgets())
def test_claims_within_budget_are_planned_as_if_held_back_claims_were_not_submitted(
    snapshot: Snapshot,
) -> None:
    """A claim that no budget holds back gets the answer that it would get if those held back had not been submitted."""
    bound = binding(snapshot)
    blocked = {id for id, budget in bound.items() if not budget.borrowing_only}
    if len(blocked) != len(bound):
        return  # a claim that may start inside its guarantee competes
    alone = replace(snapshot, claims=tuple(claim for claim in snapshot.claims if claim.id not in blocked))
    answered = {d.claim: d for d in decide(snapshot).decisions if d.claim not in blocked}
    for decision in decide(alone).decisions:
        other = answered[decision.claim]
        assert (other.decision, other.placement, other.victims) == (
            decision.decision,
            decision.placement,
            decision.victims,
        )


@many
@given(with_budgets())
def test_plan_after_the_reset_is_as_without_budgets(snapshot: Snapshot) -> None:
    """In the next period the snapshot has no used-up budget, and nothing is left of the passes before."""
    held_back = carried_out(snapshot, decide(snapshot))
    free = replace(held_back, departments=tuple(replace(each, budgets=()) for each in held_back.departments))
    assert invariants.of_plan(free, decide(free)) == ()
    assert not any(isinstance(reason, OverBudget) for d in decide(free).decisions for reason in d.reasons)


def test_claims_held_back_by_a_budget_start_in_the_next_period() -> None:
    claims: list[Claim] = [pending("w", "a", 2), pending("x", "a", 2, user="7")]
    pool: Pool = a_pool(nodes=nodes(4))
    over = a_department("a", 4, budgets=(spent(),))
    waiting = carried_out(a_snapshot(pool, [over], claims), decide(a_snapshot(pool, [over], claims)))
    assert {claim.state for claim in waiting.claims} == {ClaimState.PENDING}
    turned = replace(waiting, departments=(a_department("a", 4),), now=LATER)
    assert {d.decision for d in decide(turned).decisions} == {DecisionKind.ADMIT}

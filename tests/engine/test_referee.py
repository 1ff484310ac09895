"""Decisions that were wrong once: found by comparing the engine with an independent implementation of the rules on some
600,000 generated snapshots."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from quotas.engine.placement import rooms_of
from quotas.engine.planning_pass import PlanningPass, decide
from quotas.engine.reservations import initial_state
from quotas.engine.types import (
    BorrowPreempt,
    Card,
    Claim,
    ClaimId,
    Department,
    Node,
    Placed,
    Plan,
    Reservation,
    Snapshot,
)
from tests.engine import invariants
from tests.engine.builders import (
    a_department,
    a_policy,
    a_pool,
    a_snapshot,
    answers,
    carried_out,
    holding,
    leaving,
    pending,
)
from tests.engine.test_properties import changes_of


def victims_of_mine(
    departments: list[Department], claims: list[Claim], capacity: int, **settings: Any
) -> tuple[str, ...]:
    return answers(a_snapshot(a_pool(capacity), departments, claims, **settings))["mine"].victims


def plan_and_next_plan(snapshot: Snapshot) -> tuple[Plan, Plan]:
    plan = decide(snapshot)
    assert invariants.of_plan(snapshot, plan) == ()
    return plan, decide(carried_out(snapshot, plan))


@pytest.mark.parametrize(("near", "far"), [("w0", "w1"), ("w1", "w0")])
def test_nearest_victims_in_a_tree_come_first_as_they_permit_further_ones(near: str, far: str) -> None:
    """The group is above its guarantee until the sibling's work is preempted, and only then may it reclaim from the guest.
    The answer does not depend on ids."""
    departments = [
        a_department("group"),
        a_department("mine", 2, parent="group"),
        a_department("sibling", parent="group"),
    ]
    claims = [holding(near, "sibling", 1), holding(far, "guest", 1), pending("mine", "mine", 2)]
    assert victims_of_mine([*departments, a_department("guest")], claims, 2) == ("w0", "w1")


def test_claims_in_a_tree_that_are_not_permitted_do_not_displace_cheaper_victims() -> None:
    departments = [a_department("a", 1), a_department("b"), a_department("c", 2), a_department("c1", parent="c")]
    claims = [
        holding("dear", "b", 1, priority=1, started_at=-1),
        holding("cheap", "b", 2, started_at=-9),
        holding("not-his", "c1", 2, started_at=-1),
        pending("mine", "a", 1),
    ]
    assert victims_of_mine(departments, claims, 5) == ("cheap",)


def test_claim_in_a_tree_that_borrows_further_up_first_leaves_no_share_below_its_own() -> None:
    departments = [
        a_department("guest"), a_department("group"), a_department("sibling", parent="group"),
        a_department("a", 5, parent="group"),
    ]  # fmt: skip
    claims = [
        holding("own", "a", 3),
        holding("near", "sibling", 1),
        holding("far", "guest", 2),
        pending("mine", "a", 2),
    ]
    assert victims_of_mine(departments, claims, 6, fair_sharing=True) == ("far", "near")


def test_own_victim_that_gives_the_right_to_reclaim_is_not_put_back() -> None:
    """Without it the department would be above its guarantee and could not reclaim from b."""
    claims = [holding("o1", "a", 1), holding("o2", "a", 1), holding("x", "b", 4), pending("mine", "a", 6, priority=1)]
    snapshot = a_snapshot(a_pool(8), [a_department("a", 7), a_department("b")], claims)
    assert answers(snapshot)["mine"].victims == ("o1", "x")
    _, again = plan_and_next_plan(snapshot)
    assert (changes_of(again), again.withdrawn) == ([], ())


def taken_by_later(now: int, *claims: Claim) -> tuple[int, int]:
    """What claims of department a that come after `mine` have taken since its victims got notice."""
    snapshot = a_snapshot(a_pool(8), [a_department("a", 6), a_department("b")], claims, now=now)
    state = initial_state(snapshot, snapshot.pools[0], *rooms_of(snapshot))
    waiting = state.claims[ClaimId("mine")]
    return PlanningPass(state)._taken_by_later(waiting, state.departures.of(waiting))


def test_claims_started_after_the_notice_do_not_take_the_right_to_the_victims() -> None:
    """What started before the notice does take the right: otherwise a department above its guarantee would reclaim. What the
    department started at the moment of the notice, in the same pass, does not."""
    mine = pending("mine", "a", 4, priority=1, submitted_at=5_000, reserved=Reservation(4))
    x = leaving("x", "b", 4, leave_by=10_500, preempted_for="mine", notice=600)  # got notice at 9,900
    for started, expected in ((9_899, 0), (9_900, 4), (9_990, 4)):
        since = holding("since", "a", 4, started_at=started, submitted_at=8_000)
        assert taken_by_later(10_000, since, x, mine) == (expected, 0)
    undated = leaving("x", "b", 4, preempted_for="mine", leave_by=None)
    assert [taken_by_later(10_000, replace(since, started_at=at), undated, mine)[0] for at in (9_999, 10_000)] == [0, 4]
    assert taken_by_later(10_000, since, mine) == (0, 0), "no claim got notice in an earlier pass"


def test_claim_preempts_own_work_to_reclaim_what_borrow_preempt_does_not_permit() -> None:
    policy = a_policy(borrow_preempt=BorrowPreempt(0))
    claims = [holding("theirs", "b", 2, priority=1), holding("own", "a", 1), pending("mine", "a", 2, priority=1)]
    assert victims_of_mine([a_department("a", 2, policy=policy), a_department("b")], claims, 3) == ("own", "theirs")


def test_units_of_a_recall_that_a_reservation_will_draw_are_not_drawn_by_others() -> None:
    claims = [
        holding("back", "d", 1, pods=0, started_at=-50), leaving("l", "e", 1, leave_by=10),
        pending("big", "d", 3, submitted_at=-2), pending("small", "d", 1, submitted_at=-1),
    ]  # fmt: skip
    snapshot = a_snapshot(a_pool(3), [a_department("d", 1), a_department("e")], claims)
    assert {id: str(d.decision) for id, d in answers(snapshot).items()} == {"big": "reclaim", "small": "wait"}
    _, again = plan_and_next_plan(snapshot)
    assert {d.claim: str(d.decision) for d in again.decisions} == {"big": "reclaim", "small": "wait"}
    without_leavers = carried_out(snapshot, decide(snapshot))
    without_leavers = replace(
        without_leavers, claims=tuple(claim for claim in without_leavers.claims if claim.id != "l")
    )
    assert answers(without_leavers)["big"].decision == "admit"


def test_recall_can_be_drawn_from_again_when_a_reservation_is_given_up() -> None:
    claims = [
        holding("back", "d", 1, pods=0, started_at=-50), leaving("l", "e", 1, leave_by=10, preempted_for="big"),
        pending("big", "d", 3, submitted_at=-2, reserved=Reservation(3)), pending("small", "d", 1, submitted_at=-1),
    ]  # fmt: skip
    departments = [a_department("d", 1, user_caps={"gpu": 2}), a_department("e")]
    decided = answers(a_snapshot(a_pool(3), departments, claims))
    assert {id: str(d.decision) for id, d in decided.items()} == {"big": "wait", "small": "admit"}


def test_reservation_is_not_lost_to_a_backoff_when_others_of_its_department_start() -> None:
    claims = [
        leaving("l", "e", 3, leave_by=10), pending("first", "d", 2, submitted_at=-2, backoff_until=50),
        pending("second", "d", 1, submitted_at=-1),
    ]  # fmt: skip
    _, again = plan_and_next_plan(a_snapshot(a_pool(4), [a_department("e"), a_department("d", 2)], claims))
    assert [(d.claim, str(d.decision)) for d in again.decisions] == [("first", "reclaim")]


def test_notice_is_not_withdrawn_if_the_user_would_exceed_the_cap() -> None:
    claims = [leaving("a", "d", 4, preempted_for="w"), pending("w", "d", 1)]
    plan = decide(a_snapshot(a_pool(5), [a_department("d", user_caps={"gpu": 4})], claims))
    assert (str(plan.decisions[0].decision), plan.withdrawn) == ("admit", ())


def test_gang_inside_its_guarantee_finds_the_victim_that_is_enough() -> None:
    nodes = Node("n0", (Card(16), Card(16))), Node("n1", (Card(16),))

    def on(id: str, department: str, units: int, *places: tuple[str, int], **more: Any) -> Claim:
        placed = tuple(Placed(pod, node, (card,)) for pod, (node, card) in enumerate(places))
        return holding(id, department, units, pods=len(places), placement=placed, **more)

    claims = [
        on("w00", "d1", 6, ("n0", 0)), on("w02", "d2", 3, ("n0", 0)), on("w05", "d1", 4, ("n0", 1), ("n1", 0), priority=1),
        on("w06", "d2", 2, ("n0", 0), ("n0", 0)), on("w07", "d1", 2, ("n1", 0)), on("w08", "d1", 4, ("n1", 0)),
        pending("mine", "d0", 8, pods=3),
    ]  # fmt: skip
    departments = [a_department("d0", 24), a_department("d1", 16), a_department("d2", 7)]
    decision = answers(a_snapshot(a_pool(unit="GiB", nodes=nodes), departments, claims))["mine"]
    assert decision.decision == "reclaim"


def test_placement_does_not_depend_on_the_order_of_nodes() -> None:
    for nodes in (("n1", "n2", "n10"), ("n10", "n2", "n1")):
        pool = a_pool(nodes=tuple(Node(name, (Card(),)) for name in nodes))
        decision = answers(a_snapshot(pool, [a_department("d", 2)], [pending("w", "d", 1)]))["w"]
        assert decision.placement == (Placed(0, "n1", (0,)),)


def test_largest_request_keeps_the_requested_shape_in_a_pool_without_nodes() -> None:
    """No more pods, and no more units in each: two pods of five, not one of eleven."""
    decision = answers(a_snapshot(a_pool(11), [a_department("d", 11)], [pending("w", "d", 6, pods=4)]))["w"]
    assert (str(decision.decision), decision.largest) == ("impossible", 10)


def test_fractional_and_zero_weights_are_compared_exactly() -> None:
    departments = [a_department("a", weight=Fraction(1, 3)), a_department("b", weight=0), a_department("rest", 8)]
    claims = [holding("a1", "a", 2), holding("b1", "b", 1), pending("mine", "rest", 6)]
    assert victims_of_mine(departments, claims, 8, fair_sharing=True) == ("b1",)


def test_units_held_for_a_waiting_claim_are_idle_and_lent_by_its_department() -> None:
    """No unit of the pool is unassigned: the borrower's card, which it returns in time, is one of d1's two."""
    pool = a_pool(nodes=(Node("n0", (Card(), Card())),))
    claims = [
        holding("runs", "d0", 1, max_runtime=900, placement=(Placed(0, "n0", (0,)),)),
        pending("mine", "d1", 2),
        pending("first", "d0", 1, max_runtime=200),
    ]
    departments = [a_department("d0"), a_department("d1", 2, policy=a_policy(reclaim="never"))]
    decided = answers(a_snapshot(pool, departments, claims))
    assert [str(decided[id].decision) for id in ("first", "mine")] == ["admit", "wait"]
    assert decided["first"].from_ == {"d1": 1}

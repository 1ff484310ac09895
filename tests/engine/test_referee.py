"""Decisions that an independent reading of the rules page, tried on some 600,000 made-up snapshots, found to be otherwise."""

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
from tests.engine.test_properties import news


def told(departments: list[Department], claims: list[Claim], capacity: int, **settings: Any) -> tuple[str, ...]:
    return answers(a_snapshot(a_pool(capacity), departments, claims, **settings))["mine"].victims


def twice(snapshot: Snapshot) -> tuple[Plan, Plan]:
    plan = decide(snapshot)
    assert invariants.of_plan(snapshot, plan) == ()
    return plan, decide(carried_out(snapshot, plan))


@pytest.mark.parametrize(("near", "far"), [("w0", "w1"), ("w1", "w0")])
def test_in_a_tree_those_nearest_go_first_since_they_let_the_preemptor_take_more(near: str, far: str) -> None:
    """Its group stands above what it is promised until the sibling's work goes: the answer does not hang on who is named how."""
    departments = [
        a_department("group"),
        a_department("mine", 2, parent="group"),
        a_department("sibling", parent="group"),
    ]
    claims = [holding(near, "sibling", 1), holding(far, "guest", 1), pending("mine", "mine", 2)]
    assert told([*departments, a_department("guest")], claims, 2) == ("w0", "w1")


def test_in_a_tree_claims_out_of_reach_do_not_crowd_out_cheaper_ones() -> None:
    departments = [a_department("a", 1), a_department("b"), a_department("c", 2), a_department("c1", parent="c")]
    claims = [
        holding("dear", "b", 1, priority=1, started_at=-1),
        holding("cheap", "b", 2, started_at=-9),
        holding("not-his", "c1", 2, started_at=-1),
        pending("mine", "a", 1),
    ]
    assert told(departments, claims, 5) == ("cheap",)


def test_in_a_tree_who_borrows_further_up_is_first_asked_to_leave_nobody_below_it() -> None:
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
    assert told(departments, claims, 6, fair_sharing=True) == ("far", "near")


def test_own_work_that_gives_the_right_is_not_put_back_because_other_work_of_its_comes_later() -> None:
    """Without it the department would stand above its guarantee, and the stranger's work could not be called back."""
    claims = [holding("o1", "a", 1), holding("o2", "a", 1), holding("x", "b", 4), pending("mine", "a", 6, priority=1)]
    snapshot = a_snapshot(a_pool(8), [a_department("a", 7), a_department("b")], claims)
    assert answers(snapshot)["mine"].victims == ("o1", "x")
    _, again = twice(snapshot)
    assert (news(again), again.withdrawn) == ([], ())


def behind(now: int, *claims: Claim) -> tuple[int, int]:
    """What counts as taken since by claims of a's department that come after the first that waits."""
    snapshot = a_snapshot(a_pool(8), [a_department("a", 6), a_department("b")], claims, now=now)
    state = initial_state(snapshot, snapshot.pools[0], *rooms_of(snapshot))
    waiting = state.claims[ClaimId("mine")]
    return PlanningPass(state)._behind(waiting, state.departures.of(waiting))


def test_what_started_since_does_not_take_the_right_to_those_told_before() -> None:
    """What was there when they were told does: they would be called back for who stands above its guarantee. Nor does what the
    department started at that very moment, in the same pass."""
    mine = pending("mine", "a", 4, priority=1, submitted_at=5_000, reserved=Reservation(4))
    x = leaving("x", "b", 4, leave_by=10_500, held_for="mine", notice=600)  # told at 9,900
    for started, expected in ((9_899, 0), (9_900, 4), (9_990, 4)):
        since = holding("since", "a", 4, started_at=started, submitted_at=8_000)
        assert behind(10_000, since, x, mine) == (expected, 0)
    unsaid = leaving("x", "b", 4, held_for="mine", leave_by=None)
    assert [behind(10_000, replace(since, started_at=at), unsaid, mine)[0] for at in (9_999, 10_000)] == [0, 4]
    assert behind(10_000, since, mine) == (0, 0), "nobody was told in an earlier pass"


def test_who_takes_as_a_borrower_is_bound_by_the_priority_it_may_take_also_once_they_are_told() -> None:
    policy = a_policy(borrow_preempt=BorrowPreempt(0))
    claims = [holding("theirs", "b", 2, priority=1), holding("own", "a", 1), pending("mine", "a", 2, priority=1)]
    assert told([a_department("a", 2, policy=policy), a_department("b")], claims, 3) == ("own", "theirs")


def test_what_a_reservation_will_draw_from_a_recall_nobody_else_draws() -> None:
    claims = [
        holding("back", "d", 1, pods=0, started_at=-50), leaving("l", "e", 1, leave_by=10),
        pending("big", "d", 3, submitted_at=-2), pending("small", "d", 1, submitted_at=-1),
    ]  # fmt: skip
    snapshot = a_snapshot(a_pool(3), [a_department("d", 1), a_department("e")], claims)
    assert {id: str(d.decision) for id, d in answers(snapshot).items()} == {"big": "reclaim", "small": "wait"}
    _, again = twice(snapshot)
    assert {d.claim: str(d.decision) for d in again.decisions} == {"big": "reclaim", "small": "wait"}
    gone = carried_out(snapshot, decide(snapshot))
    gone = replace(gone, claims=tuple(claim for claim in gone.claims if claim.id != "l"))
    assert answers(gone)["big"].decision == "admit"


def test_a_recall_is_drawn_from_again_when_a_reservation_is_given_up() -> None:
    claims = [
        holding("back", "d", 1, pods=0, started_at=-50), leaving("l", "e", 1, leave_by=10, held_for="big"),
        pending("big", "d", 3, submitted_at=-2, reserved=Reservation(3)), pending("small", "d", 1, submitted_at=-1),
    ]  # fmt: skip
    departments = [a_department("d", 1, user_caps={"gpu": 2}), a_department("e")]
    decided = answers(a_snapshot(a_pool(3), departments, claims))
    assert {id: str(d.decision) for id, d in decided.items()} == {"big": "wait", "small": "admit"}


def test_a_reservation_is_not_lost_to_a_back_off_when_others_of_its_department_start() -> None:
    claims = [
        leaving("l", "e", 3, leave_by=10), pending("first", "d", 2, submitted_at=-2, backoff_until=50),
        pending("second", "d", 1, submitted_at=-1),
    ]  # fmt: skip
    _, again = twice(a_snapshot(a_pool(4), [a_department("e"), a_department("d", 2)], claims))
    assert [(d.claim, str(d.decision)) for d in again.decisions] == [("first", "reclaim")]


def test_who_may_stay_stays_only_within_what_its_user_may_have() -> None:
    claims = [leaving("a", "d", 4, held_for="w"), pending("w", "d", 1)]
    plan = decide(a_snapshot(a_pool(5), [a_department("d", user_caps={"gpu": 4})], claims))
    assert (str(plan.decisions[0].decision), plan.withdrawn) == ("admit", ())


def test_a_gang_inside_its_guarantee_finds_the_one_whose_leaving_is_enough() -> None:
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


def test_the_order_of_nodes_does_not_matter() -> None:
    for nodes in (("n1", "n2", "n10"), ("n10", "n2", "n1")):
        pool = a_pool(nodes=tuple(Node(name, (Card(),)) for name in nodes))
        decision = answers(a_snapshot(pool, [a_department("d", 2)], [pending("w", "d", 1)]))["w"]
        assert decision.placement == (Placed(0, "n1", (0,)),)


def test_the_largest_request_has_the_shape_asked_for_where_units_are_only_counted() -> None:
    """No more pods, no more units in each: two of five, not eleven."""
    decision = answers(a_snapshot(a_pool(11), [a_department("d", 11)], [pending("w", "d", 6, pods=4)]))["w"]
    assert (str(decision.decision), decision.largest) == ("impossible", 10)


def test_weights_that_are_fractions_or_nothing_are_compared_exactly() -> None:
    departments = [a_department("a", weight=Fraction(1, 3)), a_department("b", weight=0), a_department("rest", 8)]
    claims = [holding("a1", "a", 2), holding("b1", "b", 1), pending("mine", "rest", 6)]
    assert told(departments, claims, 8, fair_sharing=True) == ("b1",)


def test_what_is_only_held_for_who_waits_is_idle_and_its_department_lends_it() -> None:
    """Nothing of the pool is unassigned: the borrower's card, which it gives back in time, is one of d1's two."""
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

"""Reservations that are looked at again once somebody else has started or reserved: nobody's right is counted twice."""

from quotas.engine.admission import decide
from quotas.engine.invariants import of_plan
from quotas.engine.types import Placed, Plan, Reservation, Snapshot
from tests.engine.builders import (
    a_department,
    a_policy,
    a_pool,
    a_snapshot,
    carried_out,
    holding,
    leaving,
    nodes,
    pending,
)
from tests.engine.test_properties import news, reserved


def lasting(snapshot: Snapshot) -> Plan:
    """The plan, which breaks no rule, and of which the next pass finds nothing to change."""
    plan = decide(snapshot)
    later = carried_out(snapshot, plan)
    again = decide(later)
    assert (of_plan(snapshot, plan), of_plan(later, again)) == ((), ())
    assert (news(again), reserved(again), again.withdrawn) == ([], reserved(plan), ())
    return plan


def waiting_on(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {decision.claim: decision.waiting_on for decision in plan.decisions}


def test_what_its_department_borrows_later_takes_nobody_the_right_to_who_was_told() -> None:
    """`more` borrows what `large` gives too much. With it the department stands above its guarantee, and `first` still
    waits for `small`: it came before."""
    claims = [
        *(holding("small", "a", 1), holding("large", "a", 3), holding("kept", "b", 3)),
        pending("first", "c", 3, priority=1, submitted_at=-30),
        pending("second", "c", 2, priority=1, submitted_at=-20),
        pending("more", "c", 1),
    ]
    departments = [a_department("a"), a_department("b", 5, None, 0), a_department("c", 5)]
    plan = lasting(a_snapshot(a_pool(11), departments, claims))
    assert waiting_on(plan) == {"first": ("small",), "second": ("large",), "more": ()}


def test_who_leaves_for_nobody_is_waited_for_beside_those_told() -> None:
    """By priority `w` might not have called `going` back; as it leaves, w uses its units, and `new` gives the right."""
    claims = [
        *(holding("run", "a", 5), holding("old", "b", 2), holding("new", "b", 1, submitted_at=-400)),
        leaving("going", "a", 2, held_for="gone"),
        pending("w", "b", 2, submitted_at=-700, preemptible=False),
    ]
    policy = a_policy(within="lower_or_newer_equal", reclaim="lower_priority")
    plan = lasting(a_snapshot(a_pool(10), [a_department("a", 5), a_department("b", 4, policy=policy)], claims))
    assert waiting_on(plan) == {"w": ("going", "new")}


def test_who_is_told_for_the_right_alone_is_waited_for_though_another_uses_what_is_left_over() -> None:
    claims = [holding(id, "a", 3, submitted_at=0, started_at=0) for id in ("h0", "h4")]
    claims += [holding(f"h{n}", "a", 1) for n in (1, 2, 3, 8)]
    claims += [holding("h9", "c", 2), pending("p0", "c", 3), pending("p4", "c", 1)]
    departments = [a_department("a"), a_department("b", 1, None, 0), a_department("c", 5)]
    plan = lasting(a_snapshot(a_pool(12), departments, claims))
    assert waiting_on(plan) == {"p0": ("h0", "h4"), "p4": ("h0",)}


def test_who_was_told_for_another_that_gave_up_is_no_more_counted_on_than_in_the_next_pass() -> None:
    """`before` loses its reservation to `first`, which may start at once: `going` leaves, and when nobody needs that any
    more it stays."""
    claims = [
        holding("kept", "b", 4, priority=1, placement=(Placed(0, "n1", (0, 1, 2, 3)),)),
        holding("other", "a", 1, placement=(Placed(0, "n3", (3,)),)),
        leaving("going", "b", 3, held_for="before", placement=(Placed(0, "n3", (0, 1, 2)),)),
        pending("before", "b", 2, priority=1, preemptible=False, reserved=Reservation(2, (Placed(0, "n2", (0, 1)),))),
        pending("first", "b", 1, priority=2, preemptible=False),
    ]
    departments = [a_department("a"), a_department("b", 6, policy=a_policy(within="lower_priority"))]
    plan = lasting(a_snapshot(a_pool(nodes=nodes(4, 2, 4)), departments, claims))
    assert waiting_on(plan) == {"before": (), "first": ()}
    assert plan.withdrawn == ("going",)

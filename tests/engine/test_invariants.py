"""The invariant checks report a broken state and a broken plan for each invariant."""

from dataclasses import replace

import pytest

from quotas.engine.reasons import Fragmented, NoNodeToClear, WaitingForGang
from quotas.engine.types import Decision, DecisionKind, Placed, Plan, Reservation, Snapshot
from tests.engine.builders import a_department, a_pool, a_snapshot, holding, leaving, nodes, pending
from tests.engine.invariants import of_plan, of_state

CARD = (Placed(0, "n1", (0,)),)


def a_state(*claims: object, capacity: int | None = 4, **pool: object) -> Snapshot:
    departments = [a_department("a", 2, borrow_limit=1), a_department("b", 2, lend_limit=0)]
    return a_snapshot(a_pool(capacity, **pool), departments, claims)  # type: ignore[arg-type]


def on_nodes(*claims: object) -> Snapshot:
    return a_state(*claims, capacity=None, nodes=nodes(2, 2))


@pytest.mark.parametrize(
    ("state", "rule", "about"),
    [
        (a_state(holding("h", "a", 5)), 1, "pool/gpu"),
        (on_nodes(holding("h", "a", 1, placement=CARD), leaving("l", "a", 1, placement=CARD)), 1, "card/gpu/n1/0"),
        (a_state(holding("h", "a", 1), holding("h", "a", 1)), 3, "h"),
        (on_nodes(holding("h", "a", 1, placement=(*CARD, Placed(0, "n2", (0,))))), 3, "h"),
        (on_nodes(holding("h", "a", 1, placement=(Placed(1, "n1", (0,)),))), 3, "h"),
        (a_state(holding("h", "a", 1, reserved=Reservation(1))), 3, "h"),
        (a_state(holding("h", "a", 3, preemptible=False)), 2, "a"),
        (
            a_snapshot(a_pool(4), [a_department("a"), a_department("b")], [holding("h", "b", 1, preemptible=False)]),
            2,
            "b",
        ),
    ],
)
def test_violation_in_a_state_is_reported(state: Snapshot, rule: int, about: str) -> None:
    assert (rule, about) in {(violation.rule, violation.about) for violation in of_state(state)}


def test_department_without_a_quota_has_no_guarantee() -> None:
    stranger = replace(a_department("c"), quotas={})
    state = a_snapshot(a_pool(4), [stranger], [holding("h", "c", 1, preemptible=False)])
    assert [violation.sentence for violation in of_state(state)] == ["1 units are non-preemptible, 0 are guaranteed"]


def test_excess_that_lost_capacity_leaves_behind_is_no_violation() -> None:
    assert of_state(a_state(holding("h", "a", 5), nominal=6)) == ()


def answered(kind: DecisionKind, **more: object) -> Decision:
    return Decision("w", kind, **more)  # type: ignore[arg-type]


ADMIT, RECLAIM, WAIT = DecisionKind.ADMIT, DecisionKind.RECLAIM, DecisionKind.WAIT


@pytest.mark.parametrize(
    ("state", "decisions", "rule"),
    [
        (a_state(pending("w", "a", 1)), [], 3),
        (a_state(pending("w", "a", 1)), [answered(ADMIT, own=1)] * 2, 3),
        (a_state(pending("w", "a", 1), leaving("l", "b", 1)), [answered(RECLAIM, own=1, victims=("l",))], 3),
        (a_state(pending("w", "a", 1), holding("h", "b", 1)), [answered(RECLAIM, own=1, victims=("h", "h"))], 3),
        (a_state(pending("w", "a", 1), holding("h", "b", 4)), [answered(ADMIT, own=1)], 1),
        (on_nodes(pending("w", "a", 1)), [answered(ADMIT, own=1, placement=(Placed(0, "n9", (0,)),))], 1),
        (a_state(pending("w", "a", 4)), [answered(ADMIT, own=2, borrowed=2)], 2),
        (a_state(pending("w", "a", 3, own_only=True)), [answered(ADMIT, own=2, borrowed=1)], 2),
        (
            a_snapshot(a_pool(4), [a_department("a", 2), a_department("b", 2, lend_limit=0)], [pending("w", "a", 3)]),
            [answered(ADMIT, own=2, borrowed=1)],
            2,
        ),
        (
            a_state(
                leaving("l", "b", 2), leaving("m", "b", 2, leave_by=400), pending("w", "a", 2), pending("v", "a", 2)
            ),
            [replace(answered(RECLAIM, own=2, waiting_on=("l",), by=300), claim=claim) for claim in "wv"],
            10,
        ),
        (a_state(pending("w", "a", 2)), [answered(WAIT, reasons=(Fragmented(3, 2),))], 11),
        (a_state(pending("w", "a", 2)), [answered(WAIT, reasons=(NoNodeToClear(2),))], 11),
        (a_state(pending("w", "a", 1, pods=2)), [answered(WAIT, reasons=(WaitingForGang(2, 2),))], 11),
    ],
)
def test_violation_of_a_plan_is_reported(state: Snapshot, decisions: list[Decision], rule: int) -> None:
    assert rule in {violation.rule for violation in of_plan(state, Plan("case", tuple(decisions)))}


def test_decision_for_an_unknown_claim_is_reported() -> None:
    assert [violation.about for violation in of_plan(a_state(), Plan("case", (answered(ADMIT, own=1),)))] == ["w"]


def test_valid_plan_can_withdraw_a_notice_and_draw_from_a_recall() -> None:
    recall = holding("r", "a", 2, pods=0, started_at=-900)
    state = a_state(recall, leaving("l", "b", 1, preempted_for="x"), pending("w", "a", 2))
    plan = Plan("case", (answered(ADMIT, own=2),), withdrawn=("l",))  # type: ignore[arg-type]
    assert of_plan(state, plan) == of_state(state) == ()


def test_node_with_unknown_cpu_and_memory_has_no_limit_of_them() -> None:
    """A node that does not exist, however, has nothing."""
    claim = pending("w", "a", 1, cpu_milli=8, memory_mib=16)
    state = on_nodes(claim)
    assert of_plan(state, Plan("case", (answered(ADMIT, own=1, placement=CARD),))) == ()
    lost = (Placed(0, "n9", (0,)),)
    violations = of_plan(state, Plan("case", (answered(ADMIT, own=1, placement=lost),)))
    assert {(violation.rule, violation.sentence) for violation in violations} == {
        (1, "a lost place has no room for it")
    }
    small = a_state(claim, capacity=None, nodes=nodes(2, memory_mib=8))
    violations = of_plan(small, Plan("case", (answered(ADMIT, own=1, placement=CARD),)))
    assert [violation.sentence for violation in violations] == ["memory/n1 has no room for it"]

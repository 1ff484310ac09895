"""Stranded work, on nodes and cards that are no longer present: it uses its department's quota, but none of the present
capacity."""

from dataclasses import replace

from quotas.engine.planning_pass import decide
from quotas.engine.quota_tree import Ledger, loans_of, usage_of
from quotas.engine.types import Card, Claim, DecisionKind, Node, Placed, Pool, Reservation, Snapshot
from quotas.engine.units import stranded_units
from tests.engine import invariants
from tests.engine.builders import a_department, a_pool, a_snapshot, answers, holding, leaving, nodes, pending

ADMIT, RECLAIM, WAIT, IMPOSSIBLE = DecisionKind
CLOSED = Node("n1", (Card(0),) * 4)
POOL = a_pool(nodes=(CLOSED, *nodes(0, 4)[1:]), nominal=8)


def on(node: str, *cards: int) -> tuple[Placed, ...]:
    return (Placed(0, node, cards),)


def test_stranded_work_does_not_occupy_free_cards_elsewhere() -> None:
    departments = [a_department("a", 4), a_department("b", 4)]
    claims = [holding("h", "b", 4, placement=on("n1", 0, 1, 2, 3)), pending("w", "a", 4)]
    decision = answers(a_snapshot(POOL, departments, claims))["w"]
    assert (decision.decision, decision.placement) == (ADMIT, on("n2", 0, 1, 2, 3))


def test_stranded_work_uses_the_quota_of_its_department() -> None:
    departments = [a_department("a", 4), a_department("b", 4)]
    claims = [holding("h", "b", 4, placement=on("n1", 0, 1, 2, 3)), pending("w", "b", 4, own_only=True)]
    assert answers(a_snapshot(POOL, departments, claims))["w"].decision is WAIT


def test_stranded_work_is_not_preempted_as_it_would_free_nothing() -> None:
    departments = [a_department("a", 8), a_department("b", 0)]
    claims = [
        holding("gone", "b", 4, placement=on("n1", 0, 1, 2, 3), started_at=-1),
        holding("here", "b", 4, placement=on("n2", 0, 1, 2, 3), started_at=-900),
        pending("w", "a", 4),
    ]
    decision = answers(a_snapshot(POOL, departments, claims))["w"]
    assert (decision.decision, decision.victims) == (RECLAIM, ("here",))


def test_claim_does_not_wait_for_a_leaver_on_a_closed_node() -> None:
    departments = [a_department("a", 4), a_department("b", 4)]
    claims = [
        leaving("gone", "b", 4, placement=on("n1", 0, 1, 2, 3), leave_by=60),
        holding("here", "b", 4, placement=on("n2", 0, 1, 2, 3)),
        pending("w", "a", 4),
    ]
    assert answers(a_snapshot(POOL, departments, claims))["w"].decision is WAIT


def test_quarantined_card_strands_only_the_work_on_it() -> None:
    pool = a_pool(nodes=(Node("n1", (Card(0), Card(), Card(), Card())),), nominal=4)
    claims = [holding("h", "a", 1, placement=on("n1", 0)), pending("w", "b", 3)]
    decision = answers(a_snapshot(pool, [a_department("a", 1), a_department("b", 3)], claims))["w"]
    assert (decision.decision, decision.placement) == (ADMIT, on("n1", 1, 2, 3))


def test_only_the_pods_of_a_gang_on_lost_nodes_are_stranded() -> None:
    gang = holding("g", "a", 2, pods=2, placement=(Placed(0, "n9", (0, 1)), Placed(1, "n2", (0, 1))))
    assert stranded_units(POOL, [gang, holding("h", "a", 2, placement=on("n2", 2, 3))]) == {"g": 2}
    assert stranded_units(a_pool(capacity=8), [gang]) == {}
    lone = replace(gang, placement=on("n2", 7))
    assert stranded_units(POOL, [lone]) == {"g": 2}


def test_instances_of_a_closed_node_are_stranded() -> None:
    pool = Pool("gpu", unit="slice", mig="A30", nodes=(Node("n1", (Card(4),), instances={}),))
    claim = holding("h", "a", 2, profile="2g.12gb", placement=(Placed(0, "n1"),))
    assert stranded_units(pool, [claim]) == {"h": 2}


def test_stranded_units_do_not_change_ceilings() -> None:
    departments = [a_department("a", 4), a_department("b", 4)]
    with_it, without = Ledger(POOL, departments, 4), Ledger(POOL, departments)
    for each in "ab":
        assert (with_it[each].ceiling, with_it[each].present_ceiling) == (8, 4)
        assert (without[each].ceiling, without[each].present_ceiling) == (8, 4)
    for ledger in (with_it, without):
        ledger.add("b", 4)
    assert (with_it.available("a"), without.available("a")) == (4, 0)


def stranded() -> Snapshot:
    departments = [a_department("a", 4), a_department("b", 4)]
    claims: list[Claim] = [holding("h", "b", 4, placement=on("n1", 0, 1, 2, 3)), pending("w", "a", 4)]
    return a_snapshot(POOL, departments, claims)


def test_invariants_usage_and_loans_agree_on_stranded_work() -> None:
    snapshot = stranded()
    assert invariants.of_state(snapshot) == invariants.of_plan(snapshot, decide(snapshot)) == ()
    assert usage_of(snapshot, POOL.id).available("a") == 4
    assert loans_of(snapshot, POOL.id) == ()


def with_a_victim_on_a_lost_node(*more: Claim) -> Snapshot:
    """`w` waits for `r`, which is leaving n1 for it; then n1 is lost."""
    departments = [a_department("a", 4), a_department("b", 0)]
    claims = [
        leaving("r", "b", 4, placement=on("n1", 0, 1, 2, 3), preempted_for="w"),
        pending("w", "a", 4, reserved=Reservation(4, on("n1", 0, 1, 2, 3))),
    ]
    return a_snapshot(POOL, departments, [*claims, *more])


def test_claim_does_not_wait_for_its_victim_on_a_lost_node_any_more() -> None:
    decision = answers(with_a_victim_on_a_lost_node())["w"]
    assert (decision.decision, decision.placement) == (ADMIT, on("n2", 0, 1, 2, 3))


def test_another_victim_replaces_one_on_a_lost_node() -> None:
    decision = answers(with_a_victim_on_a_lost_node(holding("here", "b", 4, placement=on("n2", 0, 1, 2, 3))))["w"]
    assert (decision.decision, decision.victims, decision.waiting_on) == (RECLAIM, ("here",), ("here",))
    assert decision.placement == on("n2", 0, 1, 2, 3)

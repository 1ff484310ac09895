"""The search for victims in trees and for gangs: examples in which taking the candidates in any order of preference misses
the best set."""

from dataclasses import replace

import pytest

from quotas.engine import victim_search
from quotas.engine.types import BorrowPreempt, Claim, Placed, Reservation, Snapshot
from tests.engine.builders import (
    a_department,
    a_policy,
    a_pool,
    a_snapshot,
    answers,
    carried_out,
    decide,
    holding,
    leaving,
    nodes,
    pending,
)


def losing(id: str, units: int, each: int, department: str = "guest", started_at: int = -600) -> Claim:
    """A claim that would lose `each` seconds of work per unit."""
    return holding(id, department, units, started_at=started_at, checkpointed_at=-each)


def in_a_tree(*claims: Claim) -> Snapshot:
    departments = [a_department("owner", 6), a_department("lab"), a_department("guest", parent="lab")]
    return a_snapshot(a_pool(sum(claim.units for claim in claims)), departments, [*claims, pending("w", "owner", 5)])


def test_one_large_victim_is_found_although_other_sets_come_first_in_every_order() -> None:
    """By work lost, `two` and `three` come first (52 together); by size and by age, `dear` does (120); `five` loses 50. On
    the way the search finds `tiny` and `five`, which lose 51, though `five` alone is enough."""
    claims = [losing("tiny", 1, 1), losing("two", 2, 5), losing("three", 3, 14), losing("five", 5, 10)]
    assert answers(in_a_tree(*claims, losing("dear", 6, 20, started_at=-21)))["w"].victims == ("five",)


def test_search_cut_short_by_its_limit_returns_what_the_orders_of_preference_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With fair sharing the two claims of three units are best, since they lower the highest share most; every order of
    preference finds the claim of four."""
    claims = [losing("c0", 3, 6, "other"), losing("c1", 4, 16, "other"), losing("c3", 3, 1, "other")]
    claims.append(losing("c2", 2, 2))
    departments = [a_department("owner", 6), a_department("lab"), a_department("guest", parent="lab")]
    all_departments = [*departments, a_department("other")]
    snapshot = a_snapshot(a_pool(12), all_departments, [*claims, pending("w", "owner", 4)], fair_sharing=True)
    assert answers(snapshot)["w"].victims == ("c0", "c3")
    monkeypatch.setattr(victim_search, "LOOKS", 0)
    assert answers(snapshot)["w"].victims == ("c1",)


def test_gang_among_many_small_claims_clears_whole_nodes_and_no_more() -> None:
    """Twenty candidates are too many for the exact search: two nodes of four cards are enough for a gang of two."""
    machines = nodes(4, 4, 4, 4, 4)
    small = [
        holding(f"h{node}{card}", "guest", 1, placement=(Placed(0, f"n{node}", (card,)),))
        for node in range(1, 6)
        for card in range(4)
    ]
    assert len(small) > victim_search.MANY
    departments = [a_department("owner", 8), a_department("guest")]
    snapshot = a_snapshot(a_pool(nodes=machines), departments, [*small, pending("w", "owner", 4, pods=2)])
    decision = answers(snapshot)["w"]
    assert decision.decision == "reclaim"
    assert len(decision.victims) == 8
    assert len({victim[:2] for victim in decision.victims}) == 2
    remaining = [claim for claim in carried_out(snapshot, decide(snapshot)).claims if claim.state != "leaving"]
    assert answers(replace(snapshot, claims=tuple(remaining)))["w"].decision == "admit"


def test_borrower_prefers_one_claim_of_three_units_to_two_of_two() -> None:
    """A borrower preempts few units: one claim of three rather than two of two, though each of those is smaller."""
    policy = a_policy(borrow_preempt=BorrowPreempt())
    departments = [a_department("a", policy=policy), a_department("b"), a_department("c"), a_department("x")]
    departments.append(a_department("y", parent="x"))
    claims = [holding("two", "b", 2), holding("deux", "b", 2), holding("three", "c", 3)]
    snapshot = a_snapshot(a_pool(7), departments, [*claims, pending("w", "a", 3, priority=1)])
    assert answers(snapshot)["w"].victims == ("three",)


def test_department_with_only_a_reservation_has_no_victims() -> None:
    departments = [
        a_department("owner", 2),
        a_department("guest", parent="lab"),
        a_department("lab"),
        a_department("b"),
    ]
    claims = [
        holding("h", "b", 2),
        leaving("going", "b", 2, preempted_for="soon"),
        pending("soon", "guest", 2, submitted_at=-50, reserved=Reservation(2, ())),
        pending("w", "owner", 2),
    ]
    assert answers(a_snapshot(a_pool(4), departments, claims))["w"].victims == ("h",)


def test_search_takes_as_many_victims_as_a_parent_above_its_limit_needs() -> None:
    """Seven units must be preempted for two: x is five units above its limit. `large` and `other` of b and `small` of c lose
    least; with `rest` c would end below its guarantee."""
    departments = [
        a_department("t", 7, parent="x"),
        a_department("b", parent="x"),
        a_department("c", 1, parent="x"),
        a_department("x", 0, 0),
    ]
    claims = [
        losing("large", 3, 1, "b"),
        losing("small", 1, 0, "c"),
        losing("other", 3, 0, "b"),
        *(losing(f"own{n}", 1, 0, "t") for n in range(3)),
        losing("rest", 3, 0, "c"),
    ]
    snapshot = a_snapshot(a_pool(13), departments, [*claims, pending("w", "t", 2)])
    assert answers(snapshot)["w"].victims == ("large", "other", "small")


@pytest.mark.parametrize("pods", [1, 2])
def test_among_equal_sets_the_one_leaving_least_surplus_on_nodes_is_preempted(pods: int) -> None:
    """On n1 and n2 a third card would be left over."""
    claims = [
        holding(id, "guest", 2, placement=(Placed(0, f"n{n}", (0, 1)),))
        for n, id in enumerate(("a1", "a2", "z1", "z2"), start=1)
    ]
    departments = [a_department("owner", 4), a_department("guest", parent="lab"), a_department("lab")]
    preemptor = pending("w", "owner", 2, pods=pods)
    decision = answers(a_snapshot(a_pool(nodes=nodes(3, 3, 2, 2)), departments, [*claims, preemptor]))["w"]
    assert decision.victims == ("z1", "z2")[:pods]

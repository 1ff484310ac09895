"""Victims in trees and of gangs, where a search looks for them: examples in which going through the candidates in any
order of preference misses the best set."""

from dataclasses import replace

import pytest

from quotas.engine import search
from quotas.engine.types import Claim, Placed, Snapshot
from tests.engine.builders import (
    a_department,
    a_pool,
    a_snapshot,
    answers,
    carried_out,
    decide,
    holding,
    nodes,
    pending,
)


def losing(id: str, units: int, each: int, started_at: int = -600) -> Claim:
    """A claim that would lose so many seconds of each unit's work."""
    return holding(id, "guest", units, started_at=started_at, checkpointed_at=-each)


def in_a_tree(*claims: Claim) -> Snapshot:
    departments = [a_department("owner", 6), a_department("lab"), a_department("guest", parent="lab")]
    return a_snapshot(a_pool(sum(claim.units for claim in claims)), departments, [*claims, pending("w", "owner", 5)])


def test_one_large_victim_is_found_where_two_small_ones_come_first_in_every_order() -> None:
    """By work lost `two` and `three` come first (52 together), by size and by age `dear` does (120): `five` loses 50.
    On the way `tiny` and `five` are found, which lose 51, though `five` is enough."""
    claims = [losing("tiny", 1, 1), losing("two", 2, 5), losing("three", 3, 14), losing("five", 5, 10)]
    assert answers(in_a_tree(*claims, losing("dear", 6, 20, started_at=-21)))["w"].victims == ("five",)


def test_whom_looking_longer_does_not_pay_for_gets_what_the_orders_find(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [losing("two", 2, 5), losing("three", 3, 14), losing("five", 5, 10)]
    snapshot = in_a_tree(*claims, losing("dear", 6, 20, started_at=-21))
    monkeypatch.setattr(search, "LOOKS", 0)
    assert answers(snapshot)["w"].victims == ("three", "two")


def test_a_gang_among_many_small_claims_takes_whole_nodes_and_no_more() -> None:
    """Twenty candidates are too many to look at sets of them: two nodes of four are enough for a gang of two."""
    machines = nodes(4, 4, 4, 4, 4)
    small = [
        holding(f"h{node}{card}", "guest", 1, placement=(Placed(0, f"n{node}", (card,)),))
        for node in range(1, 6)
        for card in range(4)
    ]
    assert len(small) > search.MANY
    departments = [a_department("owner", 8), a_department("guest")]
    snapshot = a_snapshot(a_pool(nodes=machines), departments, [*small, pending("w", "owner", 4, pods=2)])
    decision = answers(snapshot)["w"]
    assert decision.decision == "reclaim"
    assert len(decision.victims) == 8
    assert len({victim[:2] for victim in decision.victims}) == 2
    gone = [claim for claim in carried_out(snapshot, decide(snapshot)).claims if claim.state != "leaving"]
    assert answers(replace(snapshot, claims=tuple(gone)))["w"].decision == "admit"

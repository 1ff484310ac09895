"""Compute that is given out several times (rule 21): a card can register 500 percent, and a claim is charged its share of
those."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from quotas.engine.planning_pass import decide
from quotas.engine.snapshot_json import parse_snapshot
from quotas.engine.types import Card, DecisionKind, Node
from quotas.engine.units import card_cores, resized
from tests.engine.builders import a_department, a_pool, a_snapshot, nodes, pending

CASE = Path(__file__).parent / "cases/scaled_compute.jsonl"


def test_pods_of_50_percent_are_charged_a_tenth_of_a_card_of_500_percent() -> None:
    snapshot = parse_snapshot(json.loads(CASE.read_text()))
    plan = decide(snapshot)
    assert {claim.id: claim.units_per_pod for claim in snapshot.claims} == {f"p{n}": 1639 for n in range(10)}
    kinds = {decision.claim: decision.decision for decision in plan.decisions}
    assert [kinds[f"p{n}"] for n in range(9)] == [DecisionKind.ADMIT] * 9  # type: ignore[index]
    assert kinds["p9"] is not DecisionKind.ADMIT, "ten tenths rounded up are six units more than the guarantee"  # type: ignore[index]


@given(st.integers(1, 20), st.sampled_from([1, 4, 10, 25, 50, 100]), st.integers(100, 100_000))
def test_charges_of_all_pods_that_fit_by_compute_cover_the_card_and_no_more(scale: int, cores: int, units: int) -> None:
    pool = a_pool(nodes=nodes(1, units=units, cores=100 * scale), unit="MiB")
    charge = resized(pending("w", "a", 0, cores_per_pod=cores), 1, pool).units_per_pod
    fit = 100 * scale // cores
    assert (charge - 1) * fit < units <= charge * fit or charge == 1


def test_smallest_compute_that_a_card_registers_counts_where_cards_differ() -> None:
    mixed = (Node("n1", (Card(80, 500), Card(80, 100))), Node("n2", (Card(80, None), Card(0, 200))))
    assert card_cores(a_pool(nodes=mixed, unit="MiB")) == 100
    assert card_cores(a_pool(nodes=mixed, unit="MiB", cores_per_card=300)) == 300
    assert card_cores(a_pool(nodes=nodes(1, units=80), unit="MiB")) == 100
    assert card_cores(a_pool(80, unit="MiB")) == 100


def test_largest_request_is_charged_the_same_share_of_compute() -> None:
    """Of two cards of 80 units, a pod with half of a card's 500 percent is charged 40 units."""
    pool = a_pool(nodes=nodes(2, units=80, cores=500), unit="MiB")
    claims = [resized(pending("w", "a", 0, cores_per_pod=250), 10, pool)]
    assert claims[0].units_per_pod == 40
    [decision] = decide(a_snapshot(pool, [a_department("a", 20, 0)], [claims[0]])).decisions
    assert (decision.decision, decision.largest) == (DecisionKind.IMPOSSIBLE, 20)

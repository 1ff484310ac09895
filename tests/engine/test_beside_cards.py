"""CPU and memory that come with cards (rule 21): a request for more is charged for more cards, so that no guarantee becomes
worthless because others took all CPU."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.planning_pass import decide
from quotas.engine.snapshot_json import parse_snapshot
from quotas.engine.types import Card, Claim, DecisionKind, Node, Pool, Snapshot
from quotas.engine.units import capacity_of, comes_with_a_card, resized
from tests.engine.builders import a_department, a_pool, a_snapshot, answers, carried_out, nodes, pending

ADMIT, RECLAIM, WAIT, IMPOSSIBLE = DecisionKind
ROWS = {
    "id": "case",
    "now": 0,
    "settings": {"notice": 600, "grace": 120},
    "pools": [
        {
            "id": "a100",
            "nodes": [{"name": name, "cards": [{"units": 1}] * 8, "cpu_milli": 256_000} for name in ("n1", "n2")],
        }
    ],
    "departments": [
        {"id": "greedy", "quotas": {"a100": {"guaranteed": 2}}},
        {"id": "owner", "quotas": {"a100": {"guaranteed": 8}}},
    ],
    "claims": [
        {
            "id": f"g{n}", "department": "greedy", "pool": "a100", "units_per_pod": 1, "cpu_milli": 255_000,
            "state": "holding", "submitted_at": -900, "started_at": -600 - n,
            "placement": [{"pod": 0, "node": f"n{n}", "cards": [0]}],
        }
        for n in (1, 2)
    ],
}  # fmt: skip


def asking(units: int, **more: object) -> Snapshot:
    request = {"id": "w", "department": "owner", "pool": "a100", "units_per_pod": units, "state": "pending"}
    return parse_snapshot({**ROWS, "claims": [*ROWS["claims"], request | {"submitted_at": -10} | more]})  # type: ignore[misc]


def test_one_card_with_the_cpu_of_eight_is_charged_as_eight_and_reclaimed() -> None:
    decision = answers(asking(8, cpu_milli=64_000))["w"]
    assert (decision.decision, decision.own, decision.victims, decision.by) == (RECLAIM, 8, ("g1",), 720)
    many = answers(asking(1, pods=8, cpu_milli=8_000))["w"]
    assert (many.decision, len(many.victims)) == (RECLAIM, 1)


def test_recorded_snapshot_keeps_its_charges() -> None:
    recorded = parse_snapshot(ROWS, recorded=True)
    assert {claim.units for claim in recorded.claims} == {1}
    assert {claim.units for claim in parse_snapshot(ROWS).claims} == {8}


def test_charge_is_the_largest_share_rounded_up() -> None:
    pool = a_pool(nodes=nodes(8, 4, cpu_milli=64_000, memory_mib=512_000))
    assert comes_with_a_card(pool) == (8_000, 64_000), "of the node where the share is smallest"
    assert resized(pending("w", "a", 0, cpu_milli=8_000), 1, pool).units == 1
    assert resized(pending("w", "a", 0, cpu_milli=8_001), 1, pool).units == 2
    assert resized(pending("w", "a", 0, cpu_milli=8_000, memory_mib=200_000), 2, pool).units == 4
    assert resized(pending("w", "a", 0, cpu_milli=80_000), 1, replace(pool, cpu_per_card=16_000)).units == 5
    assert resized(pending("w", "a", 0, cpu_milli=80_000), 1, replace(pool, cpu_per_card=0)).units == 1
    parts = a_pool(nodes=nodes(2, units=15, cpu_milli=12_000), unit="GiB")
    assert resized(pending("w", "a", 0, cpu_milli=2_000), 4, parts).units == 5
    cut = a_pool(nodes=nodes(1, units=8, cpu_milli=32_000), unit="slice", mig="A100-80GB")
    claim = resized(pending("w", "a", 0, cpu_milli=8_000, profile="1g.10gb"), 1, cut)
    assert (claim.units, claim.on_card) == (2, 1)
    assert answers(a_snapshot(cut, [a_department("a", 8)], [claim]))["w"].placement is not None


def test_non_preemptible_request_with_too_much_cpu_is_impossible_and_names_the_largest() -> None:
    pool = a_pool(nodes=nodes(8, 8, cpu_milli=64_000))
    request = resized(pending("w", "a", 0, cpu_milli=64_000, preemptible=False), 1, pool)
    decision = answers(a_snapshot(pool, [a_department("a", 4)], [request]))["w"]
    assert (decision.decision, decision.largest) == (IMPOSSIBLE, 4), "one card with the CPU of four is charged as four"


def test_request_for_more_cpu_than_any_node_has_is_impossible() -> None:
    pool = a_pool(nodes=nodes(8, 8, cpu_milli=64_000))
    request = resized(pending("w", "a", 0, cpu_milli=65_000), 1, pool)
    assert answers(a_snapshot(pool, [a_department("a", 16)], [request]))["w"].decision is IMPOSSIBLE


@st.composite
def towns(draw: st.DrawFn) -> tuple[Pool, list[int], list[Claim], Claim]:
    """Nodes of different sizes, the guarantees of three departments, requests of the second and third in turn, and a small
    request of the first."""
    units = draw(st.sampled_from([1, 1, 4]))
    machines = tuple(
        Node(f"n{n}", (Card(units),) * draw(st.integers(1, 4)), cpu_milli=draw(st.integers(8, 40)),
             memory_mib=draw(st.sampled_from([None, 24, 64])))
        for n in range(draw(st.integers(1, 4)))
    )  # fmt: skip
    pool = a_pool(nodes=machines, unit="card" if units == 1 else "MiB", units_per_card=units)
    capacity = capacity_of(pool, ())
    owned = draw(st.integers(1, capacity))
    others = draw(st.integers(0, capacity - owned))
    cpu, memory = comes_with_a_card(pool)
    claims = [
        resized(
            pending(
                f"h{n:02}", draw(st.sampled_from("bc")), 0, cpu_milli=draw(st.integers(0, 40)),
                memory_mib=draw(st.integers(0, 24)), preemptible=draw(st.sampled_from([True, True, False])),
                pods=draw(st.sampled_from([1, 1, 1, 2])), submitted_at=-100 + n,
            ),
            draw(st.integers(1, 4)), pool,
        )
        for n in range(draw(st.integers(0, 12)))
    ]  # fmt: skip
    fair = pending("w", "a", 1, cpu_milli=cpu // units, memory_mib=memory // units, submitted_at=0)
    return pool, [owned, others, capacity - owned - others], claims, fair


@settings(max_examples=300, deadline=None)
@given(towns())
def test_guaranteed_cards_come_with_cpu_and_memory_whatever_others_request(
    town: tuple[Pool, list[int], list[Claim], Claim],
) -> None:
    pool, guarantees, claims, fair = town
    tenants = [a_department(name, units) for name, units in zip("abc", guarantees, strict=True)]
    snapshot = a_snapshot(pool, tenants, [])
    for claim in claims:
        snapshot = replace(snapshot, claims=(*snapshot.claims, claim))
        snapshot = carried_out(snapshot, decide(snapshot))
    running = tuple(claim for claim in snapshot.claims if claim.placement and claim.state == "holding")
    decision = answers(replace(snapshot, claims=(*running, fair)))["w"]
    assert decision.decision in (ADMIT, RECLAIM), decision.reasons


def test_without_the_cpu_charge_a_guarantee_would_be_worthless() -> None:
    """The problem that the charge solves: fourteen of sixteen cards are free, and a claim inside its guarantee gets none."""
    raw = parse_snapshot(ROWS, recorded=True)
    request = pending("w", "owner", 8, pool="a100", cpu_milli=64_000)
    assert answers(replace(raw, claims=(*raw.claims, request)))["w"].decision is WAIT

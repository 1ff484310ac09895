"""Placement (rule 8): where pods are placed, and the reasons where they fit nowhere."""

from dataclasses import replace
from typing import Any

from quotas.engine.explain import advice, sentence
from quotas.engine.reasons import (
    Fragmented,
    Machine,
    Move,
    NoNodeToClear,
    NoSuchProfile,
    NotEnough,
    PoolShort,
    WaitingForGang,
)
from quotas.engine.snapshot_json import parse_snapshot, reason_from_json, reason_to_json, snapshot_to_json
from quotas.engine.types import (
    Card,
    Claim,
    Decision,
    DecisionKind,
    Department,
    Node,
    Placed,
    Pool,
    PoolId,
    Quota,
    Snapshot,
)
from quotas.engine.units import resized
from tests.engine.builders import POOL, a_department, a_pool, a_snapshot, answers, holding, nodes, pending

ADMIT, RECLAIM, WAIT, IMPOSSIBLE = DecisionKind


def test_whole_cards_go_to_the_node_with_the_least_left_over() -> None:
    pool = a_pool(nodes=nodes(8, 4))
    decision = answers(a_snapshot(pool, [a_department("a", 12)], [pending("w", "a", 4)]))["w"]
    assert decision.placement == (Placed(0, "n2", (0, 1, 2, 3)),)


def test_claim_waits_as_fragmented_if_enough_units_are_free_on_different_nodes_only() -> None:
    pool = a_pool(nodes=nodes(4, 4))
    claims = [
        holding("h1", "a", 2, placement=(Placed(0, "n1", (0, 1)),)),
        holding("h2", "a", 2, placement=(Placed(0, "n2", (2, 3)),)),
        pending("w", "a", 4),
    ]
    decision = answers(a_snapshot(pool, [a_department("a", 8)], claims))["w"]
    assert (decision.decision, decision.reasons) == (WAIT, (Fragmented(4, 2, (Move("h1", 0, "n1", "n2", (0, 1)),)),))


def test_largest_fit_counts_only_nodes_that_take_one_more_pod() -> None:
    machines = tuple(replace(node, pods=pods) for node, pods in zip(nodes(4, 4), (1, 2), strict=True))
    claims = [
        holding("h1", "a", 1, placement=(Placed(0, "n1", (0,)),), preemptible=False),
        holding("h2", "a", 2, placement=(Placed(0, "n2", (0, 1)),), preemptible=False),
        pending("w", "a", 4),
    ]
    decision = answers(a_snapshot(a_pool(nodes=machines), [a_department("a", 8)], claims))["w"]
    assert (decision.decision, decision.reasons) == (WAIT, (Fragmented(5, 2, ()),))


def test_pod_larger_than_every_node_is_impossible() -> None:
    decision = answers(a_snapshot(a_pool(nodes=nodes(4, 4)), [a_department("a", 8)], [pending("w", "a", 6)]))["w"]
    assert (decision.decision, decision.largest) == (IMPOSSIBLE, 4)


def a_machine(name: str, cards: int, cpu: int | None, memory: int | None) -> Node:
    return Node(name, (Card(1),) * cards, cpu_milli=cpu, memory_mib=memory)


def test_reason_names_missing_cpu_and_memory_and_the_closest_node() -> None:
    machines = (
        a_machine("n1", 4, 16_000, 64_000),
        a_machine("n2", 8, 32_000, 32_000),
        a_machine("n3", 8, 32_000, 64_000),
        a_machine("n4", 2, 256_000, 512_000),
    )
    request = pending("w", "a", 8, cpu_milli=48_000, memory_mib=48_000)
    [reason] = answers(a_snapshot(a_pool(nodes=machines), [a_department("a", 22)], [request]))["w"].reasons
    assert reason == Fragmented(22, 2, machine=Machine("n3", 32_000, 64_000, 48_000, 48_000), empty=True)
    assert reason_from_json(reason_to_json(reason)) == reason
    assert sentence(reason) == (
        "There are enough cards, but no node has 48 CPU and 48000 MiB of memory beside them: the "
        "closest is n3 with 32 and 64000 MiB."
    )
    assert advice(reason).startswith("Request less CPU or memory")


def test_reason_names_the_memory_of_the_node_where_only_that_is_missing() -> None:
    machines = a_machine("n1", 4, None, 64_000), a_machine("n2", 1, None, 640_000)
    claims = [
        holding("h", "a", 1, memory_mib=40_000, placement=(Placed(0, "n1", (0,)),), preemptible=False),
        pending("w", "a", 2, cpu_milli=9_000, memory_mib=32_000),
    ]
    decision = answers(a_snapshot(a_pool(nodes=machines), [a_department("a", 5)], claims))["w"]
    machine = Machine("n1", 9_000, 24_000, 9_000, 32_000)  # CPU of the node is not limited
    assert (decision.decision, decision.reasons) == (WAIT, (Fragmented(4, 1, (), machine),))


def shared_card(units: int = 50, **more: Any) -> Node:
    """A node with one time-sliced card, like a small virtual machine whose network limits the number of pods."""
    return Node("g4dn", (Card(units),), **more)


def replicas(node: Node, *claims: Claim, guaranteed: int = 50) -> dict[str, Decision]:
    pool = a_pool(nodes=(node,), unit="replica", units_per_card=50)
    tenants = [a_department("a", guaranteed), a_department("b", 50 - guaranteed)]
    return answers(a_snapshot(pool, tenants, claims, notice=60, grace=10))


def running(count: int, department: str = "a") -> list[Claim]:
    return [
        holding(f"h{n:02}", department, 1, placement=(Placed(0, "g4dn", (0,)),), started_at=-n) for n in range(count)
    ]


def test_node_at_its_pod_limit_takes_no_more_pods_even_with_free_units() -> None:
    node = shared_card(pods=29)
    assert replicas(node, *running(28), pending("w", "a", 1))["w"].decision is ADMIT
    decision = replicas(node, *running(29), pending("w", "a", 1))["w"]
    machine = Machine("g4dn", 0, 0, 0, 0, lacking="pods", has=0, asked=1)
    assert (decision.decision, decision.reasons) == (WAIT, (Fragmented(21, 0, (), machine),))
    [reason] = decision.reasons
    assert reason_from_json(reason_to_json(reason)) == reason
    assert "their pod limit: the closest is g4dn" in sentence(reason)
    assert "fewer, larger pods" in advice(reason)


def test_gang_of_more_pods_than_the_nodes_take_is_impossible() -> None:
    decision = replicas(shared_card(pods=29), pending("w", "a", 1, pods=30))["w"]
    assert (decision.decision, decision.largest) == (IMPOSSIBLE, 29)


def test_claim_inside_its_guarantee_reclaims_a_pod_slot_from_a_borrower() -> None:
    decision = replicas(shared_card(pods=29), *running(29, "b"), pending("w", "a", 1))["w"]
    assert (decision.decision, decision.victims) == (RECLAIM, ("h00",))


def test_pools_that_share_a_node_share_its_pod_limit() -> None:
    whole = a_pool(nodes=(Node("n1", (Card(1),) * 2, pods=1),))
    parts = a_pool(id="parts", unit="replica", nodes=(Node("n1", (Card(4),), pods=1),))
    tenants = Department("a", quotas={PoolId(POOL): Quota(2), PoolId("parts"): Quota(4)})  # type: ignore[arg-type]
    claims = holding("h", "a", 1, placement=(Placed(0, "n1", (0,)),)), pending("w", "a", 1, pool="parts")
    snapshot = Snapshot("s", 0, (whole, parts), (tenants,), claims)
    assert answers(snapshot)["w"].decision is WAIT


def test_reason_names_the_device_of_which_no_node_has_enough() -> None:
    machines = (Node("n1", (Card(1),) * 4, devices={"rdma/hca": 2}), Node("n2", (Card(1),) * 4))
    pool, request = a_pool(nodes=machines), pending("w", "a", 1, devices={"rdma/hca": 1})
    holder = holding("h", "a", 1, devices={"rdma/hca": 1}, placement=(Placed(0, "n1", (0,)),))
    decided = answers(a_snapshot(pool, [a_department("a", 8)], [holder, request]))["w"]
    assert decided.placement == (Placed(0, "n1", (1,)),)
    more = replace(request, devices={"rdma/hca": 2})
    waiting = answers(a_snapshot(pool, [a_department("a", 8)], [replace(holder, preemptible=False), more]))["w"]
    assert sentence(waiting.reasons[0]).startswith(
        "There are enough cards, but no node has 2 × rdma/hca beside them: the closest is n1 with 1."
    )
    never = replace(request, devices={"rdma/hca": 3})
    assert answers(a_snapshot(pool, [a_department("a", 8)], [never]))["w"].decision is IMPOSSIBLE
    nowhere = replace(request, devices={"rdma/other": 1})
    assert answers(a_snapshot(pool, [a_department("a", 8)], [nowhere]))["w"].decision is IMPOSSIBLE


def test_pod_limits_and_devices_round_trip_as_json() -> None:
    pool = a_pool(nodes=(Node("n1", (Card(1),), pods=29, devices={"rdma/hca": 2}),))
    snapshot = a_snapshot(pool, [a_department("a", 1)], [pending("w", "a", 1, devices={"rdma/hca": 1})])
    written = snapshot_to_json(snapshot)
    assert written["pools"][0]["nodes"][0]["pods"] == 29
    assert parse_snapshot(written) == snapshot


def test_reason_of_a_gang_names_the_node_closest_for_its_next_pod() -> None:
    machines = a_machine("n1", 4, 16_000, None), a_machine("n2", 4, 12_000, None)
    request = pending("w", "a", 1, pods=4, cpu_milli=8_000)
    decision = answers(a_snapshot(a_pool(nodes=machines), [a_department("a", 8)], [request]))["w"]
    assert (decision.decision, decision.largest) == (IMPOSSIBLE, 3)
    assert decision.reasons == (Fragmented(8, 3, machine=Machine("n2", 4_000, 0, 8_000, 0), empty=True),)


def test_reason_names_no_node_where_cards_or_a_common_domain_are_missing() -> None:
    apart = tuple(replace(a_machine(f"n{n}", 2, 16_000, None), domain=f"d{n}") for n in (1, 2))
    departments = [a_department("a", 4)]
    cards = pending("w", "a", 3, cpu_milli=1_000)
    domain = pending("w", "a", 2, pods=2, cpu_milli=1_000, same_domain=True)
    for request in (cards, domain):
        [reason] = answers(a_snapshot(a_pool(nodes=apart), departments, [request]))["w"].reasons
        assert reason == Fragmented(4, 2, empty=True)


def test_claim_larger_than_the_present_capacity_of_a_short_pool_waits() -> None:
    pool = a_pool(nodes=nodes(4), nominal=8)
    decision = answers(a_snapshot(pool, [a_department("a", 8)], [pending("w", "a", 8)]))["w"]
    assert decision.decision is WAIT
    assert PoolShort(4) in decision.reasons


def test_victims_free_a_place_where_the_claim_fits() -> None:
    pool = a_pool(nodes=nodes(4, 4))
    claims = [
        holding("a1", "b", 2, placement=(Placed(0, "n1", (0, 1)),), checkpointed_at=0),
        holding("a2", "b", 2, placement=(Placed(0, "n1", (2, 3)),)),
        holding("b1", "b", 2, placement=(Placed(0, "n2", (0, 1)),), checkpointed_at=0),
        holding("b2", "b", 2, placement=(Placed(0, "n2", (2, 3)),), priority=7),
        pending("w", "a", 4),
    ]
    decision = answers(a_snapshot(pool, [a_department("a", 4), a_department("b", 4)], claims))["w"]
    assert decision.victims == ("a1", "a2")
    assert decision.placement == (Placed(0, "n1", (0, 1, 2, 3)),)


def test_a_gang_starts_together_or_not_at_all() -> None:
    pool = a_pool(nodes=nodes(4, 4))
    claims = [holding("h", "a", 1, placement=(Placed(0, "n1", (0,)),)), pending("w", "a", 4, pods=2)]
    decided = answers(a_snapshot(pool, [a_department("a", 9)], claims))["w"]
    assert WaitingForGang(1, 2) in decided.reasons or NotEnough("gpu", 1) in decided.reasons
    alone = answers(a_snapshot(pool, [a_department("a", 8)], [pending("w", "a", 4, pods=2)]))["w"]
    assert [placed.node for placed in alone.placement or ()] == ["n1", "n2"]


def test_a_gang_reclaims_over_several_nodes() -> None:
    pool = a_pool(nodes=nodes(2, 2))
    claims = [
        holding("x", "b", 2, placement=(Placed(0, "n1", (0, 1)),)),
        holding("y", "b", 2, placement=(Placed(0, "n2", (0, 1)),)),
        pending("w", "a", 1, pods=2),
    ]
    decision = answers(a_snapshot(pool, [a_department("a", 2), a_department("b", 2)], claims))["w"]
    assert (decision.decision, len(decision.victims)) == (RECLAIM, 1)


def test_a_part_of_a_card_goes_to_the_fullest_card_that_has_room() -> None:
    pool = a_pool(unit="MiB", nodes=nodes(2, units=16384))
    claims = [holding("h", "a", 8192, placement=(Placed(0, "n1", (1,)),)), pending("w", "a", 4096)]
    decision = answers(a_snapshot(pool, [a_department("a", 32768)], claims))["w"]
    assert decision.placement == (Placed(0, "n1", (1,)),)


def test_part_of_a_card_is_placed_where_it_leaves_a_useful_remainder() -> None:
    """On cards of 100 units: beside h1 15 would be left, beside h2 25, beside h3 28. Beside h4 nothing is left, which is best."""

    def chosen(*used: int) -> str:
        held = [holding(f"h{n}", "a", u, placement=(Placed(0, f"n{n}", (0,)),)) for n, u in enumerate(used, start=1)]
        pool = a_pool(nodes=nodes(*[1] * len(used), units=100), unit="milli", units_per_card=100)
        [placed] = (
            answers(a_snapshot(pool, [a_department("a", 400)], [*held, pending("w", "a", 50)]))["w"].placement or ()
        )
        return placed.node

    assert [chosen(35, 25), chosen(35, 25, 22), chosen(35, 25, 22, 50)] == ["n2", "n2", "n4"]
    assert [chosen(30, 29), chosen(31, 29)] == ["n1", "n2"]  # requests of 20 units are common, of 19 not
    assert chosen(35, 10) == "n1"  # twice 15 is less than 40


def test_memory_and_compute_of_a_card_are_both_limits() -> None:
    pool = a_pool(unit="MiB", nodes=(Node("n1", (Card(16384, 100), Card(16384, 100))),))
    claims = [
        holding("h", "a", 1024, cores_per_pod=90, placement=(Placed(0, "n1", (0,)),)),
        pending("w", "a", 1024, cores_per_pod=20),
    ]
    assert answers(a_snapshot(pool, [a_department("a", 32768)], claims))["w"].placement == (Placed(0, "n1", (1,)),)


def test_among_equal_victims_those_leaving_least_fragmentation_are_preempted() -> None:
    """One victim on n1 or one on n2 would be enough. On n2 a card would be left over beside the place, on n1 none is."""
    pool = a_pool(nodes=nodes(4, 4))
    claims = [
        holding("z", "b", 2, placement=(Placed(0, "n1", (0, 1)),)),
        holding("x", "c", 2, placement=(Placed(0, "n1", (2, 3)),)),
        holding("a", "b", 2, placement=(Placed(0, "n2", (0, 1)),)),
        holding("y", "c", 1, placement=(Placed(0, "n2", (2,)),)),
        pending("w", "a", 2),
    ]
    departments = [a_department("a", 2), a_department("b"), a_department("c", 3)]
    decision = answers(a_snapshot(pool, departments, claims))["w"]
    assert (decision.victims, decision.placement) == (("z",), (Placed(0, "n1", (0, 1)),))


def test_charge_for_compute_occupies_no_memory_of_the_card() -> None:
    """`h` takes 1 GiB, but is charged for 90 percent of the compute; the other 15 GiB of its card stay free for a claim that
    needs little compute."""
    pool = a_pool(unit="GiB", nodes=(Node("n1", (Card(16, 100), Card(16, 100))),))
    heavy = resized(holding("h", "a", 0, cores_per_pod=90, placement=(Placed(0, "n1", (0,)),)), 1, pool)
    light = resized(pending("w", "a", 0, cores_per_pod=10), 15, pool)
    assert (heavy.units, heavy.on_card, light.units, light.asked_per_pod) == (15, 1, 15, None)
    department = [a_department("a", 32)]
    assert answers(a_snapshot(pool, department, [heavy, light]))["w"].placement == (Placed(0, "n1", (0,)),)
    more = resized(pending("w", "a", 0, cores_per_pod=11), 15, pool)
    assert answers(a_snapshot(pool, department, [heavy, more]))["w"].placement == (Placed(0, "n1", (1,)),)


def test_cpu_and_memory_of_a_node_are_limits_across_its_pools() -> None:
    first = a_pool(nodes=nodes(2, cpu_milli=8000, memory_mib=1000))
    second = Pool("other", nodes=nodes(2, cpu_milli=8000, memory_mib=1000))
    claims = [
        holding("h", "a", 1, cpu_milli=6000, pool="other", placement=(Placed(0, "n1", (0,)),)),
        pending("w", "a", 1, cpu_milli=4000),
    ]
    assert answers(a_snapshot([first, second], [a_department("a", 2)], claims))["w"].decision is WAIT
    assert answers(a_snapshot([first, second], [a_department("a", 2)], claims[1:]))["w"].decision is ADMIT


def on(node: str, *cards: int) -> tuple[Placed, ...]:
    return (Placed(0, node, cards),)


OWNERS = [a_department("a", 4), a_department("b", 3), a_department("c", 1)]
MIXED = [  # on each node one card within b's guarantee, which is not preempted
    holding("b1", "b", 1, placement=on("n1", 0)),
    holding("b2", "b", 1, placement=on("n2", 0)),
    holding("c1", "c", 1, placement=on("n1", 1)),
    holding("c2", "c", 1, placement=on("n2", 1)),
]


def test_claim_inside_its_guarantee_waits_with_no_node_to_clear() -> None:
    pool = a_pool(nodes=nodes(4, 4))
    decision = answers(a_snapshot(pool, OWNERS, [*MIXED, pending("w", "a", 4)]))["w"]
    assert (decision.decision, decision.victims, decision.reasons[0]) == (WAIT, (), NoNodeToClear(3))
    assert isinstance(decision.reasons[1], Fragmented)
    gang = answers(a_snapshot(pool, [a_department("a", 6), *OWNERS[1:]], [*MIXED, pending("w", "a", 2, pods=3)]))["w"]
    assert (gang.decision, gang.reasons[0]) == (WAIT, NoNodeToClear(4))
    starving = pending("s", "d", 4, submitted_at=-9_000)  # its hold is passed by claims inside their guarantee
    behind = answers(a_snapshot(pool, [*OWNERS, a_department("d")], [*MIXED, starving, pending("w", "a", 4)]))["w"]
    assert (behind.decision, behind.reasons[0]) == (WAIT, NoNodeToClear(3))
    cleared = answers(a_snapshot(pool, OWNERS, [*MIXED, pending("w", "a", 3)]))["w"]
    assert (cleared.decision, len(cleared.victims)) == (RECLAIM, 1)


def test_borrowers_and_claims_that_lack_units_do_not_get_no_node_to_clear() -> None:
    pool = a_pool(nodes=nodes(4, 4))
    borrower = answers(a_snapshot(pool, [a_department("a", 3), *OWNERS[1:]], [*MIXED, pending("w", "a", 4)]))["w"]
    protected = [replace(claim, min_runtime=900, started_at=0) for claim in MIXED]
    young = answers(a_snapshot(pool, OWNERS, [*protected, pending("w", "a", 3)], now=10))["w"]
    for decision in (borrower, young):
        assert decision.decision is WAIT
        assert not any(isinstance(reason, NoNodeToClear) for reason in decision.reasons)


def test_mig_on_a_fixed_geometry_is_counted_by_profile() -> None:
    pool = a_pool(unit="slice", mig="A100-80GB", nodes=(Node("n1", instances={"3g.40gb": 1, "1g.10gb": 4}),))
    departments = [a_department("a", 8)]
    claims = [pending("w", "a", 4, profile="3g.40gb"), pending("v", "a", 4, profile="3g.40gb", submitted_at=0)]
    decided = answers(a_snapshot(pool, departments, claims))
    assert (decided["w"].decision, decided["w"].placement) == (ADMIT, (Placed(0, "n1"),))
    assert (decided["v"].decision, decided["v"].reasons) == (WAIT, (Fragmented(4, 1, moves=()),))


def test_mig_victims_free_an_instance_of_the_right_profile() -> None:
    pool = a_pool(unit="slice", mig="A100-80GB", nodes=(Node("n1", instances={"3g.40gb": 1, "1g.10gb": 4}),))
    claims = [
        holding("big", "b", 4, profile="3g.40gb", placement=(Placed(0, "n1"),)),
        *(holding(f"s{n}", "b", 1, profile="1g.10gb", placement=(Placed(0, "n1"),)) for n in range(4)),
        pending("w", "a", 4, profile="3g.40gb"),
    ]
    decision = answers(a_snapshot(pool, [a_department("a", 4), a_department("b", 4)], claims))["w"]
    assert (decision.decision, decision.victims) == (RECLAIM, ("big",))


def test_mig_on_freely_cut_cards_starts_only_at_listed_slices() -> None:
    pool = a_pool(unit="slice", mig="A100-80GB", nodes=nodes(1, units=8))
    claims = [
        holding("h", "a", 1, profile="1g.10gb", placement=(Placed(0, "n1", (0,), 1),)),
        pending("w", "a", 4, profile="3g.40gb"),
        pending("v", "a", 4, profile="4g.40gb", submitted_at=0),
    ]
    decided = answers(a_snapshot(pool, [a_department("a", 8)], claims))
    assert decided["w"].placement == (Placed(0, "n1", (0,), 4),)
    assert decided["v"].decision is WAIT


def test_unknown_profile_is_impossible() -> None:
    pool = a_pool(unit="slice", mig="A30", nodes=nodes(1, units=4))
    claims = [pending("w", "a", 0, profile="3g.40gb")]
    decision = answers(a_snapshot(pool, [a_department("a", 4)], claims))["w"]
    assert (decision.decision, decision.reasons) == (IMPOSSIBLE, (NoSuchProfile(),))


def test_same_domain_gang_is_placed_in_one_domain() -> None:
    first, second, third = nodes(2, 2, 2)
    spread = (replace(first, domain="r1"), replace(second, domain="r2"), replace(third, domain="r2"))
    decision = answers(
        a_snapshot(a_pool(nodes=spread), [a_department("a", 6)], [pending("w", "a", 2, pods=2, same_domain=True)])
    )["w"]
    assert [placed.node for placed in decision.placement or ()] == ["n2", "n3"]


def test_whole_cards_are_placed_where_fewest_cards_are_left_without_cpu() -> None:
    """On n1 the pod would leave 3 cards without CPU; on n2, which has more free cards, none."""
    machines = (Node("n1", (Card(),) * 4, cpu_milli=40_000), Node("n2", (Card(),) * 8, cpu_milli=160_000))
    hungry = pending("w", "a", 1, cpu_milli=40_000)
    assert answers(a_snapshot(a_pool(nodes=machines), [a_department("a", 12)], [hungry]))["w"].placement == (
        Placed(0, "n2", (0,)),
    )
    modest = pending("w", "a", 1, cpu_milli=10_000)
    assert answers(a_snapshot(a_pool(nodes=machines), [a_department("a", 12)], [modest]))["w"].placement == (
        Placed(0, "n1", (0,)),
    )


def test_cards_used_outside_the_quota_are_no_capacity() -> None:
    node = Node("n1", (Card(1), Card(1, outside=1), Card(1), Card(1, outside=3)))
    pool = a_pool(nodes=(node,), nominal=4)
    decided = answers(a_snapshot(pool, [a_department("a", 4)], [pending("w", "a", 2), pending("x", "a", 1)]))
    assert decided["w"].placement == (Placed(0, "n1", (0, 2)),)
    assert decided["x"].reasons == (NotEnough(POOL, 1), PoolShort(2))
    written = snapshot_to_json(a_snapshot(pool, [a_department("a", 4)], []))
    assert written["pools"][0]["nodes"][0]["cards"][1] == {"outside": 1}
    assert parse_snapshot(written).pools == (pool,)


def test_shared_card_partly_used_outside_the_quota_is_no_whole_card() -> None:
    node = Node("n1", (Card(10, outside=4), Card(10, outside=4)))
    pool = a_pool(nodes=(node,), unit="GiB", nominal=20)
    claims = [pending("part", "a", 6), pending("whole", "a", 10), pending("two", "a", 20)]
    decided = answers(a_snapshot(pool, [a_department("a", 20)], claims))
    assert decided["part"].decision is ADMIT
    assert (decided["whole"].decision, decided["two"].decision) == (WAIT, WAIT)


def test_use_outside_the_quota_occupies_the_last_slices_of_a_mig_card() -> None:
    pool = a_pool(nodes=(Node("n1", (Card(8, outside=4),)),), unit="slice", mig="A100-80GB", nominal=8)
    requests = [pending("w", "a", 4, profile="3g.40gb"), pending("x", "a", 1, profile="1g.10gb")]
    decided = answers(a_snapshot(pool, [a_department("a", 8)], requests))
    assert decided["w"].placement == (Placed(0, "n1", (0,), 0),)
    assert decided["x"].decision is WAIT

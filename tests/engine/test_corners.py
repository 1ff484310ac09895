"""Edge cases that ordinary snapshots do not reach."""

from dataclasses import replace

import pytest

from quotas.engine.pass_state import Departures
from quotas.engine.placement import Space, best_spot, rooms_of
from quotas.engine.quota_tree import usage_of
from quotas.engine.reasons import DepartmentPaused, Fragmented, HeldFor, Machine, NotEnough, OverBorrowLimit, PoolShort
from quotas.engine.reservations import initial_state, leavers_needed
from quotas.engine.snapshot_json import parse_snapshot, policy_from_json, snapshot_to_json
from quotas.engine.types import BorrowPreempt, Card, Node, Placed, Reservation
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
from tests.engine.invariants import names


def test_pool_without_nodes_or_capacity_has_the_sum_of_the_guarantees() -> None:
    stranger = replace(a_department("c"), quotas={})
    snapshot = a_snapshot(a_pool(), [a_department("a", 2), a_department("b", 1), stranger], [pending("w", "a", 3)])
    assert answers(snapshot)["w"].decision == "admit"


def test_paused_department_gives_up_its_reservation() -> None:
    claims = [
        leaving("l", "b", 2, preempted_for="w"),
        pending("w", "a", 2, reserved=Reservation(2)),
        pending("v", "c", 2),
    ]
    departments = [a_department("a", 2, paused=True), a_department("b"), a_department("c", 2)]
    decided = answers(a_snapshot(a_pool(4), departments, [*claims, holding("h", "b", 2)]))
    assert (decided["w"].decision, decided["w"].reasons) == ("wait", (DepartmentPaused(),))
    assert decided["v"].waiting_on == ("l",)


def test_holds_are_computed_again_after_a_preemption() -> None:
    departments = [a_department("a", 4, policy=a_policy(reclaim="never")), a_department("b"), a_department("c", 2)]
    claims = [holding("h", "b", 2), holding("i", "b", 4), pending("w", "a", 4), pending("v", "c", 2)]
    decided = answers(a_snapshot(a_pool(6), departments, claims))
    assert (decided["w"].decision, decided["w"].position) == ("wait", 1)
    assert decided["v"].victims == ("h",)


def test_claim_larger_than_the_present_capacity_gets_no_hold() -> None:
    snapshot = a_snapshot(
        a_pool(2, nominal=4), [a_department("a", 4), a_department("b")], [pending("w", "a", 4), pending("v", "b", 1)]
    )
    decided = answers(snapshot)
    assert decided["w"].reasons == (NotEnough("gpu", 3), PoolShort(2))  # after all starts of the pass
    assert decided["v"].decision == "admit"


def test_a_recall_of_slices_needs_no_profile() -> None:
    pool = a_pool(unit="slice", mig="A30", nodes=(Node("n1", (Card(4),)),))
    assert answers(a_snapshot(pool, [a_department("a", 4)], [pending("r", "a", 3, pods=0)]))["r"].decision == "admit"


def test_reservation_counts_as_usage() -> None:
    claims = [
        holding("h", "a", 1),
        pending("w", "a", 2, reserved=Reservation(2)),
        pending("v", "a", 1),
        leaving("l", "a", 1),
    ]
    assert usage_of(a_snapshot(a_pool(4), [a_department("a", 4)], claims), "gpu")["a"].usage == 3  # type: ignore[arg-type,index]


def test_policy_is_parsed_on_its_own() -> None:
    assert policy_from_json({"within": "never"}) == a_policy(within="never")


def test_freely_cut_mig_cards_round_trip_as_json() -> None:
    pool = a_pool(unit="slice", mig="A30", nodes=(Node("n1", (Card(4), Card(4))),))
    snapshot = a_snapshot(pool, [a_department("a", 8)], [])
    assert parse_snapshot(snapshot_to_json(snapshot)) == snapshot


def test_instance_of_a_fixed_geometry_with_a_known_card_counts_once() -> None:
    pool = a_pool(unit="slice", mig="A30", nodes=(Node("n1", (Card(4),), instances={"2g.12gb": 2}),))
    claim = holding("h", "a", 2, profile="2g.12gb")
    space = Space((pool,))
    taken = space.taken(claim, (Placed(0, "n1", (0,)),))
    assert {names(space)[slot]: amount for slot, amount in taken.items()} == {
        "pool/gpu": 2,
        "instance/gpu/n1/2g.12gb": 1,
    }


def test_profile_that_the_product_lacks_has_no_place() -> None:
    pool = a_pool(unit="slice", mig="A30", nodes=(Node("n1", (Card(4),)),))
    space = Space((pool,))
    assert best_spot(pending("w", "a", 8, profile="7g.80gb"), space.hosts["gpu"].values(), space.capacity) is None


def test_leavers_reserved_by_other_claims_come_last() -> None:
    own, unreserved, others = (leaving(id, "b", 1, leave_by=by) for id, by in (("m", 30), ("n", 20), ("o", 10)))
    me, other = pending("me", "a", 1), pending("other", "a", 1)
    departures = Departures(lambda leaver: leaver.leave_by or 0, {other.id})
    for leaver in (own, unreserved, others):
        departures.enter(leaver)
    departures.wait_for(own, me)
    departures.wait_for(others, other)
    departures.wait_for(others, me)  # another claim reserved it already
    assert [leaver.id for leaver in departures.in_turn_for(me)] == ["m", "n", "o"]
    assert [leaver.id for leaver in departures.in_turn_for(me, {"m", "o"})] == ["m", "o"]  # type: ignore[arg-type]
    departures.stay(unreserved)
    departures.stay(others)
    assert [leaver.id for leaver in departures.in_turn_for(me)] == ["m"]


def test_surplus_of_a_later_victim_replaces_an_earlier_victim_in_the_same_pass() -> None:
    """Two claims inside their guarantees: the surplus of the second one's victim is enough for the first."""
    claims = [
        holding("s", "c", 1, started_at=-100),
        holding("l", "c", 4, started_at=-900),
        pending("w", "a", 1, submitted_at=-20),
        pending("v", "b", 3, submitted_at=-10),
    ]
    departments = [a_department("a", 1), a_department("b", 3), a_department("c", 1)]
    snapshot = a_snapshot(a_pool(5), departments, claims, notice=60)
    decided = answers(snapshot)
    assert decided["v"].victims == ("l",)
    assert decided["w"].decision == "reclaim"
    assert decide(carried_out(snapshot, decide(snapshot))).withdrawn == ()


def test_victims_are_sought_only_on_nodes_with_the_profile() -> None:
    fixed = (Node("n1", (Card(4),), instances={"1g.6gb": 4}), Node("n2", (Card(4),), instances={"2g.12gb": 2}))
    pool = a_pool(unit="slice", mig="A30", nodes=fixed)
    claims = [
        holding("one", "b", 1, profile="1g.6gb", placement=(Placed(0, "n1"),)),
        *(holding(f"two{n}", "b", 2, profile="2g.12gb", placement=(Placed(0, "n2"),)) for n in (1, 2)),
        pending("w", "a", 2, profile="2g.12gb"),
    ]
    decision = answers(a_snapshot(pool, [a_department("a", 4), a_department("b")], claims))["w"]
    assert decision.victims == ("two1",)


@pytest.mark.parametrize("kind", ["cpu_milli", "memory_mib"])
@pytest.mark.parametrize(("asked", "victims"), [(3000, ("h1",)), (7000, ("h1", "h2")), (9000, ())])
def test_victims_free_the_cpu_or_memory_that_a_node_lacks(kind: str, asked: int, victims: tuple[str, ...]) -> None:
    """There are enough cards: only CPU or memory of the node is lacking. A second node is full of non-preemptible work."""
    machine = {kind: 8000}
    pool = a_pool(nodes=nodes(4, 4, **machine))
    claims = [
        holding("h1", "b", 1, started_at=-10, placement=(Placed(0, "n1", (0,)),), **{kind: 4000}),
        holding("h2", "b", 1, placement=(Placed(0, "n1", (1,)),), **{kind: 4000}),
        holding("h3", "c", 1, preemptible=False, placement=(Placed(0, "n2", (0,)),), **{kind: 8000}),
        pending("w", "a", 1, **{kind: asked}),
    ]
    departments = [a_department("a", 2), a_department("b"), a_department("c", 1)]
    decision = answers(a_snapshot(pool, departments, claims))["w"]
    assert decision.victims == victims
    assert decision.decision == ("reclaim" if victims else "impossible")


def test_victims_free_the_compute_that_a_card_lacks() -> None:
    card = Node("n1", (Card(8, cores=100),))
    pool = a_pool(unit="MiB", units_per_card=8, nodes=(card,))
    claims = [
        holding("h", "b", 2, cores_per_pod=80, placement=(Placed(0, "n1", (0,)),)),
        pending("w", "a", 2, cores_per_pod=50),
    ]
    decision = answers(a_snapshot(pool, [a_department("a", 4), a_department("b")], claims))["w"]
    assert decision.victims == ("h",)


def test_claim_that_fits_beside_the_leavers_waits_for_none_of_them() -> None:
    claims = [leaving("l", "b", 2, placement=(Placed(0, "n1", (0, 1)),)), pending("w", "a", 2)]
    snapshot = a_snapshot(a_pool(nodes=nodes(4)), [a_department("a", 4), a_department("b")], claims)
    state = initial_state(snapshot, snapshot.pools[0], *rooms_of(snapshot))
    need = state.need(state.pending[0], (Placed(0, "n1", (2, 3)),))
    assert leavers_needed(state, state.pending[0], need, ()) == ()


def test_claim_does_not_wait_for_a_leaver_that_a_later_one_makes_unnecessary() -> None:
    """`small` leaves first, but `large` alone releases all four units: withdrawing the notice of `small` would delay no
    claim."""
    claims = [leaving("small", "b", 1, leave_by=10), leaving("large", "b", 4, leave_by=100), pending("w", "a", 4)]
    decision = answers(a_snapshot(a_pool(5), [a_department("a", 5), a_department("b")], claims))["w"]
    assert (decision.decision, decision.waiting_on, decision.by) == ("reclaim", ("large",), 100)


def test_only_one_starved_borrower_per_pool_gets_a_hold() -> None:
    """Five cards are free, on several nodes: `first` holds four of them, and `second` does not keep the fifth from
    `newcomer`."""
    claims = [
        holding("h", "a", 2, preemptible=False, placement=(Placed(0, "n1", (0, 1)),)),
        holding("i", "a", 3, preemptible=False, placement=(Placed(0, "n2", (0, 1, 2)),)),
        holding("j", "a", 2, preemptible=False, placement=(Placed(0, "n3", (0, 1)),)),
        pending("first", "b", 4, submitted_at=-9000),
        pending("second", "c", 4, submitted_at=-8000),
        pending("newcomer", "d", 1),
        pending("late", "d", 1, submitted_at=-5),
    ]
    departments = [a_department("a", 12), a_department("b"), a_department("c"), a_department("d")]
    decided = answers(a_snapshot(a_pool(nodes=nodes(4, 4, 4)), departments, claims, starvation_after=3600))
    assert [str(decided[id].decision) for id in ("first", "second", "newcomer", "late")] == [
        "wait", "wait", "admit", "wait",
    ]  # fmt: skip
    assert decided["newcomer"].placement == (Placed(0, "n2", (3,)),)
    assert decided["late"].reasons == (HeldFor("first"),)  # type: ignore[arg-type]


def test_hold_of_a_claim_inside_its_guarantee_binds_other_claims_inside_theirs() -> None:
    claims = [
        holding("h", "c", 2, preemptible=False),
        pending("first", "a", 3, submitted_at=-20),
        pending("second", "b", 1, submitted_at=-10),
    ]
    departments = [a_department("a", 3), a_department("b", 1), a_department("c")]
    decided = answers(a_snapshot(a_pool(4), departments, claims))
    assert [str(decided[id].decision) for id in ("first", "second")] == ["wait", "wait"]


def test_reason_of_an_entitled_claim_names_how_many_units_are_missing() -> None:
    """The leaver counts as gone, so the quotas entitle `w` to four units; but even then no node would have four free."""
    claims = [
        holding("h", "b", 2, preemptible=False, placement=(Placed(0, "n1", (0, 1)),)),
        holding("i", "b", 2, preemptible=False, placement=(Placed(0, "n2", (0, 1)),)),
        leaving("l", "b", 2, placement=(Placed(0, "n1", (2, 3)),)),
        pending("w", "a", 4),
    ]
    decided = answers(a_snapshot(a_pool(nodes=nodes(4, 4)), [a_department("a", 4), a_department("b", 4)], claims))
    assert (decided["w"].decision, decided["w"].reasons) == ("wait", (NotEnough("gpu", 2),))


def test_claim_does_not_wait_for_a_leaver_on_another_node() -> None:
    claims = [
        leaving("soon", "b", 1, leave_by=10, placement=(Placed(0, "n2", (0,)),)),
        leaving("late", "b", 2, leave_by=100, placement=(Placed(0, "n1", (0, 1)),)),
        holding("h", "b", 1, preemptible=False, placement=(Placed(0, "n2", (1,)),)),
        pending("w", "a", 4),
    ]
    decided = answers(a_snapshot(a_pool(nodes=nodes(4, 4)), [a_department("a", 4), a_department("b", 4)], claims))
    assert (decided["w"].placement, decided["w"].waiting_on) == ((Placed(0, "n1", (0, 1, 2, 3)),), ("late",))


def test_surplus_of_a_later_victim_is_used_once_and_spares_the_costliest_victim() -> None:
    """`l` is preempted for `v` and frees a fourth card: one pod of `w` is placed there, so that `r` stays; `x` still needs
    `q`."""
    claims = [
        holding("s", "c", 1, placement=(Placed(0, "n1", (0,)),), started_at=-100),
        holding("r", "c", 1, placement=(Placed(0, "n1", (1,)),), started_at=-200),
        holding("q", "c", 1, placement=(Placed(0, "n1", (2,)),), started_at=-300),
        holding("l", "c", 4, placement=(Placed(0, "n2", (0, 1, 2, 3)),), started_at=-900),
        pending("w", "a", 1, pods=2, submitted_at=-30),
        pending("x", "a", 1, submitted_at=-20),
        pending("v", "b", 3, submitted_at=-10),
    ]
    departments = [a_department("a", 3), a_department("b", 3), a_department("c", 1)]
    decided = answers(a_snapshot(a_pool(nodes=nodes(3, 4)), departments, claims))
    assert {id: decided[id].waiting_on for id in "wxv"} == {"w": ("l", "s"), "x": ("q",), "v": ("l",)}
    assert {id: decided[id].victims for id in "wxv"} == {"w": ("s",), "x": ("q",), "v": ("l",)}


def test_claim_does_not_wait_for_a_leaver_on_another_card_of_its_node() -> None:
    claims = [
        leaving("soon", "b", 1, leave_by=10, placement=(Placed(0, "n1", (3,)),)),
        leaving("late", "b", 1, leave_by=100, placement=(Placed(0, "n1", (0,)),)),
        holding("h", "b", 2, preemptible=False, placement=(Placed(0, "n2", (0, 1)),)),
        pending("w", "a", 3),
    ]
    decided = answers(a_snapshot(a_pool(nodes=nodes(4, 4)), [a_department("a", 4), a_department("b", 4)], claims))
    assert (decided["w"].placement, decided["w"].waiting_on) == ((Placed(0, "n1", (0, 1, 2)),), ("late",))


def test_claim_waits_for_every_leaver_whose_units_it_needs() -> None:
    claims = [leaving("l", "b", 2, leave_by=10), leaving("m", "b", 2, leave_by=20), pending("w", "a", 4)]
    decided = answers(a_snapshot(a_pool(4), [a_department("a", 4), a_department("b")], claims))
    assert decided["w"].waiting_on == ("l", "m")


def test_expected_start_of_a_starved_borrower_is_the_first_end_that_frees_enough() -> None:
    """The borrower of three units could start when `h` ends, at 100, though `i` ends later: a claim that ends by then may
    take the free unit."""
    claims = [
        holding("h", "b", 2, preemptible=False, max_runtime=700),
        holding("i", "b", 1, preemptible=False, max_runtime=800),
        pending("w", "a", 3, submitted_at=-9000),
    ]
    departments = [a_department("a", 1), a_department("b", 3), a_department("c")]

    def newcomer(max_runtime: int) -> str:
        request = pending("v", "c", 1, max_runtime=max_runtime)
        return answers(a_snapshot(a_pool(4), departments, [*claims, request], starvation_after=3600))["v"].decision

    assert [newcomer(seconds) for seconds in (99, 100, 101, 200)] == ["admit", "admit", "wait", "wait"]


def test_units_of_a_victim_are_not_counted_again_at_its_maximum_runtime() -> None:
    """The units of `h` go to `owner`. So the three units that `w` waits for are free when `i` ends, at 200, not when `h`
    would have ended."""
    claims = [
        holding("h", "b", 2, max_runtime=700),
        holding("i", "c", 2, preemptible=False, max_runtime=800),
        pending("owner", "a", 2),
        pending("w", "d", 3, submitted_at=-9000),
        pending("v", "e", 1, max_runtime=150),
    ]
    departments = [a_department("a", 2), a_department("b"), a_department("c", 2), a_department("d"), a_department("e")]
    decided = answers(a_snapshot(a_pool(5), departments, claims, starvation_after=3600))
    assert (decided["owner"].victims, decided["w"].decision, decided["v"].decision) == (("h",), "wait", "admit")


def test_claim_made_inside_by_an_own_victim_takes_the_rest_from_the_cheapest_borrower() -> None:
    """`own` must be preempted so that `w` is inside its guarantee; one of the three borrowers is enough, and b's loses least
    work."""
    claims = [
        holding("fixed", "a", 2, preemptible=False),
        holding("own", "a", 1, priority=-1),
        *(holding(f"h{id}", id, 1, checkpointed_at=-at) for id, at in (("b", 10), ("c", 20), ("d", 30))),
        pending("w", "a", 2),
    ]
    departments = [a_department("a", 4), *(a_department(id) for id in "bcd")]
    decision = answers(a_snapshot(a_pool(6), departments, claims))["w"]
    assert (decision.decision, decision.victims, decision.borrowed) == ("reclaim", ("hb", "own"), 0)


def test_two_borrowers_with_borrow_preempt_take_different_victims() -> None:
    policy = a_policy(borrow_preempt=BorrowPreempt())
    claims = [
        holding("hb", "b", 2, priority=-1, checkpointed_at=-10),
        holding("hc", "c", 2, priority=-1, checkpointed_at=-20),
        pending("v", "a", 2, submitted_at=-20),
        pending("w", "a", 2, submitted_at=-10),
    ]
    departments = [a_department("a", policy=policy), a_department("b"), a_department("c")]
    decided = answers(a_snapshot(a_pool(4), departments, claims))
    assert [decided[id].victims for id in ("v", "w")] == [("hb",), ("hc",)]
    assert [(decided[id].own, decided[id].borrowed) for id in ("v", "w")] == [(0, 2), (0, 2)]


def test_mig_place_with_non_preemptible_work_is_not_cleared() -> None:
    """A 3g can start at slice 0 or 4 of an A100: at 0 runs non-preemptible work, at 4 a borrower."""
    pool = a_pool(unit="slice", mig="A100-80GB", nodes=(Node("n1", (Card(8),)),))

    def part(slice_: int) -> tuple[Placed, ...]:
        return (Placed(0, "n1", (0,), slice_),)

    claims = [
        holding("stays", "c", 1, profile="1g.10gb", preemptible=False, placement=part(0)),
        holding("lent", "b", 3, profile="3g.40gb", placement=part(4)),
        pending("w", "a", 3, profile="3g.40gb"),
    ]
    decision = answers(a_snapshot(pool, [a_department("a", 4), a_department("b"), a_department("c", 1)], claims))["w"]
    assert decision.victims == ("lent",)


def test_reasons_name_the_parent_department_and_the_missing_device() -> None:
    assert "parent department" in OverBorrowLimit(limit=2, asked=3, department="science").sentence
    assert "The department would" in OverBorrowLimit(limit=2, asked=3).sentence
    assert "wait until a node is free" in Fragmented(4, 2).advice
    asks_for_nics = Machine("n1", 8, 8, 1, 1, lacking="rdma/hca", has=1, asked=2)
    assert Fragmented(4, 0, machine=asks_for_nics).sentence == asks_for_nics.sentence
    assert "fewer of these devices" in Fragmented(4, 0, machine=asks_for_nics).advice
    assert Fragmented(4, 2, empty=True).advice == "Request fewer units per pod."


def test_value_that_json_cannot_express_is_rejected_by_name() -> None:
    with pytest.raises(TypeError, match=r"1\.5 has no JSON"):
        snapshot_to_json(a_snapshot(a_pool(4), [a_department("a", 1.5)], []))  # type: ignore[arg-type]

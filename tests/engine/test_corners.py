"""Corners that everyday snapshots do not reach, one sentence each."""

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


def test_a_pool_of_which_nothing_is_said_has_what_is_guaranteed() -> None:
    stranger = replace(a_department("c"), quotas={})
    snapshot = a_snapshot(a_pool(), [a_department("a", 2), a_department("b", 1), stranger], [pending("w", "a", 3)])
    assert answers(snapshot)["w"].decision == "admit"


def test_a_department_paused_while_it_waits_for_others_gives_up_its_reservation() -> None:
    claims = [
        leaving("l", "b", 2, held_for="w"),
        pending("w", "a", 2, reserved=Reservation(2)),
        pending("v", "c", 2),
    ]
    departments = [a_department("a", 2, paused=True), a_department("b"), a_department("c", 2)]
    decided = answers(a_snapshot(a_pool(4), departments, [*claims, holding("h", "b", 2)]))
    assert (decided["w"].decision, decided["w"].reasons) == ("wait", (DepartmentPaused(),))
    assert decided["v"].waiting_on == ("l",)


def test_holds_are_made_anew_once_somebody_is_told() -> None:
    departments = [a_department("a", 4, policy=a_policy(reclaim="never")), a_department("b"), a_department("c", 2)]
    claims = [holding("h", "b", 2), holding("i", "b", 4), pending("w", "a", 4), pending("v", "c", 2)]
    decided = answers(a_snapshot(a_pool(6), departments, claims))
    assert (decided["w"].decision, decided["w"].position) == ("wait", 1)
    assert decided["v"].victims == ("h",)


def test_what_the_present_capacity_cannot_hold_holds_nothing() -> None:
    snapshot = a_snapshot(
        a_pool(2, nominal=4), [a_department("a", 4), a_department("b")], [pending("w", "a", 4), pending("v", "b", 1)]
    )
    decided = answers(snapshot)
    assert decided["w"].reasons == (NotEnough("gpu", 3), PoolShort(2))  # once all who can have started
    assert decided["v"].decision == "admit"


def test_a_recall_of_slices_needs_no_profile() -> None:
    pool = a_pool(unit="slice", mig="A30", nodes=(Node("n1", (Card(4),)),))
    assert answers(a_snapshot(pool, [a_department("a", 4)], [pending("r", "a", 3, pods=0)]))["r"].decision == "admit"


def test_a_reservation_is_use() -> None:
    claims = [
        holding("h", "a", 1),
        pending("w", "a", 2, reserved=Reservation(2)),
        pending("v", "a", 1),
        leaving("l", "a", 1),
    ]
    assert usage_of(a_snapshot(a_pool(4), [a_department("a", 4)], claims), "gpu")["a"].usage == 3  # type: ignore[arg-type,index]


def test_a_policy_alone_is_read() -> None:
    assert policy_from_json({"within": "never"}) == a_policy(within="never")


def test_cards_that_mig_cuts_are_read() -> None:
    pool = a_pool(unit="slice", mig="A30", nodes=(Node("n1", (Card(4), Card(4))),))
    snapshot = a_snapshot(pool, [a_department("a", 8)], [])
    assert parse_snapshot(snapshot_to_json(snapshot)) == snapshot


def test_an_instance_whose_card_was_read_back_counts_once() -> None:
    pool = a_pool(unit="slice", mig="A30", nodes=(Node("n1", (Card(4),), instances={"2g.12gb": 2}),))
    claim = holding("h", "a", 2, profile="2g.12gb")
    space = Space((pool,))
    taken = space.taken(claim, (Placed(0, "n1", (0,)),))
    assert {names(space)[slot]: amount for slot, amount in taken.items()} == {
        "pool/gpu": 2,
        "instance/gpu/n1/2g.12gb": 1,
    }


def test_a_profile_that_the_product_does_not_have_has_no_place() -> None:
    pool = a_pool(unit="slice", mig="A30", nodes=(Node("n1", (Card(4),)),))
    space = Space((pool,))
    assert best_spot(pending("w", "a", 8, profile="7g.80gb"), space.hosts["gpu"].values(), space.capacity) is None


def test_who_leaves_for_others_comes_last() -> None:
    mine, nobodys, others = (leaving(id, "b", 1, leave_by=by) for id, by in (("m", 30), ("n", 20), ("o", 10)))
    me, other = pending("me", "a", 1), pending("other", "a", 1)
    departures = Departures(lambda leaver: leaver.leave_by or 0, {other.id})
    for leaver in (mine, nobodys, others):
        departures.enter(leaver)
    departures.wait_for(mine, me)
    departures.wait_for(others, other)
    departures.wait_for(others, me)  # it does for another already
    assert [leaver.id for leaver in departures.in_turn_for(me)] == ["m", "n", "o"]
    assert [leaver.id for leaver in departures.in_turn_for(me, {"m", "o"})] == ["m", "o"]  # type: ignore[arg-type]
    departures.stay(nobodys)
    departures.stay(others)
    assert [leaver.id for leaver in departures.in_turn_for(me)] == ["m"]


def test_a_victim_is_needed_no_longer_in_the_same_pass_when_a_later_round_finds_better() -> None:
    """Two owners; what the second one's victim frees beyond need is enough for the first."""
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


def test_without_a_profile_on_the_node_there_is_no_site() -> None:
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
def test_victims_give_the_cpu_and_memory_that_a_node_lacks(kind: str, asked: int, victims: tuple[str, ...]) -> None:
    """The cards would do: only the machine's own is lacking. A second node is full of work that nobody may stop."""
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


def test_victims_give_the_compute_that_a_card_lacks() -> None:
    card = Node("n1", (Card(8, cores=100),))
    pool = a_pool(unit="MiB", units_per_card=8, nodes=(card,))
    claims = [
        holding("h", "b", 2, cores_per_pod=80, placement=(Placed(0, "n1", (0,)),)),
        pending("w", "a", 2, cores_per_pod=50),
    ]
    decision = answers(a_snapshot(pool, [a_department("a", 4), a_department("b")], claims))["w"]
    assert decision.victims == ("h",)


def test_who_needs_nobody_gone_waits_for_nobody() -> None:
    claims = [leaving("l", "b", 2, placement=(Placed(0, "n1", (0, 1)),)), pending("w", "a", 2)]
    snapshot = a_snapshot(a_pool(nodes=nodes(4)), [a_department("a", 4), a_department("b")], claims)
    state = initial_state(snapshot, snapshot.pools[0], *rooms_of(snapshot))
    need = state.need(state.pending[0], (Placed(0, "n1", (2, 3)),))
    assert leavers_needed(state, state.pending[0], need, ()) == ()


def test_a_claim_waits_for_nobody_whom_a_later_one_makes_needless() -> None:
    """The small one leaves first, but the large one alone gives all four: withdrawing the small one would delay nobody."""
    claims = [leaving("small", "b", 1, leave_by=10), leaving("large", "b", 4, leave_by=100), pending("w", "a", 4)]
    decision = answers(a_snapshot(a_pool(5), [a_department("a", 5), a_department("b")], claims))["w"]
    assert (decision.decision, decision.waiting_on, decision.by) == ("reclaim", ("large",), 100)


def test_one_starving_borrower_of_a_pool_holds_and_no_second() -> None:
    """Five are free, apart: the first holds four of them, and the fifth is not kept from a newcomer by the second."""
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


def test_what_one_inside_its_guarantee_holds_no_other_takes_who_is_inside_too() -> None:
    claims = [
        holding("h", "c", 2, preemptible=False),
        pending("first", "a", 3, submitted_at=-20),
        pending("second", "b", 1, submitted_at=-10),
    ]
    departments = [a_department("a", 3), a_department("b", 1), a_department("c")]
    decided = answers(a_snapshot(a_pool(4), departments, claims))
    assert [str(decided[id].decision) for id in ("first", "second")] == ["wait", "wait"]


def test_who_has_the_right_but_not_the_units_is_told_how_many_are_lacking() -> None:
    """Someone leaves, so by right there are four for it; but those would not be together even then."""
    claims = [
        holding("h", "b", 2, preemptible=False, placement=(Placed(0, "n1", (0, 1)),)),
        holding("i", "b", 2, preemptible=False, placement=(Placed(0, "n2", (0, 1)),)),
        leaving("l", "b", 2, placement=(Placed(0, "n1", (2, 3)),)),
        pending("w", "a", 4),
    ]
    decided = answers(a_snapshot(a_pool(nodes=nodes(4, 4)), [a_department("a", 4), a_department("b", 4)], claims))
    assert (decided["w"].decision, decided["w"].reasons) == ("wait", (NotEnough("gpu", 2),))


def test_who_leaves_elsewhere_is_not_waited_for() -> None:
    claims = [
        leaving("soon", "b", 1, leave_by=10, placement=(Placed(0, "n2", (0,)),)),
        leaving("late", "b", 2, leave_by=100, placement=(Placed(0, "n1", (0, 1)),)),
        holding("h", "b", 1, preemptible=False, placement=(Placed(0, "n2", (1,)),)),
        pending("w", "a", 4),
    ]
    decided = answers(a_snapshot(a_pool(nodes=nodes(4, 4)), [a_department("a", 4), a_department("b", 4)], claims))
    assert (decided["w"].placement, decided["w"].waiting_on) == ((Placed(0, "n1", (0, 1, 2, 3)),), ("late",))


def test_what_a_later_ones_victim_leaves_over_is_used_once_and_spares_the_dearest() -> None:
    """`l` must go for `v` and leaves a fourth card: one pod of `w` goes there, so that `r` stays; `x` still needs `q`."""
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


def test_who_leaves_from_another_card_of_the_node_is_not_waited_for() -> None:
    claims = [
        leaving("soon", "b", 1, leave_by=10, placement=(Placed(0, "n1", (3,)),)),
        leaving("late", "b", 1, leave_by=100, placement=(Placed(0, "n1", (0,)),)),
        holding("h", "b", 2, preemptible=False, placement=(Placed(0, "n2", (0, 1)),)),
        pending("w", "a", 3),
    ]
    decided = answers(a_snapshot(a_pool(nodes=nodes(4, 4)), [a_department("a", 4), a_department("b", 4)], claims))
    assert (decided["w"].placement, decided["w"].waiting_on) == ((Placed(0, "n1", (0, 1, 2)),), ("late",))


def test_everybody_is_waited_for_whose_part_the_others_do_not_give() -> None:
    claims = [leaving("l", "b", 2, leave_by=10), leaving("m", "b", 2, leave_by=20), pending("w", "a", 4)]
    decided = answers(a_snapshot(a_pool(4), [a_department("a", 4), a_department("b")], claims))
    assert decided["w"].waiting_on == ("l", "m")


def test_who_waits_may_be_passed_until_the_first_end_that_is_enough_for_it() -> None:
    """The borrower of three starts when `h` ends, at 100, though `i` ends later: who is over by then takes the free one."""
    claims = [
        holding("h", "b", 2, preemptible=False, max_runtime=700),
        holding("i", "b", 1, preemptible=False, max_runtime=800),
        pending("w", "a", 3, submitted_at=-9000),
    ]
    departments = [a_department("a", 1), a_department("b", 3), a_department("c")]

    def newcomer(max_runtime: int) -> str:
        asked = pending("v", "c", 1, max_runtime=max_runtime)
        return answers(a_snapshot(a_pool(4), departments, [*claims, asked], starvation_after=3600))["v"].decision

    assert [newcomer(seconds) for seconds in (99, 100, 101, 200)] == ["admit", "admit", "wait", "wait"]


def test_what_a_victim_gives_is_not_counted_again_at_its_end() -> None:
    """What `h` gives is the owner's. So the three units that `w` waits for are free when `i` ends, at 200, not when `h` would."""
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


def test_who_returns_inside_by_its_own_victim_takes_the_rest_from_the_cheapest_borrower() -> None:
    """One of its own must go for the right; of the three borrowers, of whom one is enough, the least work is lost with b."""
    claims = [
        holding("fixed", "a", 2, preemptible=False),
        holding("own", "a", 1, priority=-1),
        *(holding(f"h{id}", id, 1, checkpointed_at=-at) for id, at in (("b", 10), ("c", 20), ("d", 30))),
        pending("w", "a", 2),
    ]
    departments = [a_department("a", 4), *(a_department(id) for id in "bcd")]
    decision = answers(a_snapshot(a_pool(6), departments, claims))["w"]
    assert (decision.decision, decision.victims, decision.borrowed) == ("reclaim", ("hb", "own"), 0)


def test_two_borrowers_of_high_priority_take_from_one_lender_after_the_other() -> None:
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


def test_a_stretch_of_a_freely_cut_card_with_work_that_stays_is_not_cleared() -> None:
    """A 3g may start at 0 or 4 of an A100: at 0 stands what nobody may stop, at 4 what is lent."""
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


def test_reasons_name_what_is_above_and_beside() -> None:
    assert "parent department" in OverBorrowLimit(limit=2, asked=3, department="science").sentence
    assert "The department would" in OverBorrowLimit(limit=2, asked=3).sentence
    assert "wait until a node is free" in Fragmented(4, 2).advice
    asks_for_nics = Machine("n1", 8, 8, 1, 1, lacking="rdma/hca", has=1, asked=2)
    assert Fragmented(4, 0, machine=asks_for_nics).sentence == asks_for_nics.sentence
    assert "fewer of these devices" in Fragmented(4, 0, machine=asks_for_nics).advice
    assert Fragmented(4, 2, empty=True).advice == "Request fewer units per pod."


def test_what_has_no_json_is_named() -> None:
    with pytest.raises(TypeError, match=r"1\.5 has no JSON"):
        snapshot_to_json(a_snapshot(a_pool(4), [a_department("a", 1.5)], []))  # type: ignore[arg-type]

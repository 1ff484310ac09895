"""Reservations (rule 9) that are reviewed once other claims have started or reserved: no right is counted twice."""

from dataclasses import replace

import pytest

from quotas.engine import planning_pass
from quotas.engine.planning_pass import decide
from quotas.engine.types import Placed, Plan, Reservation, Snapshot
from tests.engine.builders import (
    a_department,
    a_policy,
    a_pool,
    a_snapshot,
    answers,
    carried_out,
    holding,
    leaving,
    nodes,
    pending,
)
from tests.engine.invariants import of_plan
from tests.engine.test_properties import changes_of, reserved


def settled_plan(snapshot: Snapshot) -> Plan:
    """The plan. It breaks no invariant, and the next pass finds nothing to change."""
    plan = decide(snapshot)
    later = carried_out(snapshot, plan)
    again = decide(later)
    assert (of_plan(snapshot, plan), of_plan(later, again)) == ((), ())
    assert (changes_of(again), reserved(again), again.withdrawn) == ([], reserved(plan), ())
    return plan


def waiting_on(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {decision.claim: decision.waiting_on for decision in plan.decisions}


def test_later_borrowing_of_its_department_does_not_cost_a_claim_its_victims() -> None:
    """`more` borrows the surplus of `large`. With it the department is above its guarantee, but `first`, which came before,
    still waits for `small`."""
    claims = [
        *(holding("small", "a", 1), holding("large", "a", 3), holding("kept", "b", 3)),
        pending("first", "c", 3, priority=1, submitted_at=-30),
        pending("second", "c", 2, priority=1, submitted_at=-20),
        pending("more", "c", 1),
    ]
    departments = [a_department("a"), a_department("b", 5, None, 0), a_department("c", 5)]
    plan = settled_plan(a_snapshot(a_pool(11), departments, claims))
    assert waiting_on(plan) == {"first": ("small",), "second": ("large",), "more": ()}


def test_leaver_is_not_promised_to_two_claims() -> None:
    """What is released first is vision's; later claims wait for the leavers that follow."""
    claims = [
        leaving("nlp-1", "nlp", 4, leave_by=180, preempted_for="vision-1", submitted_at=-520),
        holding("nlp-2", "nlp", 8, submitted_at=-519),
        pending("vision-1", "vision", 4, submitted_at=-420, reserved=Reservation(4)),
        pending("nlp-3", "nlp", 4, submitted_at=-518),
        pending("vision-2", "vision", 4, submitted_at=0),
    ]
    departments = [a_department("nlp", 4), a_department("vision", 8)]
    plan = settled_plan(a_snapshot(a_pool(12), departments, claims, notice=600, grace=120))
    assert waiting_on(plan) == {"vision-1": ("nlp-1",), "vision-2": ("nlp-2",), "nlp-3": ("nlp-2",)}
    assert {decision.claim: decision.by for decision in plan.decisions} == {
        "vision-1": 300,
        "vision-2": 720,
        "nlp-3": 720,
    }


def test_borrower_waiting_for_a_leaver_does_not_keep_free_places_from_an_owner() -> None:
    """Its card comes from a leaver whose preemptor has started already; it takes none of the two free cards."""
    pool = a_pool(nodes=nodes(2, 2, 4))
    claims = [
        leaving("leaver", "nlp", 1, leave_by=500, preempted_for="served", placement=(Placed(0, "n2", (0,)),)),
        holding("lender", "nlp", 4, placement=(Placed(0, "n3", (0, 1, 2, 3)),)),
        holding("served", "vision", 1, placement=(Placed(0, "n2", (1,)),)),
        pending("borrower", "nlp", 1, submitted_at=-5000, reserved=Reservation(1, (Placed(0, "n2", (0,)),))),
        pending("owner", "vision", 2, submitted_at=-720, reserved=Reservation(2, (Placed(0, "n1", (0, 1)),))),
    ]
    plan = settled_plan(
        a_snapshot(pool, [a_department("nlp", 0), a_department("vision", 8)], claims, notice=600, grace=120)
    )
    assert {d.claim: (str(d.decision), d.waiting_on) for d in plan.decisions} == {
        "owner": ("admit", ()),
        "borrower": ("reclaim", ("leaver",)),
    }


def test_no_notice_is_withdrawn_while_the_cluster_is_unreachable() -> None:
    """Reservations are not reviewed then, so it is unknown which leavers are still needed."""
    pool = a_pool(4, cluster_unreachable_since=-10)
    assert decide(a_snapshot(pool, [a_department("a")], [leaving("l", "a", 4, preempted_for="gone")])).withdrawn == ()
    assert decide(
        a_snapshot(a_pool(4), [a_department("a")], [leaving("l", "a", 4, preempted_for="gone")])
    ).withdrawn == ("l",)


def test_claim_waits_for_an_unreserved_leaver_beside_its_victims() -> None:
    """By priority `w` could not have preempted `going`; as it leaves anyway, w uses its units, and `new` gives the right."""
    claims = [
        *(holding("run", "a", 5), holding("old", "b", 2), holding("new", "b", 1, submitted_at=-400)),
        leaving("going", "a", 2),
        pending("w", "b", 2, submitted_at=-700, preemptible=False),
    ]
    policy = a_policy(within="lower_or_newer_equal", reclaim="lower_priority")
    plan = settled_plan(a_snapshot(a_pool(10), [a_department("a", 5), a_department("b", 4, policy=policy)], claims))
    assert waiting_on(plan) == {"w": ("going", "new")}


def test_victim_needed_for_the_right_alone_is_awaited_though_another_uses_its_surplus() -> None:
    claims = [holding(id, "a", 3, submitted_at=0, started_at=0) for id in ("h0", "h4")]
    claims += [holding(f"h{n}", "a", 1) for n in (1, 2, 3, 8)]
    claims += [holding("h9", "c", 2), pending("p0", "c", 3), pending("p4", "c", 1)]
    departments = [a_department("a"), a_department("b", 1, None, 0), a_department("c", 5)]
    plan = settled_plan(a_snapshot(a_pool(12), departments, claims))
    assert waiting_on(plan) == {"p0": ("h0", "h4"), "p4": ("h0",)}


def test_victim_of_a_reservation_that_is_given_up_is_not_counted_on() -> None:
    """`before` loses its reservation to `first`, which can start at once; `going`, the victim of `before`, is then not needed
    and stays."""
    claims = [
        holding("kept", "b", 4, priority=1, placement=(Placed(0, "n1", (0, 1, 2, 3)),)),
        holding("other", "a", 1, placement=(Placed(0, "n3", (3,)),)),
        leaving("going", "b", 3, preempted_for="before", placement=(Placed(0, "n3", (0, 1, 2)),)),
        pending("before", "b", 2, priority=1, preemptible=False, reserved=Reservation(2, (Placed(0, "n2", (0, 1)),))),
        pending("first", "b", 1, priority=2, preemptible=False),
    ]
    departments = [a_department("a"), a_department("b", 6, policy=a_policy(within="lower_priority"))]
    plan = settled_plan(a_snapshot(a_pool(nodes=nodes(4, 2, 4)), departments, claims))
    assert waiting_on(plan) == {"before": (), "first": ()}
    assert plan.withdrawn == ("going",)


def test_claim_that_lost_the_right_given_by_anothers_victim_waits_for_another_leaver() -> None:
    """`over` has to release five units before p0 may start. p0 counts on h0 and h6, victims of p1, which then no longer needs
    h0."""
    sizes = {"h0": 1, "h2": 2, "h4": 1, "h5": 2, "h6": 2}
    age = {"h0": 17, "h2": 323, "h4": 260, "h5": 357, "h6": 164}
    claims = [
        *(holding(id, "over", units, started_at=-age[id]) for id, units in sizes.items()),
        *(holding("h1", "b", 2, started_at=-84), holding("h3", "b", 1, started_at=-403)),
        holding("h7", "over", 2, started_at=0, preemptible=False),
        pending("p0", "over", 1, priority=2, submitted_at=-97),
        pending("p1", "b", 2, priority=2, submitted_at=-233, preemptible=False),
    ]
    lower = a_policy(within="lower_priority", reclaim="lower_priority")
    departments = [
        *(a_department("x", 0, 1), a_department("y", parent="x"), a_department("b", 2, parent="y", policy=lower)),
        a_department("over", 6, 0, 1, parent="x", policy=a_policy(within="lower_priority", reclaim="never")),
    ]
    plan = settled_plan(a_snapshot(a_pool(13), departments, claims))
    assert waiting_on(plan) == {"p0": ("h0", "h2"), "p1": ("h1", "h3", "h6")}


@pytest.mark.parametrize("late", ["h3", "h4"])
def test_surplus_of_leavers_that_another_claim_needs_makes_victims_unnecessary(late: str) -> None:
    """p3 preempted h1 and h4, and does not need h4 once h3 is preempted; p0 needs h3 and h4 for its right, so p3 needs no
    victim."""
    cards = {
        "h1": ("n1", 1),
        "h2": ("n1", 2, 3, 4, 5),
        "h3": ("n1", 6, 7),
        "h4": ("n2", 0),
        "h5": ("n2", 1),
        "h6": ("n2", 2),
    }
    cards["h7"] = ("n2", 3, 4)
    owner = {"h1": "b", "h2": "c", "h6": "b"}
    age = {"h1": 156, "h2": 584, "h3": 309, "h4": 238, "h5": 519, "h6": 220, "h7": 584}
    claims = [
        holding(
            id, owner.get(id, "d"), len(at), started_at=-age[id], preemptible=id not in ("h5", "h7"),
            grace=900 if id == late else None, placement=(Placed(0, node, tuple(at)),),
        )
        for id, (node, *at) in cards.items()
    ]  # fmt: skip
    claims += [pending("p0", "d", 1, priority=2, submitted_at=-724, own_only=True), pending("p3", "c", 2)]
    lower = a_policy(within="lower_priority")
    departments = [
        *(a_department("a", 6, 2, 2), a_department("c", 6, 3, 4, policy=lower), a_department("d", 4, policy=lower)),
        *(a_department("x", 0, None, 1), a_department("y", parent="x"), a_department("b", 1, 5, 2, parent="y")),
    ]
    plan = settled_plan(a_snapshot(a_pool(nodes=nodes(8, 8)), departments, claims))
    assert waiting_on(plan) == {"p0": ("h3", "h4"), "p3": ()}
    assert {decision.claim: decision.by for decision in plan.decisions} == {"p0": 900, "p3": None}


def test_claim_does_not_wait_for_cpu_on_a_node_without_a_cpu_limit() -> None:
    """n1 has no known CPU limit: the first leaver's card is enough, and a reserved place is kept."""
    pool = a_pool(unit="milli", units_per_card=8, nodes=nodes(2, 1, units=8))
    claims = [
        leaving("l1", "b", 4, placement=(Placed(0, "n1", (0,)),), cpu_milli=1, leave_by=10),
        leaving("l2", "b", 4, placement=(Placed(0, "n1", (1,)),), cpu_milli=8, leave_by=20),
        holding("h", "b", 8, placement=(Placed(0, "n2", (0,)),)),
        pending("p", "a", 8, cpu_milli=8),
    ]
    snapshot = a_snapshot(pool, [a_department("a", 8), a_department("b", 16)], claims)
    assert answers(snapshot)["p"].waiting_on == ("l1",)
    later = [
        replace(claim, reserved=Reservation(8, (Placed(0, "n1", (1,)),))) if claim.id == "p" else claim
        for claim in claims
    ]
    decision = answers(replace(snapshot, claims=tuple(later)))["p"]
    assert (decision.placement, decision.waiting_on) == ((Placed(0, "n1", (1,)),), ("l2",))


def test_claims_behind_an_earlier_one_that_reserves_later_are_reviewed() -> None:
    """`first` takes the rest of its department's guarantee. So `behind` borrows, and l2, of its own department, need not
    leave."""
    claims = [
        holding("h", "a", 1),
        leaving("l1", "a", 6, preempted_for="behind", leave_by=60),
        leaving("l2", "b", 1, preempted_for="behind", leave_by=60),
        pending("behind", "b", 2, priority=1, submitted_at=-20, reserved=Reservation(2, ())),
        pending("first", "b", 2, priority=2),
    ]
    departments = [a_department("a", 5), a_department("b", 2)]
    plan = decide(a_snapshot(a_pool(8), departments, claims, notice=60))
    assert plan.withdrawn == ("l2",)
    assert {d.claim: d.waiting_on for d in plan.decisions} == {"behind": ("l1",), "first": ("l1",)}


def test_claim_that_may_not_borrow_beside_one_that_must_stay_inside_preempts_own_work() -> None:
    """There would be enough to borrow once l has left, but then `strict` would not be inside the guarantee any more."""
    claims = [
        leaving("l", "a", 3, preempted_for="strict", leave_by=60),
        holding("own", "b", 1),
        pending("strict", "b", 2, preemptible=False, submitted_at=-20, reserved=Reservation(2, ())),
        pending("p", "b", 1, priority=1),
    ]
    plan = decide(a_snapshot(a_pool(5), [a_department("a", 0), a_department("b", 3)], claims, notice=60))
    assert {d.claim: d.victims for d in plan.decisions} == {"strict": (), "p": ("own",)}


def test_reservations_are_reviewed_in_the_order_in_which_they_were_made() -> None:
    """`strict` reserves after `first`, whose units count against its guarantee, so three claims are preempted for both. In
    the opposite order two of them could stay in the next pass."""
    claims = [
        *(holding(f"b{card}", "b", 1, placement=(Placed(0, "n1", (card,)),)) for card in (0, 1, 2)),
        holding("h1", "a", 4, placement=(Placed(0, "n2", (0, 1, 2, 3)),)),
        holding("h2", "a", 3, placement=(Placed(0, "n3", (0, 1, 2)),)),
        holding("h3", "a", 1, placement=(Placed(0, "n1", (3,)),)),
        leaving("l", "a", 2, preempted_for="first", leave_by=60, placement=(Placed(0, "n4", (0, 1)),)),
        pending("first", "a", 4, priority=2, reserved=Reservation(4, (Placed(0, "n4", (0, 1, 2, 3)),))),
        pending("strict", "a", 1, priority=1, preemptible=False),
    ]
    policy = a_policy(within="lower_or_newer_equal", reclaim="any")
    departments = [a_department("a", 5, policy=policy), a_department("b", 0)]
    snapshot = a_snapshot(a_pool(nodes=nodes(4, 4, 4, 4)), departments, claims, notice=60)
    plan = decide(snapshot)
    assert {victim for d in plan.decisions for victim in d.victims} == {"h1", "h2", "h3"}
    assert changes_of(decide(carried_out(snapshot, plan))) == []


@pytest.mark.parametrize("sizes", [(4, 4, 4, 4), (2, 2, 2, 2, 4, 4)])
def test_unneeded_victim_on_which_the_right_of_another_claim_depends_does_not_stay(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest uses the guarantees of others. `big` preempts one of its claims and moves to the place of small's victims. The
    victim of `big` must not stay: `small` would lose its right and preempt as many, and the two would change places until
    ROUNDS."""
    departments = [a_department("keeper", 10, lend_limit=0), a_department("owner", 2), a_department("guest")]
    guests = []
    for turn, size in enumerate(sizes):
        node, card = divmod(sum(sizes[:turn]), 4)
        places = (Placed(0, f"n{node + 1}", tuple(range(card, card + size))),)
        guests.append(holding(f"g{turn}", "guest", size, placement=places))
    asking = [pending("big", "keeper", 4, submitted_at=-100), pending("small", "owner", 1, submitted_at=-10)]
    snapshot = a_snapshot(a_pool(nodes=nodes(4, 4, 4, 4)), departments, [*guests, *asking], notice=600)
    rounds: list[int] = []
    settle = planning_pass.PlanningPass._settle_reservations
    monkeypatch.setattr(
        planning_pass.PlanningPass, "_settle_reservations", lambda done: (rounds.append(1), settle(done))[1]
    )
    plan = decide(snapshot)
    assert len(rounds) == 3
    assert {decision.decision for decision in plan.decisions} == {"reclaim"}
    settled_plan(snapshot)

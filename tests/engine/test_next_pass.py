"""What one pass promises, the next one keeps."""

from dataclasses import replace

from quotas.engine.planning_pass import decide
from quotas.engine.reasons import GuaranteeKeptFor, NotEnough
from quotas.engine.types import BorrowPreempt, Claim, DecisionKind, Placed, Reservation, Snapshot
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
from tests.engine.test_properties import changes_of


def test_department_does_not_borrow_before_its_own_claim_that_must_stay_inside() -> None:
    """Otherwise the department would be above its guarantee when the victims are gone, and the claim could not start."""
    claims = [
        holding("h", "b", 4),
        pending("mine", "a", 4, own_only=True, submitted_at=-20),
        pending("more", "a", 1),
    ]
    snapshot = a_snapshot(a_pool(9, nominal=9), [a_department("a", 4), a_department("b", 2)], claims, notice=60)
    free = [*claims[:1], holding("i", "b", 3), *claims[1:]]
    full = replace(snapshot, claims=tuple(free))
    decided = answers(full)
    assert decided["mine"].decision == "reclaim"
    assert (decided["more"].decision, decided["more"].reasons) == ("wait", (GuaranteeKeptFor("mine"),))
    after = carried_out(full, decide(full))
    without_leavers = replace(after, now=60, claims=tuple(claim for claim in after.claims if claim.state != "leaving"))
    assert answers(without_leavers)["mine"].decision == "admit"


def test_borrower_kept_waiting_by_a_reservation_of_its_department_preempts_nothing() -> None:
    """By priority `more` could preempt h, but it could not start even then. No unit is free: this is the reason that it gets."""
    claims = [
        holding("h", "b", 2),
        leaving("l", "b", 2, preempted_for="mine"),
        pending("mine", "a", 2, own_only=True, reserved=Reservation(2, ())),
        pending("more", "a", 1, priority=1),
    ]
    departments = [a_department("a", 2, policy=a_policy(borrow_preempt=BorrowPreempt())), a_department("b")]
    decided = answers(a_snapshot(a_pool(4), departments, claims))
    assert (decided["more"].victims, decided["more"].reasons) == ((), (NotEnough("gpu", 1),))
    assert decided["mine"].waiting_on == ("l",)


def test_reservation_keeps_its_place_in_later_rounds() -> None:
    """The free card stays reserved, though a card that others release would suit the claim better by then."""
    machines = nodes(4, 4, 4, 2)
    claims = [
        holding("h0", "b", 1, priority=2, placement=(Placed(0, "n1", (0,)),)),
        holding("h1", "c", 3, placement=(Placed(0, "n1", (1, 2, 3)),), submitted_at=-401, started_at=-371),
        holding("h2", "b", 2, placement=(Placed(0, "n2", (0, 1)),), submitted_at=-41, started_at=0),
        holding("h3", "c", 1, priority=2, placement=(Placed(0, "n2", (2,)),), started_at=-257),
        holding("h4", "b", 4, priority=2, placement=(Placed(0, "n3", (0, 1, 2, 3)),), submitted_at=-21, started_at=-1),
        pending("p0", "c", 1, own_only=True, submitted_at=-782),
        pending("p1", "b", 1, own_only=True, priority=2, submitted_at=-713),
        pending("p2", "b", 3, own_only=True, priority=1, submitted_at=-269),
        pending("p3", "b", 1, priority=1, submitted_at=-150),
    ]
    newer = {"within": "lower_or_newer_equal"}
    departments = [
        a_department("a", 3, None, 5, weight=2),
        a_department("b", 5, weight=2, policy=a_policy(**newer, reclaim="lower_priority")),
        a_department("c", 2, 1, 0, weight=3, policy=a_policy(**newer, borrow_preempt=BorrowPreempt())),
    ]
    decided = answers(a_snapshot(a_pool(nodes=machines), departments, claims, fair_sharing=True))
    assert decided["p0"].waiting_on == ("h1",)


def test_claim_whose_right_depended_on_a_withdrawn_victim_is_answered_again() -> None:
    """A recall that is inside its guarantee only while a claim of its department is the victim of another preemptor."""
    machines = nodes(8, 8, 2)
    claims = [
        holding("h0", "c", 4, priority=2, placement=(Placed(0, "n1", (0, 1, 2, 3)),), min_runtime=100, started_at=-603),
        holding("h1", "a", 1, priority=2, placement=(Placed(0, "n1", (4,)),), started_at=-184),
        holding("h2", "c", 2, priority=2, placement=(Placed(0, "n1", (5, 6)),), preemptible=False, started_at=-189),
        holding("h3", "a", 4, priority=2, placement=(Placed(0, "n2", (0, 1, 2, 3)),), started_at=-454),
        holding("h4", "c", 1, placement=(Placed(0, "n1", (7,)),), min_runtime=100, started_at=-51),
        holding("h5", "a", 1, priority=1, placement=(Placed(0, "n2", (4,)),), started_at=-233),
        holding("h6", "b", 1, priority=2, placement=(Placed(0, "n2", (5,)),), started_at=-537),
        holding("h7", "a", 1, placement=(Placed(0, "n2", (6,)),), min_runtime=100, started_at=-843),
        pending("p0", "c", 2, priority=2, own_only=True, submitted_at=-124),
        pending("p1", "a", 3, priority=2, pods=0, submitted_at=-967),
        pending("p2", "d", 1, own_only=True, preemptible=False, submitted_at=-176),
        pending("p3", "b", 2, priority=2, pods=2, submitted_at=-380),
    ]
    departments = [
        a_department("a", 5, 0, 6, weight=3, policy=a_policy(within="lower_or_newer_equal")),
        a_department("b", 3, 4, 4, weight=2),
        a_department("c", 5, 0, 2, weight=3, policy=a_policy(within="never")),
        a_department("d", 4, None, 2, weight=2),
    ]
    snapshot = a_snapshot(a_pool(nodes=machines), departments, claims, fair_sharing=True)
    plan = decide(snapshot)
    again = decide(carried_out(snapshot, plan))
    assert not any(decision.victims for decision in again.decisions)


def test_recall_keeps_every_victim_that_it_needs_when_other_claims_are_reviewed() -> None:
    """p2 needs only one of its two victims once p0 has taken the rest; the other does not stay, as p0 needs it."""
    claims = [holding(f"h{n}", "a", 1) for n in range(8)]
    claims += [pending("p0", "a", 1, pods=0, priority=1), pending("p1", "a", 1), pending("p2", "c", 1)]
    departments = [a_department("a", 1), a_department("b", 1, None, 0), a_department("c", 6)]
    snapshot = a_snapshot(a_pool(8), departments, claims)
    plan = decide(snapshot)
    decided = {decision.claim: decision for decision in plan.decisions}
    assert (decided["p2"].victims, decided["p0"].victims) == (("h0",), tuple(f"h{n}" for n in range(1, 8)))
    again = decide(carried_out(snapshot, plan))
    assert again.withdrawn == ()
    assert not any(decision.victims for decision in again.decisions)


def test_hold_is_passed_within_its_department_only_as_far_as_both_stay_inside_the_guarantee() -> None:
    """p2 waits inside the guarantee of 5 with a hold of 4: of those that end soon p1 passes it; p0 would push it out."""
    claims = [
        holding("h0", "a", 2, placement=(Placed(0, "n1", (0, 1)),), preemptible=False),
        pending("p0", "b", 1, max_runtime=50),
        pending("p1", "b", 1, priority=1, max_runtime=50),
        pending("p2", "b", 2, pods=2, priority=1),
        pending("p3", "a", 1),
    ]
    departments = [a_department("a", 0), a_department("b", 5)]
    snapshot = a_snapshot(a_pool(nodes=nodes(2, 2, 2)), departments, claims)
    plan = decide(snapshot)
    assert {d.claim for d in plan.decisions if d.decision == "admit"} == {"p1"}
    assert {d.decision for d in decide(carried_out(snapshot, plan)).decisions} == {"wait"}


def test_reservations_of_a_department_are_reviewed_together() -> None:
    """A recall has the first right to its guarantee: what it needs is the same whether p2 reserved in this pass or earlier."""
    claims = [*(holding(f"h{n}", "ab"[n // 2], 2) for n in range(4)), pending("p0", "a", 1)]
    claims += [pending("p1", "b", 1, pods=0, priority=1), pending("p2", "b", 2, priority=1)]
    departments = [a_department("x", 1), a_department("a", 5, parent="x"), a_department("b", 4, parent="x")]
    snapshot = a_snapshot(a_pool(10), departments, claims)
    plan = decide(snapshot)
    again = decide(carried_out(snapshot, plan))
    assert again.withdrawn == ()
    assert not any(decision.victims or decision.decision == "admit" for decision in again.decisions)


def test_surplus_of_another_claims_victim_makes_an_own_victim_unnecessary() -> None:
    """p1's victim releases two cards, of which p1 needs one: p0 takes the other, and h0 stays."""
    claims = [
        holding("h0", "a", 1, placement=(Placed(0, "n1", (0,)),)),
        holding("h1", "a", 1, placement=(Placed(0, "n1", (1,)),)),
        holding("h2", "b", 2, placement=(Placed(0, "n1", (2, 3)),)),
        pending("p0", "a", 2, priority=1),
        pending("p1", "b", 1, priority=1),
    ]
    departments = [a_department("a", 2), a_department("b", 2)]
    decided = settled_decisions(a_snapshot(a_pool(nodes=nodes(5)), departments, claims))
    assert decided == {"p0": ("reclaim", ("h2",)), "p1": ("reclaim", ("h2",))}


def test_reviewed_reservation_keeps_its_place() -> None:
    claims = [
        holding("h0", "a", 1, placement=(Placed(0, "n1", (0,)),)),
        holding("h1", "b", 3, placement=(Placed(0, "n1", (1, 2, 3)),)),
        pending("p0", "b", 1),
        pending("p1", "a", 1),
    ]
    departments = [a_department("a", 2), a_department("b", 0), a_department("d", 4, None, 0)]
    departments = [replace(d, policy=a_policy(within="never")) for d in departments]
    decided = answers(a_snapshot(a_pool(nodes=nodes(4, 3)), departments, claims))
    assert (decided["p0"].decision, decided["p0"].placement) == ("admit", (Placed(0, "n2", (0,)),))
    assert (decided["p1"].waiting_on, decided["p1"].placement) == (("h1",), (Placed(0, "n1", (1,)),))


def test_last_claims_in_the_order_compete_again_when_too_much_is_reserved() -> None:
    """Once h4 leaves for p2, p0 no longer needs h1, which stays; p1, the last in the order, would borrow and gives up its
    reservation, not p0."""
    sizes = enumerate((3, 1, 1, 1, 3, 1))
    claims = [holding(f"h{n}", "ab"[n // 5], units, submitted_at=0, started_at=0) for n, units in sizes]
    claims += [pending("p0", "c", 3, priority=1), pending("p1", "c", 1), pending("p2", "c", 1, pods=2, priority=1)]
    departments = [a_department("x", 0), a_department("a", 0, parent="x"), a_department("b", 5, None, 3, parent="x")]
    departments = [
        replace(d, policy=a_policy(within="never")) for d in (*departments, a_department("c", 5, parent="x"))
    ]
    snapshot = a_snapshot(a_pool(10), departments, claims, restart_cost=0)
    plan = decide(snapshot)
    assert {d.claim: d.waiting_on for d in plan.decisions} == {"p0": ("h0",), "p1": (), "p2": ("h4",)}
    again = decide(carried_out(snapshot, plan))
    assert {d.claim: d.waiting_on for d in again.decisions} == {"p0": ("h0",), "p1": (), "p2": ("h4",)}


def test_claim_that_must_stay_inside_counts_starts_of_its_department() -> None:
    """The recall starts without a victim, so both claims of b must leave for p1, which must not borrow."""
    claims = [holding("h0", "a", 1), holding("h1", "a", 2), holding("h2", "b", 2), holding("h3", "b", 2)]
    claims += [pending("p0", "b", 1, pods=0, priority=1), pending("p1", "b", 2, priority=1, preemptible=False)]
    departments = [a_department("x", 0), a_department("a", 4, parent="x"), a_department("b", 4, parent="x")]
    snapshot = a_snapshot(a_pool(8), departments, claims)
    plan = decide(snapshot)
    decided = {decision.claim: decision for decision in plan.decisions}
    assert (decided["p0"].decision, decided["p1"].victims) == ("admit", ("h2", "h3"))
    again = decide(carried_out(snapshot, plan))
    assert (again.withdrawn, [d.victims for d in again.decisions]) == ((), [()])


def test_leaver_does_not_stay_if_a_reservation_would_lose_its_right() -> None:
    """`large` and `borrower` were preempted for `first`, which could start without them; but `second` was promised its start
    because they leave."""
    claims = [
        holding("kept", "a", 1, preemptible=False),
        leaving("small", "a", 1, preempted_for="second"),
        leaving("large", "a", 4, preempted_for="first"),
        leaving("borrower", "a", 2, preempted_for="first"),
        pending("second", "a", 2, priority=1, preemptible=False, submitted_at=-20, reserved=Reservation(2, ())),
        pending("first", "a", 2, priority=2, preemptible=False, reserved=Reservation(2, ())),
    ]
    plan = decide(a_snapshot(a_pool(16), [a_department("a", 5)], claims))
    assert plan.withdrawn == ()
    assert {d.claim: d.waiting_on for d in plan.decisions} == {"first": ("large",), "second": ("small",)}
    wider = decide(a_snapshot(a_pool(16), [a_department("a", 10)], claims))
    assert wider.withdrawn == ("borrower", "large", "small")


def test_leaver_of_a_team_does_not_stay_at_the_cost_of_its_parents_reservation() -> None:
    """A claim that must stay inside the guarantee keeps its reservation; one that may borrow would keep it anyway."""
    departments = [a_department("parent", 4), a_department("team", parent="parent"), a_department("other", 4)]
    leavers = [
        leaving("of-team", "team", 4, preempted_for="gone", leave_by=300),
        leaving("others", "other", 4, leave_by=100),
    ]

    def with_reservation(**more: bool) -> Snapshot:
        reserved = pending("own", "parent", 4, reserved=Reservation(4, ()), **more)
        return a_snapshot(a_pool(8), departments, [*leavers, reserved])

    plan = decide(with_reservation(own_only=True))
    assert (plan.withdrawn, [(d.decision, d.by) for d in plan.decisions]) == ((), [(DecisionKind.RECLAIM, 100)])
    assert decide(with_reservation()).withdrawn == ("of-team",)


def settled_decisions(snapshot: Snapshot) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The decisions, with the leavers that each waits for. The next pass says the same and changes nothing."""
    plan = decide(snapshot)
    assert changes_of(decide(carried_out(snapshot, plan))) == []
    return {d.claim: (d.decision, d.waiting_on) for d in plan.decisions}


def holding_on(id: str, department: str, node: str, *cards: int, **more: object) -> Claim:
    times = {"submitted_at": 0, "started_at": 0, **more}
    return holding(id, department, len(cards), placement=(Placed(0, node, cards),), **times)


def test_claim_does_not_wait_for_the_victim_of_a_claim_that_starts_after_all() -> None:
    """Once `first` starts after all, no claim needs its victim h4: h2 is enough for `second`, which is then placed there."""
    claims = [holding_on("h0", "b", "n1", 0), holding_on("h1", "b", "n1", 1), holding_on("h2", "c", "n1", 2, 3)]
    claims += [
        holding_on("h3", "c", "n2", 0, 1, 2),
        holding_on("h4", "c", "n2", 3),
        holding_on("h5", "a", "n3", 0),
        holding_on("h6", "b", "n3", 1),
    ]
    claims += [pending("second", "b", 1, submitted_at=0), pending("third", "a", 1, submitted_at=0)]
    claims += [pending("first", "b", 2, priority=1, submitted_at=0)]
    departments = [a_department("a", 2, None, 0), a_department("b", 6), a_department("c"), a_department("d", 4)]
    departments = [replace(d, policy=a_policy(within="never")) for d in departments]
    decided = settled_decisions(a_snapshot(a_pool(nodes=nodes(4, 4, 4)), departments, claims))
    assert decided == {"first": ("admit", ()), "second": ("reclaim", ("h2",)), "third": ("reclaim", ("h2",))}


def test_later_reservations_take_no_right_from_those_reviewed_first() -> None:
    """A recall, a claim of the same department and a gang of another department, where a lender keeps all its quota."""
    claims = [holding_on("h0", "a", "n1", 0), holding_on("h1", "a", "n2", 0, 1), holding_on("h2", "a", "n3", 0, 1)]
    claims += [holding_on("h3", "a", "n4", 0, 1), holding_on("h6", "a", "n1", 1)]
    claims += [pending("gang", "b", 1, pods=2, submitted_at=0), pending("one", "a", 1, priority=1, submitted_at=0)]
    claims += [pending("recall", "a", 1, pods=0, priority=2, submitted_at=0)]
    departments = [a_department("a", 5, parent="x"), a_department("b", 4, None, 0, parent="x"), a_department("x")]
    decided = settled_decisions(a_snapshot(a_pool(nodes=nodes(2, 2, 2, 2, 1)), departments, claims))
    assert {kind for kind, _ in decided.values()} == {"reclaim"}


def test_borrower_is_reviewed_when_a_claim_of_its_department_takes_its_right() -> None:
    """p1, a recall, comes after p0 and must stay inside: p0 must not borrow before p1 has started."""
    claims = [
        holding_on("h0", "b", "n1", 0, priority=2),
        holding_on("h1", "a", "n1", 1, 2, started_at=-146),
        holding_on("h2", "a", "n1", 3, preemptible=False),
        holding_on("h3", "b", "n2", 0, 1, 2, 3, started_at=-759),
        holding_on("h4", "a", "n3", 0, 1, priority=2, submitted_at=-281, started_at=-263),
        holding_on("h5", "b", "n3", 2, priority=2),
        holding_on("h6", "a", "n4", 0, 1, priority=1, submitted_at=-108, started_at=-102),
        pending("p0", "a", 3, priority=2, submitted_at=-533),
        pending("p1", "a", 1, pods=0, priority=2, submitted_at=-20),
        pending("p2", "b", 4, pods=0, priority=1, submitted_at=-19),
        pending("p3", "a", 4, priority=2, preemptible=False, submitted_at=-360),
    ]
    departments = [
        a_department("a", 6, 6, 3, weight=2, policy=a_policy(within="lower_or_newer_equal")),
        a_department("b", 6, weight=2, policy=a_policy(reclaim="never", borrow_preempt=BorrowPreempt())),
    ]
    settled_decisions(a_snapshot(a_pool(nodes=nodes(4, 4, 4, 2)), departments, claims, fair_sharing=True))


def test_last_reservation_is_given_up_when_the_pool_shrinks() -> None:
    """Both claims were promised a start when h0 and h1 are gone; since then the pool has lost a unit."""
    claims = [
        leaving("h0", "b", 1, preempted_for="first"),
        leaving("h1", "b", 1, preempted_for="second"),
        pending("first", "a", 1, submitted_at=-20, reserved=Reservation(1, ())),
        pending("second", "a", 1, reserved=Reservation(1, ())),
    ]
    departments = [a_department("a", 0), a_department("b", 0)]
    decided = answers(a_snapshot(a_pool(1), departments, claims))
    assert [(decided[id].decision, decided[id].waiting_on) for id in ("first", "second")] == [
        ("reclaim", ("h0", "h1")),
        ("wait", ()),
    ]


def test_reservation_of_a_borrower_is_given_up_before_one_inside_its_guarantee() -> None:
    claims = [
        leaving("h0", "b", 1, preempted_for="borrower"),
        leaving("h1", "b", 1, preempted_for="owner"),
        pending("borrower", "b", 1, submitted_at=-20, reserved=Reservation(1, ())),
        pending("owner", "a", 1, reserved=Reservation(1, ())),
    ]
    decided = answers(a_snapshot(a_pool(1), [a_department("a", 1), a_department("b")], claims))
    assert (decided["borrower"].decision, decided["owner"].decision) == ("wait", "reclaim")


def test_entitled_claim_keeps_its_reservation_in_a_short_pool() -> None:
    """Each department keeps its guarantee: four units, of which the pool has three. If the reservation were given up,
    `higher` would get the units."""
    claims = [
        leaving("l", "a", 1, preempted_for="first"),
        pending("first", "a", 2, reserved=Reservation(2, ())),
        pending("higher", "a", 2, priority=1),
    ]
    departments = [a_department("a", 3, None, 0), a_department("b", 1, None, 0)]
    decided = answers(a_snapshot(a_pool(3), departments, claims))
    assert (decided["first"].waiting_on, decided["higher"].decision) == (("l",), "wait")


def test_victim_shared_with_a_claim_that_starts_after_all_leaves_for_the_other() -> None:
    """`meek` has a hold on two cards of n2 until h is preempted; then `first` starts there, and h leaves for `second` alone."""
    claims = [
        holding_on("h", "d", "n1", 0, 1, 2, 3, 4),
        holding_on("fixed", "a", "n2", 0, 1, preemptible=False),
        pending("meek", "c", 4, submitted_at=-30),
        pending("first", "a", 2, submitted_at=-20),
        pending("second", "b", 3),
    ]
    departments = [a_department("a", 4), a_department("b", 3), a_department("c", 4), a_department("d")]
    departments[2] = replace(departments[2], policy=a_policy(reclaim="never"))
    snapshot = a_snapshot(a_pool(nodes=nodes(5, 4, 1, 1, 1, 1)), departments, claims)
    decided = answers(snapshot)
    assert (decided["first"].placement, decided["first"].victims) == ((Placed(0, "n2", (2, 3)),), ())
    assert (decided["second"].victims, decided["second"].waiting_on) == (("h",), ("h",))
    settled_decisions(snapshot)


def test_unneeded_victim_stays_before_the_next_claim_is_reviewed() -> None:
    """In a tree: the recall, for which h was preempted, can start since i leaves for w; w still waits for i, not for h."""
    claims = [
        holding("h", "a", 2, started_at=-65),
        holding("i", "a", 1),
        pending("w", "a", 2, priority=1),
        pending("recall", "a", 4, pods=0, priority=1, submitted_at=-20),
    ]
    departments = [a_department("a", 6), a_department("x"), a_department("y", parent="x")]
    decided = settled_decisions(a_snapshot(a_pool(8), departments, claims))
    assert decided == {"recall": ("admit", ()), "w": ("reclaim", ("i",))}


def test_waiting_claims_are_asked_again_after_a_preemption_even_if_one_gave_up_its_reservation() -> None:
    claims = [
        leaving("l", "b", 1, preempted_for="paused"),
        holding("h", "b", 4),
        pending("paused", "d", 1, reserved=Reservation(1, ())),
        pending("meek", "a", 2, submitted_at=-20),
        pending("w", "c", 3),
    ]
    departments = [a_department("a", 2, policy=a_policy(reclaim="never")), a_department("b")]
    departments += [a_department("c", 3), a_department("d", paused=True)]
    decided = answers(a_snapshot(a_pool(5), departments, claims))
    assert (decided["w"].victims, decided["meek"].decision, decided["paused"].decision) == (("h",), "reclaim", "wait")


def test_leaver_without_a_preemptor_is_never_withdrawn() -> None:
    """For example on a node that is emptied: `w` waits for its leaver. Once a place is free elsewhere no claim waits for that
    leaver any more, and it leaves all the same."""
    pool = a_pool(nodes=nodes(1, 1))
    claims = [
        leaving("emptied", "b", 1, leave_by=500, placement=(Placed(0, "n1", (0,)),)),
        holding("other", "b", 1, placement=(Placed(0, "n2", (0,)),), preemptible=False),
        pending("w", "a", 1),
    ]
    snapshot = a_snapshot(pool, [a_department("a", 1), a_department("b", 1)], claims)
    plan, decided = decide(snapshot), answers(snapshot)["w"]
    assert (decided.decision, decided.waiting_on) == (DecisionKind.RECLAIM, ("emptied",))
    later = carried_out(snapshot, plan)
    later = replace(later, claims=tuple(claim for claim in later.claims if claim.id != "other"))
    assert (answers(later)["w"].decision, decide(later).withdrawn) == (DecisionKind.ADMIT, ())


def test_waiting_claim_is_asked_again_once_a_department_begins_to_borrow() -> None:
    """The borrower `w` of higher priority is asked before `v`, when a does not borrow yet; h did not start in this pass."""
    policy = a_policy(within="never", borrow_preempt=BorrowPreempt())
    departments = [a_department("a", 2), a_department("b", policy=policy), a_department("c", 2)]
    claims = [holding_on("h", "a", "n1", 0, 1), pending("w", "b", 3, priority=1), pending("v", "a", 2)]
    snapshot = a_snapshot(a_pool(nodes=nodes(3, 2)), departments, claims)
    plan = decide(snapshot)
    decided = {decision.claim: decision for decision in plan.decisions}
    assert (decided["v"].decision, decided["w"].victims) == ("admit", ("h",))
    assert changes_of(decide(carried_out(snapshot, plan))) == []

"""Impossible requests (rule 5): they have no turn in the queue, delay no other claim, and the answer names every limit."""

from dataclasses import replace

from quotas.engine.explain import sentence
from quotas.engine.reasons import AboveCeiling, Fragmented, NotPreemptible, UserCap
from quotas.engine.types import DecisionKind, Reservation
from tests.engine.builders import a_department, a_policy, a_pool, a_snapshot, answers, holding, leaving, nodes, pending


def test_impossible_claim_does_not_delay_its_department() -> None:
    """If `never` were d1's next claim, d1 would compete as a borrower, and d0 would borrow what d1 needs."""
    claims = [
        pending("never", "d1", 4, priority=1, submitted_at=-20),
        pending("mine", "d1", 2, priority=1),
        pending("first", "d0", 1, priority=2),
    ]
    decided = answers(a_snapshot(a_pool(2), [a_department("d0"), a_department("d1", 2)], claims))
    assert [str(decided[id].decision) for id in ("never", "mine", "first")] == ["impossible", "admit", "wait"]


def test_claim_behind_an_impossible_one_keeps_its_hold() -> None:
    """The surplus of `l` is held for `behind`. If b had to compete with `never`, `more` would have its turn first and preempt
    h3 for the rest – in the pass after the one that preempted `l`, in which `never` was answered earlier."""
    claims = [
        holding("h1", "a", 3, priority=1),
        holding("h3", "a", 1),
        holding("own", "b", 2, preemptible=False),
        leaving("l", "a", 2, preempted_for="mine", leave_by=60),
        pending("never", "b", 8, priority=1, preemptible=False, submitted_at=-30),
        pending("behind", "b", 2, preemptible=False, submitted_at=-20),
        pending("more", "a", 2, priority=1),
        pending("mine", "b", 1, priority=1, preemptible=False, reserved=Reservation(1, ())),
    ]
    departments = [
        a_department("a", 1, policy=a_policy(within="lower_priority")),
        a_department("b", 5, policy=a_policy(reclaim="lower_priority")),
    ]
    decided = answers(a_snapshot(a_pool(8, nominal=8), departments, claims, fair_sharing=True, notice=60))
    assert decided["mine"].waiting_on == ("l",)
    assert (decided["more"].decision, decided["more"].victims) == (DecisionKind.WAIT, ())


def test_reasons_of_impossible_claims_do_not_depend_on_input_order() -> None:
    """A quota was cut: the reservation is given up and does not count in the numbers."""
    claims = [
        pending("other", "a", 1, preemptible=False),
        pending("reserved", "a", 2, preemptible=False, reserved=Reservation(2, ())),
        leaving("l", "b", 2, preempted_for="reserved"),
    ]
    snapshot = a_snapshot(a_pool(4), [a_department("a", 0), a_department("b", 4)], claims)
    for given in (claims, claims[::-1]):
        decided = answers(replace(snapshot, claims=tuple(given)))
        assert decided["other"].reasons == (NotPreemptible(0, 1),)
        assert decided["reserved"].reasons == (NotPreemptible(0, 2),)


def test_every_limit_that_an_impossible_request_exceeds_is_named() -> None:
    """Fourteen units by quota; eight because no node has more; four because no user may have more."""
    departments = [a_department("a", 10, borrow_limit=4, user_caps={"gpu": 4}), a_department("b", 6)]
    decided = answers(a_snapshot(a_pool(nodes=nodes(8, 8)), departments, [pending("w", "a", 16, user="u")]))["w"]
    assert decided.reasons == (AboveCeiling(14), UserCap(4, 0), Fragmented(16, 8, empty=True))
    assert decided.largest == 4
    assert [sentence(reason) for reason in decided.reasons] == [
        "The department's quota allows at most 14 of this pool.",
        "The department's per-user cap is 4, and this user has 0.",
        "The nodes have no room for it, even with nothing running: at most 8 of this shape fit.",
    ]


def test_limits_that_an_impossible_request_respects_are_not_named() -> None:
    """Two pods of eight fit on two nodes: only the quota is exceeded."""
    departments = [a_department("a", 10, borrow_limit=4), a_department("b", 6)]
    decided = answers(a_snapshot(a_pool(nodes=nodes(8, 8)), departments, [pending("w", "a", 8, pods=2)]))["w"]
    assert (decided.reasons, decided.largest) == ((AboveCeiling(14),), 14)


def test_impossible_non_preemptible_request_names_the_guarantee_and_the_node_size() -> None:
    departments = [a_department("a", 6), a_department("b", 2)]
    request = pending("w", "a", 7, preemptible=False)
    decided = answers(a_snapshot(a_pool(nodes=nodes(4, 4)), departments, [request]))["w"]
    assert decided.reasons == (NotPreemptible(6, 7), Fragmented(8, 4, empty=True))
    assert decided.largest == 4

"""What could never run has no turn, and takes nobody's."""

from dataclasses import replace

from quotas.engine.explain import sentence
from quotas.engine.reasons import AboveCeiling, Fragmented, NotPreemptible, UserCap
from quotas.engine.types import DecisionKind, Reservation
from tests.engine.builders import a_department, a_policy, a_pool, a_snapshot, answers, holding, leaving, nodes, pending


def test_what_could_never_run_does_not_keep_its_department_back() -> None:
    """With its request first in line d1 would compete as a borrower, and d0 borrow what d1 needs."""
    claims = [
        pending("never", "d1", 4, priority=1, submitted_at=-20),
        pending("mine", "d1", 2, priority=1),
        pending("first", "d0", 1, priority=2),
    ]
    decided = answers(a_snapshot(a_pool(2), [a_department("d0"), a_department("d1", 2)], claims))
    assert [str(decided[id].decision) for id in ("never", "mine", "first")] == ["impossible", "admit", "wait"]


def test_who_waits_behind_what_could_never_run_keeps_what_it_holds() -> None:
    """What l leaves over is held for `behind`. Had its department to compete with `never`, `more` would have its turn first and
    stop h3 for the rest: in the pass after the one that called l back, where `never` had its answer before."""
    claims = [
        holding("h1", "a", 3, priority=1),
        holding("h3", "a", 1),
        holding("own", "b", 2, preemptible=False),
        leaving("l", "a", 2, held_for="mine", leave_by=60),
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


def test_what_could_never_run_is_refused_with_the_same_numbers_whoever_is_looked_at_first() -> None:
    """A quota was cut: the reservation goes, and nothing of it counts in the numbers."""
    claims = [
        pending("other", "a", 1, preemptible=False),
        pending("reserved", "a", 2, preemptible=False, reserved=Reservation(2, ())),
        leaving("l", "b", 2, held_for="reserved"),
    ]
    snapshot = a_snapshot(a_pool(4), [a_department("a", 0), a_department("b", 4)], claims)
    for given in (claims, claims[::-1]):
        decided = answers(replace(snapshot, claims=tuple(given)))
        assert decided["other"].reasons == (NotPreemptible(0, 1),)
        assert decided["reserved"].reasons == (NotPreemptible(0, 2),)


def test_of_two_limits_both_are_named_with_what_sets_each() -> None:
    """Fourteen by quota; eight because no machine has more; four because each user may have no more."""
    departments = [a_department("a", 10, borrow_limit=4, user_caps={"gpu": 4}), a_department("b", 6)]
    decided = answers(a_snapshot(a_pool(nodes=nodes(8, 8)), departments, [pending("w", "a", 16, user="u")]))["w"]
    assert decided.reasons == (AboveCeiling(14), UserCap(4, 0), Fragmented(16, 8, empty=True))
    assert decided.largest == 4
    assert [sentence(reason) for reason in decided.reasons] == [
        "The department's quota allows at most 14 of this pool.",
        "The department's per-user cap is 4, and this user has 0.",
        "The nodes have no room for it, even with nothing running: at most 8 of this shape fit.",
    ]


def test_a_limit_that_the_request_keeps_is_not_named() -> None:
    """Two pods of eight have places on two machines: only the quota is in the way."""
    departments = [a_department("a", 10, borrow_limit=4), a_department("b", 6)]
    decided = answers(a_snapshot(a_pool(nodes=nodes(8, 8)), departments, [pending("w", "a", 8, pods=2)]))["w"]
    assert (decided.reasons, decided.largest) == ((AboveCeiling(14),), 14)


def test_work_that_must_not_be_stopped_is_told_of_its_guarantee_and_of_the_machines() -> None:
    departments = [a_department("a", 6), a_department("b", 2)]
    asked = pending("w", "a", 7, preemptible=False)
    decided = answers(a_snapshot(a_pool(nodes=nodes(4, 4)), departments, [asked]))["w"]
    assert decided.reasons == (NotPreemptible(6, 7), Fragmented(8, 4, empty=True))
    assert decided.largest == 4

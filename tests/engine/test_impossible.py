"""What could never run has no turn, and takes nobody's."""

from dataclasses import replace

from quotas.engine.reasons import NotPreemptible
from quotas.engine.types import DecisionKind, Reservation
from tests.engine.builders import a_department, a_policy, a_pool, a_snapshot, answers, holding, leaving, pending


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

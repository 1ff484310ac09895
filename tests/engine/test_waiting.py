"""Who waits, with whom others get on all the same, and what is said to whom."""

import pytest

from quotas.engine.reasons import LentOutReturning
from quotas.engine.types import BorrowPreempt
from tests.engine.builders import a_department, a_policy, a_pool, a_snapshot, answers, holding, pending


def test_who_finds_no_victims_keeps_nobody_else_from_theirs() -> None:
    """`meek` may not stop anybody; once `h` leaves for `w`, there is enough for both."""
    claims = [
        holding("h", "b", 4),
        pending("meek", "a", 2, submitted_at=-20),
        pending("w", "c", 2, submitted_at=-10),
    ]
    departments = [a_department("a", 2, policy=a_policy(reclaim="never")), a_department("b"), a_department("c", 2)]
    decided = answers(a_snapshot(a_pool(4), departments, claims))
    assert (decided["w"].victims, decided["meek"].victims) == (("h",), ())
    assert decided["w"].waiting_on == decided["meek"].waiting_on == ("h",)


def test_who_will_get_back_what_is_young_is_told_so_though_another_will_not() -> None:
    """`h` is protected for another minute, and then has a minute's notice."""
    claims = [
        holding("h", "b", 4, started_at=-60, min_runtime=120),
        pending("meek", "a", 2, submitted_at=-20),
        pending("w", "c", 2, submitted_at=-10),
    ]
    departments = [a_department("a", 2, policy=a_policy(reclaim="never")), a_department("b"), a_department("c", 2)]
    decided = answers(a_snapshot(a_pool(4), departments, claims, notice=60))
    assert [reason.code for reason in decided["meek"].reasons] == ["not_enough"]
    assert decided["w"].reasons[0] == LentOutReturning(("h",), 120)  # type: ignore[arg-type]


def test_who_would_borrow_is_not_told_that_anything_returns() -> None:
    claims = [holding("h", "b", 4, priority=-1, started_at=-60, min_runtime=120), pending("w", "a", 2)]
    departments = [a_department("a", policy=a_policy(borrow_preempt=BorrowPreempt())), a_department("b")]
    decided = answers(a_snapshot(a_pool(4), departments, claims))
    assert not any(isinstance(reason, LentOutReturning) for reason in decided["w"].reasons)


@pytest.mark.parametrize(("waited", "newcomer"), [(600, "admit"), (601, "wait")])
def test_a_borrower_starves_once_it_has_waited_longer_than_the_time_set_for_it(waited: int, newcomer: str) -> None:
    claims = [
        holding("h", "a", 3, preemptible=False),
        pending("w", "b", 2, submitted_at=-waited),
        pending("v", "c", 1, submitted_at=-10),
    ]
    departments = [a_department("a", 4), a_department("b"), a_department("c")]
    decided = answers(a_snapshot(a_pool(4), departments, claims, starvation_after=600))
    assert decided["v"].decision == newcomer

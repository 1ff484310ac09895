"""Who waits, with whom others get on all the same, and what is said to whom."""

from dataclasses import replace

import pytest

from quotas.engine.explain import sentence
from quotas.engine.planning_pass import decide
from quotas.engine.reasons import (
    ClusterUnreachable,
    Fragmented,
    HeldFor,
    LentOutReturning,
    NotEnough,
    NotPreemptible,
    OverBorrowLimit,
    Reason,
    UserCap,
)
from quotas.engine.types import BorrowPreempt, DecisionKind, Plan
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
from tests.engine.effort import examples
from tests.engine.test_properties import news
from tests.engine.towns import a_town


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


def test_while_a_cluster_is_not_reached_all_stand_in_line_by_their_names() -> None:
    claims = [pending(id, "a", 1, submitted_at=at) for id, at in (("x", -10), ("v", -20), ("w", -30))]
    snapshot = a_snapshot(a_pool(4, cluster_unreachable_since=-60), [a_department("a", 4)], claims)
    decided = answers(snapshot)
    assert [decided[id].position for id in "vwx"] == [1, 2, 3]
    assert {decided[id].reasons for id in "vwx"} == {(ClusterUnreachable(-60),)}
    assert decide(snapshot).id == snapshot.id


def test_what_can_never_fit_is_told_of_no_moves() -> None:
    claims = [holding("h", "a", 2), pending("w", "a", 6)]
    decision = answers(a_snapshot(a_pool(nodes=nodes(4, 4)), [a_department("a", 8)], claims))["w"]
    assert (decision.decision, decision.reasons, decision.largest) == ("impossible", (Fragmented(8, 4, empty=True),), 4)


def test_who_runs_has_borrowed_before_who_starts_now() -> None:
    """Unassigned capacity is what `h` borrows since some time; `w` borrows from a."""
    claims = [holding("h", "b", 4, started_at=900), pending("w", "c", 2, submitted_at=950)]
    departments = [a_department("a", 2), a_department("b"), a_department("c")]
    decision = answers(a_snapshot(a_pool(6), departments, claims, now=1000))["w"]
    assert (decision.borrowed, decision.from_) == (2, {"a": 2})


def test_of_those_whom_nobody_needs_any_more_as_many_may_stay_as_the_quotas_allow() -> None:
    claims = [holding("h", "a", 2), *(leaving(id, "b", 2, held_for="gone") for id in ("l", "m"))]
    departments = [a_department("a", 2), a_department("b")]
    assert decide(a_snapshot(a_pool(4), departments, claims)).withdrawn == ("l",)


def test_nothing_is_held_for_a_borrower_that_its_own_departments_limit_keeps_waiting() -> None:
    """Two are free; its department, or its group, borrows as much as it may. With a higher limit they are held for it."""
    for own, group, expected in (
        (4, None, "admit"),
        (None, 4, "admit"),
        (6, None, "wait"),
        (None, 6, "wait"),
        (None, None, "wait"),
    ):
        tree = [a_department("group", borrow_limit=group), a_department("starving", parent="group", borrow_limit=own)]
        claims = [
            *(holding("mine", "starving", 2), holding("theirs", "other", 4)),
            pending("starved", "starving", 4, submitted_at=-9000),
            pending("small", "other", 2, submitted_at=-10),
        ]
        snapshot = a_snapshot(a_pool(8), [*tree, a_department("other")], claims, starvation_after=600)
        assert str(answers(snapshot)["small"].decision) == expected, (own, group)


def of_those_who_wait(plan: Plan) -> dict[str, tuple[Reason, ...]]:
    """Their reasons, without the moves that would help, and without the name of one of those for whom something is held: these
    hang on an order."""

    def plain(reason: Reason) -> Reason:
        if isinstance(reason, HeldFor):
            return HeldFor("")
        return replace(reason, moves=None) if isinstance(reason, Fragmented) else reason

    return {
        decision.claim: tuple(map(plain, decision.reasons))
        for decision in plan.decisions
        if decision.decision in (DecisionKind.WAIT, DecisionKind.IMPOSSIBLE)
    }


def test_numbers_in_reasons_are_those_after_all_who_start() -> None:
    """The next pass, in which nothing is decided any more, says the same to everybody."""
    settled = said = 0
    for seed in range(examples(60, 2_000)):
        plan = decide(town := a_town(seed))
        after = decide(carried_out(town, plan))
        if set(of_those_who_wait(plan)) != set(of_those_who_wait(after)) or news(after):
            continue
        settled += 1
        said += len(of_those_who_wait(plan))
        assert of_those_who_wait(plan) == of_those_who_wait(after), town.id
    assert settled * 2 > examples(60, 2_000)
    assert said > settled


def test_what_colleagues_take_after_it_counts_in_a_cap_a_limit_and_a_guarantee() -> None:
    departments = [a_department("a", 4, borrow_limit=1, policy=a_policy(within="never")), a_department("b", 5)]
    claims = [
        holding("h", "a", 1, user="u"),
        pending("over", "a", 5, user="v", priority=3),
        pending("small", "a", 2, user="u", priority=1),
        pending("strict", "a", 5, user="w", preemptible=False),
    ]
    decided = answers(a_snapshot(a_pool(9), departments, claims))
    assert decided["small"].decision is DecisionKind.ADMIT
    assert decided["over"].reasons == (OverBorrowLimit(1, 4),)
    assert decided["strict"].reasons == (NotPreemptible(4, 8),)
    departments[0] = replace(departments[0], user_caps={"gpu": 3})  # type: ignore[dict-item]
    capped = pending("capped", "a", 3, user="u", priority=2)
    assert answers(a_snapshot(a_pool(9), departments, [*claims, capped]))["capped"].reasons == (UserCap(3, 3),)


def test_a_borrow_limit_further_up_is_named_with_whose_it_is() -> None:
    """Six cards are free, and those who keep some are not what keeps it waiting."""
    tree = [a_department("x", borrow_limit=1), a_department("a", 1, parent="x"), a_department("b", 1, parent="x")]
    for lend_limit in (None, 2):
        rest = a_department("rest", 6, lend_limit=lend_limit)
        claims = [holding("h", "b", 2), pending("w", "a", 2)]
        [reason] = answers(a_snapshot(a_pool(8), [*tree, rest], claims))["w"].reasons
        assert reason == OverBorrowLimit(1, 2, "x")
        assert sentence(reason) == "The parent department x would borrow 2, above its borrow limit of 1."


def test_what_a_department_keeps_is_not_kept_from_its_own_team() -> None:
    tree = [a_department("x", 4, lend_limit=0), a_department("a", parent="x"), a_department("rest", 4)]
    claims = [holding("h", "rest", 4), pending("w", "a", 6)]
    assert answers(a_snapshot(a_pool(8), tree, claims))["w"].reasons == (NotEnough("gpu", 2),)


def test_units_that_are_held_for_a_colleague_are_not_called_missing() -> None:
    """Two of eight cards are free, held for the gang of four that is first in line: nothing is lacking but its turn."""
    full = [holding("own", "a", 4, preemptible=False), holding("b1", "b", 2, preemptible=False)]
    waiting = [pending("gang", "a", 4, submitted_at=-100), pending("small", "a", 2)]
    plan = answers(a_snapshot(a_pool(8), [a_department("a", 8), a_department("b")], [*full, *waiting]))
    assert plan["gang"].reasons == (NotEnough("gpu", 2),)
    assert plan["small"].reasons == (HeldFor("gang"),)

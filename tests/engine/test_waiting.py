"""Waiting claims (rule 11): which other claims they delay, and the reasons that they get."""

from dataclasses import replace

import pytest

from quotas.engine.explain import Reader, advice, sentence
from quotas.engine.planning_pass import decide
from quotas.engine.reasons import (
    ClusterUnreachable,
    Fragmented,
    GuaranteeKeptFor,
    HeldFor,
    LentOutReturning,
    NotEnough,
    NotLent,
    NotPreemptible,
    OverBorrowLimit,
    Reason,
    UserCap,
)
from quotas.engine.types import BorrowPreempt, DecisionKind, Plan, Snapshot
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
from tests.engine.test_properties import changes_of
from tests.engine.towns import a_town


def test_claim_without_victims_does_not_keep_other_claims_from_theirs() -> None:
    """`meek` may preempt nothing; once `h` leaves for `w`, there is enough for both."""
    claims = [
        holding("h", "b", 4),
        pending("meek", "a", 2, submitted_at=-20),
        pending("w", "c", 2, submitted_at=-10),
    ]
    departments = [a_department("a", 2, policy=a_policy(reclaim="never")), a_department("b"), a_department("c", 2)]
    decided = answers(a_snapshot(a_pool(4), departments, claims))
    assert (decided["w"].victims, decided["meek"].victims) == (("h",), ())
    assert decided["w"].waiting_on == decided["meek"].waiting_on == ("h",)


def test_only_a_claim_that_may_reclaim_protected_work_gets_lent_out_returning() -> None:
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


def test_borrower_does_not_get_lent_out_returning() -> None:
    claims = [holding("h", "b", 4, priority=-1, started_at=-60, min_runtime=120), pending("w", "a", 2)]
    departments = [a_department("a", policy=a_policy(borrow_preempt=BorrowPreempt())), a_department("b")]
    decided = answers(a_snapshot(a_pool(4), departments, claims))
    assert not any(isinstance(reason, LentOutReturning) for reason in decided["w"].reasons)


@pytest.mark.parametrize(("waited", "newcomer"), [(600, "admit"), (601, "wait")])
def test_borrower_gets_a_hold_once_it_has_waited_longer_than_starvation_after(waited: int, newcomer: str) -> None:
    claims = [
        holding("h", "a", 3, preemptible=False),
        pending("w", "b", 2, submitted_at=-waited),
        pending("v", "c", 1, submitted_at=-10),
    ]
    departments = [a_department("a", 4), a_department("b"), a_department("c")]
    decided = answers(a_snapshot(a_pool(4), departments, claims, starvation_after=600))
    assert decided["v"].decision == newcomer


def test_claims_for_an_unreachable_cluster_are_listed_by_id() -> None:
    claims = [pending(id, "a", 1, submitted_at=at) for id, at in (("x", -10), ("v", -20), ("w", -30))]
    snapshot = a_snapshot(a_pool(4, cluster_unreachable_since=-60), [a_department("a", 4)], claims)
    decided = answers(snapshot)
    assert [decided[id].position for id in "vwx"] == [1, 2, 3]
    assert {decided[id].reasons for id in "vwx"} == {(ClusterUnreachable(-60),)}
    assert decide(snapshot).id == snapshot.id


def test_impossible_request_gets_no_moves_suggested() -> None:
    claims = [holding("h", "a", 2), pending("w", "a", 6)]
    decision = answers(a_snapshot(a_pool(nodes=nodes(4, 4)), [a_department("a", 8)], claims))["w"]
    assert (decision.decision, decision.reasons, decision.largest) == ("impossible", (Fragmented(8, 4, empty=True),), 4)


def test_running_claim_has_borrowed_before_one_that_starts_now() -> None:
    """`h` has borrowed the unassigned capacity for some time; `w` borrows from a."""
    claims = [holding("h", "b", 4, started_at=900), pending("w", "c", 2, submitted_at=950)]
    departments = [a_department("a", 2), a_department("b"), a_department("c")]
    decision = answers(a_snapshot(a_pool(6), departments, claims, now=1000))["w"]
    assert (decision.borrowed, decision.from_) == (2, {"a": 2})


def test_as_many_unneeded_leavers_stay_as_the_quotas_allow() -> None:
    claims = [holding("h", "a", 2), *(leaving(id, "b", 2, preempted_for="gone") for id in ("l", "m"))]
    departments = [a_department("a", 2), a_department("b")]
    assert decide(a_snapshot(a_pool(4), departments, claims)).withdrawn == ("l",)


def test_starved_borrower_that_a_borrow_limit_keeps_waiting_gets_no_hold() -> None:
    """Two units are free, and the department or its group has reached its borrow limit. With a higher limit the units are
    held."""
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


def reasons_of_waiting(plan: Plan) -> dict[str, tuple[Reason, ...]]:
    """The reasons of claims that do not start, without moves and without the claims for which something is kept: these depend on
    an order."""

    def comparable(reason: Reason) -> Reason:
        if isinstance(reason, HeldFor):
            return HeldFor("")
        if isinstance(reason, GuaranteeKeptFor):
            return GuaranteeKeptFor("")
        return replace(reason, moves=None) if isinstance(reason, Fragmented) else reason

    return {
        decision.claim: tuple(map(comparable, decision.reasons))
        for decision in plan.decisions
        if decision.decision in (DecisionKind.WAIT, DecisionKind.IMPOSSIBLE)
    }


def test_numbers_in_reasons_are_those_after_all_starts_of_the_pass() -> None:
    """The next pass, in which nothing changes any more, gives every claim the same reasons. In one of 200 towns a reservation
    then keeps another part of what is free."""
    settled = waiting = 0
    different: list[str] = []
    for seed in range(examples(60, 2_000)):
        plan = decide(town := a_town(seed))
        after = decide(carried_out(town, plan))
        if set(reasons_of_waiting(plan)) != set(reasons_of_waiting(after)) or changes_of(after):
            continue
        settled += 1
        waiting += len(reasons_of_waiting(plan))
        if reasons_of_waiting(plan) != reasons_of_waiting(after):
            different.append(town.id)
    assert len(different) * 100 <= settled, different
    assert settled * 2 > examples(60, 2_000)
    assert waiting > settled


def test_later_starts_of_the_department_count_in_the_reasons_of_a_waiting_claim() -> None:
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


def test_reason_names_the_parent_whose_borrow_limit_is_reached() -> None:
    """Six cards are free, and quota that others keep is not what keeps `w` waiting."""
    tree = [a_department("x", borrow_limit=1), a_department("a", 1, parent="x"), a_department("b", 1, parent="x")]
    for lend_limit in (None, 2):
        rest = a_department("rest", 6, lend_limit=lend_limit)
        claims = [holding("h", "b", 2), pending("w", "a", 2)]
        [reason] = answers(a_snapshot(a_pool(8), [*tree, rest], claims))["w"].reasons
        assert reason == OverBorrowLimit(1, 2, "x")
        assert sentence(reason) == "The parent department x would borrow 2, above its borrow limit of 1."


def test_quota_that_a_department_keeps_is_available_to_its_own_team() -> None:
    tree = [a_department("x", 4, lend_limit=0), a_department("a", parent="x"), a_department("rest", 4)]
    claims = [holding("h", "rest", 4), pending("w", "a", 6)]
    assert answers(a_snapshot(a_pool(8), tree, claims))["w"].reasons == (NotEnough("gpu", 2),)


def test_units_held_for_another_claim_of_the_department_are_not_reported_as_missing() -> None:
    """Two of eight cards are free and held for the gang of four that is first in line: `small` lacks nothing but its turn."""
    full = [holding("own", "a", 4, preemptible=False), holding("b1", "b", 2, preemptible=False)]
    waiting = [pending("gang", "a", 4, submitted_at=-100), pending("small", "a", 2)]
    plan = answers(a_snapshot(a_pool(8), [a_department("a", 8), a_department("b")], [*full, *waiting]))
    assert plan["gang"].reasons == (NotEnough("gpu", 2),)
    assert plan["small"].reasons == (HeldFor("gang"),)


def test_claim_behind_a_hold_is_told_with_which_end_it_could_start_before_and_then_does() -> None:
    """Two cards are held for `gang`, which starts when `b1` has run for an hour. Who ends by then delays nobody."""
    full = [
        holding("own", "a", 4, preemptible=False),
        holding("b1", "b", 2, preemptible=False, started_at=0, max_runtime=3600),
    ]
    snapshot = a_snapshot(
        a_pool(8), [a_department("a", 8), a_department("b")], [*full, pending("gang", "a", 4, submitted_at=-100)]
    )
    end = 3600
    assert answers(with_more(snapshot, 0))["small"].reasons == (HeldFor("gang", end),)
    assert answers(with_more(snapshot, end))["small"].decision is DecisionKind.ADMIT
    assert answers(with_more(snapshot, end + 1))["small"].reasons == (HeldFor("gang", end),)
    assert sentence(HeldFor("gang", end)) == "Free capacity is held for gang, which is ahead in the queue."
    assert advice(HeldFor("gang", end)) == "It may start before that workload if its maximum runtime ends by 3600."
    assert advice(HeldFor("gang")) == "Wait until that workload has started."


def test_short_claim_of_the_same_department_does_not_push_the_one_with_the_hold_out_of_the_guarantee() -> None:
    """Otherwise `first` would be a borrower as soon as `short` has started, lose its hold, and be overtaken by `long`."""
    full = [holding("own", "a", 3), holding("b1", "b", 3, preemptible=False, started_at=0, max_runtime=3600)]
    first = pending("first", "a", 5, own_only=True, submitted_at=-100)
    claims = [*full, first, pending("long", "a", 1, submitted_at=-50), pending("short", "a", 1, max_runtime=300)]
    decided = answers(a_snapshot(a_pool(8), [a_department("a", 8), a_department("b")], claims))
    assert [decided[each].decision for each in ("first", "long", "short")] == ["wait", "wait", "wait"]
    assert decided["short"].reasons == decided["long"].reasons == (HeldFor("first"),)
    claims[-1] = pending("short", "b", 1, max_runtime=300)
    decided = answers(a_snapshot(a_pool(8), [a_department("a", 8), a_department("b")], claims))
    assert decided["short"].decision is DecisionKind.ADMIT


def with_more(snapshot: Snapshot, runtime: int) -> Snapshot:
    """The snapshot with one more claim, `small`, that runs at most so long (0: without a limit)."""
    return replace(snapshot, claims=(*snapshot.claims, pending("small", "b", 2, max_runtime=runtime or None)))


def test_end_named_to_a_claim_behind_a_hold_nearly_always_lets_it_start_now() -> None:
    """Not in one of 15: when it is asked, another hold keeps what is free than at the end of the pass."""
    named = started = 0
    for seed in range(examples(120, 4_000)):
        town = a_town(seed)
        for decision in decide(town, hints=False).decisions:
            for end in [reason.ends_by for reason in decision.reasons if isinstance(reason, HeldFor)]:
                if end is not None:
                    named += 1
                    hurried = [
                        replace(claim, max_runtime=end - town.now) if claim.id == decision.claim else claim
                        for claim in town.claims
                    ]
                    again = answers(replace(town, claims=tuple(hurried)))[decision.claim]
                    started += again.decision is DecisionKind.ADMIT
    assert named
    assert started >= 0.9 * named, (started, named)


def test_quota_is_said_not_to_be_lent_only_where_units_are_free() -> None:
    """`a` lends nothing any more, but its idle half is still lent out; then two of its units come back and are free."""
    departments = [a_department("a", 4, lend_limit=0), a_department("b", 4)]
    full = [holding("mine", "a", 2), holding("h1", "b", 4), holding("h2", "b", 2)]
    claims = [*full, pending("more", "b", 2, submitted_at=-10)]
    assert answers(a_snapshot(a_pool(8), departments, claims))["more"].reasons == (NotEnough("gpu", 2),)
    claims = [*full[:2], pending("more", "b", 2, submitted_at=-10)]
    assert answers(a_snapshot(a_pool(8), departments, claims))["more"].reasons == (NotLent("a", 2),)


def test_end_that_a_reason_names_is_rounded_down_to_the_minute() -> None:
    reader = Reader(time=str)
    assert "ends by 3600." in advice(HeldFor("gang", 3659), reader=reader)

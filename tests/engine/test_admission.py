"""Admission, waiting, reclaiming and preemption (rules 1 to 20), one case for each rule."""

from quotas.engine.planning_pass import decide
from quotas.engine.reasons import (
    AboveCeiling,
    BackoffUntil,
    ClusterUnreachable,
    DepartmentPaused,
    HeldFor,
    LentOutReturning,
    NotEnough,
    NotLent,
    NotPreemptible,
    OverBorrowLimit,
    OwnOnly,
    PoolShort,
    UserCap,
)
from quotas.engine.types import BorrowPreempt, DecisionKind, Reservation
from tests.engine.builders import a_department, a_policy, a_pool, a_snapshot, answers, holding, leaving, pending

ADMIT, RECLAIM, WAIT, IMPOSSIBLE = DecisionKind


def test_a_claim_inside_its_guarantee_starts_at_once() -> None:
    decision = answers(a_snapshot(a_pool(8), [a_department("vision", 8)], [pending("w", "vision", 2)]))["w"]
    assert (decision.decision, decision.own, decision.borrowed, decision.from_) == (ADMIT, 2, 0, {})


def test_units_above_the_guarantee_are_borrowed_from_the_department_with_most_idle_quota() -> None:
    departments = [a_department("vision", 2), a_department("nlp", 4), a_department("speech", 6)]
    decision = answers(a_snapshot(a_pool(12), departments, [pending("w", "vision", 4)]))["w"]
    assert (decision.own, decision.borrowed, decision.from_) == (2, 2, {"speech": 2})


def test_unassigned_capacity_is_borrowed_first() -> None:
    departments = [a_department("vision", 2), a_department("nlp", 4)]
    decision = answers(a_snapshot(a_pool(8), departments, [pending("w", "vision", 6)]))["w"]
    assert (decision.own, decision.borrowed, decision.from_) == (2, 4, {"": 2, "nlp": 2})


def test_a_department_gets_many_admissions_in_one_pass() -> None:
    claims = [pending(f"w{n}", "vision", 1) for n in range(6)]
    decided = answers(a_snapshot(a_pool(8), [a_department("vision", 8)], claims))
    assert [decided[f"w{n}"].decision for n in range(6)] == [ADMIT] * 6


def test_claims_inside_the_guarantee_come_before_borrowers_of_any_priority() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4, borrow_limit=4)]
    claims = [
        holding("h", "nlp", 4, priority=100),
        pending("borrower", "nlp", 4, priority=100),
        pending("owner", "vision", 4),
    ]
    decided = answers(a_snapshot(a_pool(8), departments, claims))
    assert (decided["owner"].decision, decided["borrower"].decision) == (ADMIT, WAIT)


def test_with_fair_sharing_the_department_that_borrows_least_is_served_first() -> None:
    departments = [a_department("a"), a_department("b"), a_department("c", 8)]
    claims = [holding("h", "a", 4), pending("first", "a", 2, submitted_at=-99), pending("second", "b", 4)]
    for fair, expected in ((False, (ADMIT, WAIT)), (True, (WAIT, ADMIT))):
        decided = answers(a_snapshot(a_pool(8), departments, claims, fair_sharing=fair))
        assert (decided["first"].decision, decided["second"].decision) == expected


def test_reclaim_names_its_victims_and_the_promised_time() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    claims = [holding("own", "nlp", 4), holding("borrowed", "nlp", 4), pending("w", "vision", 4)]
    decision = answers(a_snapshot(a_pool(8), departments, claims, notice=600, grace=120))["w"]
    assert (decision.decision, decision.own, decision.by) == (RECLAIM, 4, 720)
    assert decision.victims == decision.waiting_on == ("borrowed",)


def test_borrower_that_loses_least_work_is_preempted_first() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    claims = [
        holding("old", "nlp", 4, started_at=-9000),
        holding("saved", "nlp", 4, started_at=-9000, checkpointed_at=-5),
        pending("w", "vision", 4),
    ]
    assert answers(a_snapshot(a_pool(8), departments, claims))["w"].victims == ("saved",)


def test_lower_priority_is_preempted_first_even_if_more_work_is_lost() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    claims = [
        holding("low", "nlp", 4, started_at=-9000),
        holding("high", "nlp", 4, priority=5),
        pending("w", "vision", 4),
    ]
    assert answers(a_snapshot(a_pool(8), departments, claims))["w"].victims == ("low",)


def test_reservation_waits_for_its_leavers_without_new_victims() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    claims = [
        leaving("going", "nlp", 4, preempted_for="w", leave_by=300),
        holding("h", "nlp", 4),
        pending("w", "vision", 4, reserved=Reservation(4)),
    ]
    decision = answers(a_snapshot(a_pool(8), departments, claims, grace=120))["w"]
    assert (decision.decision, decision.victims, decision.waiting_on, decision.by) == (RECLAIM, (), ("going",), 420)


def test_reserved_units_cannot_be_borrowed_by_others() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    claims = [
        leaving("going", "nlp", 2, preempted_for="w"),
        holding("h", "nlp", 4, priority=100),
        pending("w", "vision", 4, reserved=Reservation(4)),
        pending("thief", "nlp", 2, priority=100),
    ]
    decided = answers(a_snapshot(a_pool(8), departments, claims))
    assert decided["thief"].decision is WAIT
    assert decided["w"].decision is RECLAIM


def test_preemptor_starts_when_its_victims_are_gone() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    claims = [holding("h", "nlp", 4), pending("w", "vision", 4, reserved=Reservation(4))]
    assert answers(a_snapshot(a_pool(8), departments, claims))["w"].decision is ADMIT


def test_unreserved_leavers_serve_the_next_claim_before_anything_is_preempted() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    claims = [leaving("ending", "nlp", 4), holding("h", "nlp", 4), pending("w", "vision", 4)]
    decision = answers(a_snapshot(a_pool(8), departments, claims))["w"]
    assert (decision.decision, decision.victims, decision.waiting_on) == (RECLAIM, (), ("ending",))


def test_recall_is_withdrawn_when_the_preemptor_is_cancelled_before_the_deadline() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    claims = [holding("h", "nlp", 4), leaving("recalled", "nlp", 4, preempted_for="cancelled")]
    assert decide(a_snapshot(a_pool(8), departments, claims)).withdrawn == ("recalled",)
    assert decide(a_snapshot(a_pool(8), departments, claims, now=300)).withdrawn == ()


def test_leaver_without_a_preemptor_is_not_withdrawn() -> None:
    departments = [a_department("nlp", 8)]
    assert decide(a_snapshot(a_pool(8), departments, [leaving("ending", "nlp", 4)])).withdrawn == ()


def test_a_borrower_does_not_reclaim() -> None:
    departments = [a_department("vision", 2), a_department("nlp", 4)]
    claims = [holding("h", "nlp", 6), pending("w", "vision", 4)]
    decision = answers(a_snapshot(a_pool(6), departments, claims))["w"]
    assert decision.decision is WAIT
    assert decision.reasons == (NotEnough("gpu", 4),)


def test_borrower_preempts_lower_priority_borrowers_up_to_the_limit_of_its_policy() -> None:
    departments = [
        a_department("vision", policy=a_policy(borrow_preempt=BorrowPreempt(max_priority=3))),
        a_department("nlp", 2),
        a_department("speech", 6),
    ]
    for priority, victims in ((3, ("h",)), (4, ())):
        claims = [
            holding("own", "nlp", 2, priority=9),
            holding("h", "nlp", 4, priority=priority),
            holding("s", "speech", 2),
            pending("w", "vision", 2, priority=9),
        ]
        assert answers(a_snapshot(a_pool(8), departments, claims))["w"].victims == victims


def test_work_inside_the_guarantee_of_another_department_is_never_preempted() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    claims = [holding("h", "nlp", 4), pending("w", "vision", 4)]
    decision = answers(a_snapshot(a_pool(4, nominal=8), departments, claims))["w"]
    assert decision.decision is WAIT
    assert decision.reasons == (NotEnough("gpu", 4), PoolShort(4))


def test_claim_preempts_lower_priority_work_of_its_own_department() -> None:
    departments = [a_department("vision", 4, borrow_limit=0)]
    claims = [holding("low", "vision", 4), pending("w", "vision", 2, priority=1)]
    assert answers(a_snapshot(a_pool(4), departments, claims))["w"].victims == ("low",)


def test_own_work_of_equal_priority_is_preempted_only_if_newer_and_permitted() -> None:
    for within, expected in (("lower_priority", WAIT), ("never", WAIT), ("lower_or_newer_equal", RECLAIM)):
        departments = [a_department("vision", 4, policy=a_policy(within=within))]
        claims = [holding("newer", "vision", 4, submitted_at=-5), pending("w", "vision", 4)]
        assert answers(a_snapshot(a_pool(4), departments, claims))["w"].decision is expected


def test_non_preemptible_work_is_never_preempted() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    claims = [holding("h", "nlp", 8, preemptible=False), pending("w", "vision", 4)]
    assert answers(a_snapshot(a_pool(8), departments, claims))["w"].decision is WAIT


def test_minimum_runtime_protects_a_borrower_and_delays_the_promised_return() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    claims = [holding("h", "nlp", 8, started_at=-100, min_runtime=400), pending("w", "vision", 4)]
    decision = answers(a_snapshot(a_pool(8), departments, claims, notice=60, grace=10))["w"]
    assert decision.decision is WAIT
    assert decision.reasons[0] == LentOutReturning(("h",), 370)


def test_notice_and_grace_frozen_at_admission_override_those_of_the_pool() -> None:
    departments = [a_department("vision", 4), a_department("nlp", 4)]
    claims = [holding("h", "nlp", 8, notice=5, grace=1), pending("w", "vision", 4)]
    assert answers(a_snapshot(a_pool(8, notice=60, grace=10), departments, claims))["w"].by == 6


def test_a_paused_department_starts_nothing() -> None:
    decision = answers(a_snapshot(a_pool(4), [a_department("a", 4, paused=True)], [pending("w", "a", 1)]))["w"]
    assert (decision.decision, decision.reasons) == (WAIT, (DepartmentPaused(),))


def test_claim_above_the_user_cap_waits() -> None:
    departments = [a_department("a", 8, user_caps={"gpu": 4})]
    claims = [holding("h", "a", 3, user="alice"), pending("w", "a", 2, user="alice"), pending("v", "a", 2, user="bob")]
    decided = answers(a_snapshot(a_pool(8), departments, claims))
    assert decided["w"].reasons == (UserCap(4, 3),)
    assert decided["v"].decision is ADMIT


def test_backoff_delays_a_borrower_but_not_a_claim_inside_its_guarantee() -> None:
    departments = [a_department("a", 2), a_department("b", 6)]
    claims = [pending("own", "a", 2, backoff_until=60), pending("more", "a", 2, backoff_until=60)]
    decided = answers(a_snapshot(a_pool(8), departments, claims))
    assert decided["more"].decision is ADMIT
    assert decided["own"].reasons == (BackoffUntil(60),)


def test_own_quota_only_claim_waits_rather_than_borrows() -> None:
    departments = [a_department("a", 4), a_department("b", 4)]
    claims = [holding("h", "a", 2), pending("w", "a", 4, own_only=True)]
    decision = answers(a_snapshot(a_pool(8), departments, claims))["w"]
    assert (decision.decision, decision.reasons) == (WAIT, (OwnOnly(4, 6),))


def test_non_preemptible_claim_needs_guaranteed_quota() -> None:
    departments = [a_department("a", 4), a_department("b", 4)]
    claims = [holding("h", "a", 2), pending("w", "a", 4, preemptible=False), pending("v", "a", 6, preemptible=False)]
    decided = answers(a_snapshot(a_pool(8), departments, claims))
    assert (decided["w"].decision, decided["w"].reasons) == (WAIT, (NotPreemptible(4, 6),))
    assert (decided["v"].decision, decided["v"].largest) == (IMPOSSIBLE, 4)


def test_claim_above_the_borrow_limit_waits() -> None:
    departments = [a_department("a", 2, borrow_limit=2), a_department("b", 6)]
    claims = [holding("h", "a", 2), pending("w", "a", 3)]
    assert answers(a_snapshot(a_pool(8), departments, claims))["w"].reasons == (OverBorrowLimit(2, 3),)


def test_request_above_the_ceiling_is_impossible_and_names_the_largest_that_can_run() -> None:
    departments = [a_department("vision", 8, borrow_limit=4), a_department("b", 12)]
    decision = answers(a_snapshot(a_pool(20), departments, [pending("w", "vision", 16)]))["w"]
    assert (decision.decision, decision.reasons, decision.largest) == (IMPOSSIBLE, (AboveCeiling(12),), 12)


def test_idle_quota_above_the_lend_limit_is_not_lent() -> None:
    departments = [a_department("a", 2), a_department("b", 6, lend_limit=2)]
    claims = [holding("h", "a", 4), pending("w", "a", 2), pending("big", "a", 6)]
    decided = answers(a_snapshot(a_pool(8), departments, claims))
    assert decided["w"].reasons == (NotLent("b", 4),)
    assert decided["big"].decision is IMPOSSIBLE


def test_nothing_starts_while_the_cluster_is_unreachable() -> None:
    pool = a_pool(8, cluster_unreachable_since=-30)
    assert answers(a_snapshot(pool, [a_department("a", 8)], [pending("w", "a", 1)]))["w"].reasons == (
        ClusterUnreachable(-30),
    )


def test_waiting_claim_inside_its_guarantee_holds_free_units() -> None:
    departments = [a_department("a", 4, policy=a_policy(reclaim="never")), a_department("b", 4)]
    claims = [holding("h", "b", 6), pending("owner", "a", 4), pending("small", "b", 2)]
    decided = answers(a_snapshot(a_pool(8), departments, claims))
    assert decided["owner"].reasons == (NotEnough("gpu", 2),)
    assert decided["small"].decision is WAIT
    assert (decided["small"].position, decided["small"].ahead) == (2, ("owner",))


def test_claim_that_ends_before_the_holder_could_start_passes_the_hold() -> None:
    departments = [a_department("a", 4, policy=a_policy(reclaim="never")), a_department("b", 4)]
    claims = [
        holding("h", "b", 6, max_runtime=1600),
        pending("owner", "a", 4),
        pending("short", "b", 2, max_runtime=1000),
        pending("long", "b", 2, max_runtime=1001),
    ]
    decided = answers(a_snapshot(a_pool(8), departments, claims))
    assert (decided["short"].decision, decided["long"].decision) == (ADMIT, WAIT)


def test_team_above_its_own_guarantee_reclaims_the_guarantee_of_its_department() -> None:
    departments = [
        a_department("x", 4),
        a_department("t", 0, parent="x", policy=a_policy(within="never")),
        a_department("c"),
    ]
    claims = [holding("h", "t", 1), holding("stranger", "c", 3), pending("p", "t", 3)]
    decided = answers(a_snapshot(a_pool(4), departments, claims))
    assert (decided["p"].decision, decided["p"].victims) == (RECLAIM, ("stranger",))


def test_expected_start_of_a_holder_counts_claims_started_in_the_same_pass() -> None:
    departments = [a_department("a"), a_department("b", 4)]
    claims = [
        pending("first", "b", 2, priority=1, max_runtime=50),
        pending("owner", "b", 2),
        pending("short", "a", 1, max_runtime=50),
        pending("long", "a", 1, max_runtime=51),
    ]
    decided = answers(a_snapshot(a_pool(3), departments, claims))
    assert [decided[id].decision for id in ("first", "owner", "short", "long")] == [ADMIT, WAIT, ADMIT, WAIT]


def test_starved_borrower_gets_a_hold_that_claims_inside_a_guarantee_pass() -> None:
    departments = [a_department("a", 2), a_department("b"), a_department("c", 6)]
    claims = [
        holding("h", "c", 4),
        pending("starving", "b", 8, submitted_at=-5000),
        pending("borrower", "b", 2),
        pending("owner", "a", 2),
    ]
    decided = answers(a_snapshot(a_pool(8), departments, claims))
    assert (decided["owner"].decision, decided["starving"].decision) == (ADMIT, WAIT)
    assert decided["borrower"].reasons == (HeldFor("starving"),)
    patient = answers(a_snapshot(a_pool(8), departments, claims, starvation_after=9999))
    assert patient["borrower"].decision is ADMIT


def test_recall_reclaims_units_without_a_workload() -> None:
    departments = [a_department("a", 4), a_department("b", 4)]
    claims = [holding("h", "b", 4), holding("borrowed", "b", 4), pending("recall", "a", 3, pods=0)]
    decision = answers(a_snapshot(a_pool(8), departments, claims))["recall"]
    assert (decision.decision, decision.own, decision.victims) == (RECLAIM, 3, ("borrowed",))


def test_recalled_units_are_held_for_the_recalling_department_only() -> None:
    departments = [a_department("a", 4), a_department("b", 4)]
    claims = [
        holding("recall", "a", 4, pods=0),
        holding("h", "b", 4),
        pending("stranger", "b", 1),
        pending("drawing", "a", 4),
    ]
    decided = answers(a_snapshot(a_pool(8), departments, claims))
    assert decided["stranger"].decision is WAIT
    assert (decided["drawing"].decision, decided["drawing"].own, decided["drawing"].borrowed) == (ADMIT, 4, 0)


def test_workload_that_draws_from_a_recall_is_never_preempted() -> None:
    departments = [a_department("a", 4), a_department("b", 4)]
    claims = [
        holding("recall", "a", 4, pods=0, started_at=-700),
        holding("drawing", "a", 4),
        holding("borrowing", "a", 4, started_at=-500),
        pending("w", "b", 4),
    ]
    assert (
        answers(a_snapshot(a_pool(8), departments, [*claims[:2], pending("w", "a", 4, priority=9)]))["w"].decision
        is ADMIT
    )
    assert answers(a_snapshot(a_pool(8), departments, claims))["w"].victims == ("borrowing",)

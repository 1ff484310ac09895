"""Alternatives of a decision ("why mine?"): which workloads would have been preempted instead, and at which step of rule 15
that set is worse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.engine.types import BorrowPreempt, Claim, ClaimId, DecisionKind, Department, Reservation, Snapshot
from quotas.engine.what_if import Alternative, Criterion, alternatives
from tests.engine.builders import a_department, a_policy, a_pool, a_snapshot, answers, holding, leaving, pending

OWNER, OTHERS = a_department("vision", 4), [a_department("nlp"), a_department("speech")]


def lent(*claims: Claim, asks: int = 2, owner: Department = OWNER, **settings: object) -> Snapshot:
    """vision requests units of its guarantee while all units are in use."""
    used = sum(claim.units for claim in claims)
    others = [a_department("bio", max(0, used - owner.quotas["gpu"].guaranteed)), *OTHERS]  # type: ignore[index]
    return a_snapshot(a_pool(used), [owner, *others], [*claims, pending("mine", "vision", asks)], **settings)  # type: ignore[arg-type]


def alternatives_of(snapshot: Snapshot, most: int = 5) -> tuple[Alternative, ...]:
    return alternatives(snapshot, ClaimId("mine"), answers(snapshot)["mine"].victims, most)


def comparison(snapshot: Snapshot) -> tuple[object, ...]:
    (alternative,) = alternatives_of(snapshot)
    return alternative.spared, alternative.answer.victims, alternative.worse_in, alternative.chosen, alternative.instead


def test_victim_that_loses_less_work_is_preempted() -> None:
    young, old = holding("young", "nlp", 2, started_at=-100), holding("old", "speech", 2, started_at=-700)
    assert comparison(lent(young, old, restart_cost=0)) == (("young",), ("old",), Criterion.LOST_WORK, 200, 1400)


def test_victim_of_lower_priority_is_preempted() -> None:
    low, high = holding("low", "nlp", 2, started_at=-9000), holding("high", "speech", 2, priority=5)
    assert comparison(lent(low, high)) == (("low",), ("high",), Criterion.PRIORITY, 0, 5)


def test_one_victim_is_preferred_to_two_that_lose_as_much_work() -> None:
    two = [holding(name, "speech", 1, started_at=-100) for name in ("a", "b")]
    assert comparison(lent(holding("one", "nlp", 2, started_at=-100), *two)) == (
        ("one",),
        ("a", "b"),
        Criterion.COUNT,
        1,
        2,
    )


def test_set_with_the_least_surplus_is_preferred() -> None:
    exact, large = holding("exact", "nlp", 2, started_at=-300), holding("large", "speech", 3, started_at=-200)
    assert comparison(lent(exact, large, restart_cost=0)) == (("exact",), ("large",), Criterion.UNITS, 2, 3)


def test_set_that_takes_no_department_below_its_guarantee_is_preferred() -> None:
    departments = [a_department("vision", 2), a_department("nlp"), a_department("speech", 1)]
    claims = [holding("borrows", "nlp", 3, started_at=-9000), holding("overshoots", "speech", 2)]
    snapshot = a_snapshot(a_pool(5), departments, [*claims, pending("mine", "vision", 2)])
    assert comparison(snapshot) == (("borrows",), ("overshoots",), Criterion.BELOW_GUARANTEE, 0, 1)


def test_work_of_the_own_department_is_preempted_last() -> None:
    claims = [holding("lent", "nlp", 2, priority=9), holding("own", "vision", 2, priority=-5)]
    assert comparison(lent(*claims)) == (("lent",), ("own",), Criterion.OWN, 0, 2)


def test_borrower_preempts_as_few_units_of_others_as_possible() -> None:
    policy = a_policy(borrow_preempt=BorrowPreempt(5))
    departments = [a_department("vision", 0, policy=policy), *OTHERS, a_department("idle", 4)]
    claims = [holding("small", "nlp", 2, priority=-1), holding("large", "speech", 3, priority=-2)]
    snapshot = a_snapshot(a_pool(5), departments, [*claims, pending("mine", "vision", 2)])
    assert comparison(snapshot) == (("small",), ("large",), Criterion.OTHERS, 2, 3)


def test_with_fair_sharing_the_department_that_borrows_most_is_preempted_first() -> None:
    claims = [holding("much", "nlp", 3, started_at=-9000), holding("little", "speech", 2)]
    snapshot = lent(*claims, fair_sharing=True)
    assert comparison(snapshot) == (("much",), ("little",), Criterion.SHARES, None, None)


def test_among_equal_victims_the_smaller_id_is_preempted() -> None:
    assert comparison(lent(holding("a", "nlp", 2), holding("b", "nlp", 2))) == (
        ("a",),
        ("b",),
        Criterion.ORDER,
        None,
        None,
    )


def test_alternative_is_to_wait_where_there_are_no_other_victims() -> None:
    (alternative,) = alternatives_of(lent(holding("only", "nlp", 4)))
    assert (alternative.answer.decision, alternative.answer.victims, alternative.worse_in) == (
        DecisionKind.WAIT,
        (),
        None,
    )


def test_victims_with_the_same_alternative_are_grouped_and_the_costliest_come_first() -> None:
    claims = [holding("a", "nlp", 1), holding("b", "nlp", 1), holding("c", "speech", 2, started_at=-9000)]
    (alternative,) = alternatives_of(lent(*claims))
    assert (alternative.spared, alternative.answer.victims) == (("a", "b"), ("c",))
    (one,) = alternatives_of(lent(*claims), most=1)
    assert one.spared == ("b",)


def test_alternative_that_conflicts_with_the_rest_of_the_pass_is_not_worse_by_cost() -> None:
    """`first` preempts `b`. With `c` as well nlp would end below its guarantee, so `mine` preempts `a`; on its own, `c` costs
    less."""
    departments = [OWNER, a_department("nlp", 1), a_department("speech")]
    claims = [
        holding(id, department, 2, started_at=started)
        for id, department, started in (("a", "speech", -700), ("b", "nlp", -100), ("c", "nlp", -300))
    ]
    asking = [pending("first", "vision", 2, submitted_at=-50), pending("mine", "vision", 2)]
    snapshot = a_snapshot(a_pool(6), departments, [*claims, *asking])
    assert {id: decision.victims for id, decision in answers(snapshot).items()} == {"first": ("b",), "mine": ("a",)}
    (alternative,) = alternatives_of(snapshot)
    assert (alternative.spared, alternative.answer.victims, alternative.worse_in) == (("a",), ("c",), None)


def test_reservation_from_an_earlier_pass_is_not_counted_twice() -> None:
    """`mine` already waits for a leaver, and needs one more victim since a card was lost."""
    claims = [
        leaving("gone", "nlp", 1, preempted_for="mine"), holding("a", "nlp", 1), holding("b", "speech", 1, started_at=-9000),
        pending("mine", "vision", 2, reserved=Reservation(2)),
    ]  # fmt: skip
    snapshot = a_snapshot(a_pool(3, nominal=4), [a_department("vision", 2), *OTHERS], claims)
    assert answers(snapshot)["mine"].victims == ("a",)
    assert comparison(snapshot)[:3] == (("a",), ("b",), Criterion.LOST_WORK)


def test_claim_that_is_not_in_the_snapshot_is_rejected_by_name() -> None:
    snapshot = lent(holding("only", "nlp", 4))
    with pytest.raises(ValueError, match="no claim nobody in this snapshot"):
        alternatives(snapshot, ClaimId("nobody"), (), 5)
    with pytest.raises(ValueError, match="no claim gone in this snapshot"):
        alternatives(snapshot, ClaimId("mine"), (ClaimId("gone"),), 5)


WORK = st.tuples(st.sampled_from(["nlp", "speech"]), st.integers(1, 3), st.integers(1, 900), st.integers(0, 2))


@given(st.lists(WORK, min_size=1, max_size=7), st.integers(1, 4))
def test_every_alternative_for_a_single_claim_in_a_flat_pool_is_worse(
    work: list[tuple[str, int, int, int]], asks: int
) -> None:
    claims = [
        holding(f"c{index}", department, units, started_at=-ran, priority=priority)
        for index, (department, units, ran, priority) in enumerate(work)
    ]
    for alternative in alternatives_of(lent(*claims, asks=asks)):
        assert not {*alternative.spared} & {*alternative.answer.victims}
        assert (alternative.worse_in is None) == (not alternative.answer.victims)

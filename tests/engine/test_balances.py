"""Fairness over time, an option of a pool: borrowing departments are served by their balance, and only the order changes."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.planning_pass import decide
from quotas.engine.queue import Competition
from quotas.engine.quota_tree import Ledger
from quotas.engine.snapshot_json import SnapshotError, parse_snapshot, snapshot_to_json
from quotas.engine.types import BorrowPreempt, DecisionKind, Snapshot
from tests.engine.builders import a_department, a_policy, a_pool, a_snapshot, answers, holding, pending
from tests.engine.effort import examples, patient
from tests.engine.forward import World, a_crowd, played
from tests.engine.strategies import snapshots

pytestmark = patient
many = settings(max_examples=examples(100, 3000), deadline=None)
NAMES = "abcd"
BALANCES = st.lists(st.integers(-5000, 5000), min_size=4, max_size=4)
WEIGHTS = st.lists(st.sampled_from([0, 1, 1, 2, Fraction(1, 2)]), min_size=4, max_size=4)


def started(capacity: int, balances: dict[str, int] | None, *claims: object, **settings: object) -> set[str]:
    departments = [a_department(name) for name in sorted({claim.department for claim in claims})]  # type: ignore[attr-defined]
    snapshot = a_snapshot(a_pool(capacity, balances=balances), departments, claims, **settings)  # type: ignore[arg-type]
    return {claim for claim, decision in answers(snapshot).items() if decision.decision is DecisionKind.ADMIT}


def requests_of_each(units: int, times: int, names: str = "ab") -> list[object]:
    return [pending(f"{name}{n}", name, units) for name, n in product(names, range(times))]


def test_department_that_lent_more_borrows_first() -> None:
    claims = requests_of_each(1, 1)
    assert started(1, None, *claims) == {"a0"}
    assert started(1, {"b": -1}, *claims) == {"b0"}
    assert started(1, {"a": -1}, *claims) == {"a0"}
    assert started(1, {}, *claims) == {"a0"}


def test_balance_gives_precedence_for_as_many_units_and_no_more() -> None:
    """b lent three units on average lately: it can borrow three before a borrows one, and then they take turns."""
    assert started(3, {"b": -3000}, *requests_of_each(1, 8)) == {"b0", "b1", "b2"}
    assert started(7, {"b": -3000}, *requests_of_each(1, 8)) == {"b0", "b1", "b2", "b3", "b4", "a0", "a1"}


def test_zero_balances_serve_departments_as_fair_sharing_does() -> None:
    claims = [holding("h", "a", 2), *requests_of_each(1, 4)]
    assert started(6, {}, *claims) == {"b0", "b1", "b2", "a0"} == started(6, None, *claims, fair_sharing=True)


def test_lent_units_count_unit_for_unit_and_further_borrowing_by_weight() -> None:
    a, b = a_department("a", weight=2), a_department("b")
    for balances, first in (
        ({"a": -1500, "b": -2000}, "b0"),
        ({"a": 3000, "b": 1500}, "a0"),
        ({"a": 3000, "b": -999}, "b0"),
    ):
        snapshot = a_snapshot(a_pool(1, balances=balances), [a, b], requests_of_each(1, 1))  # type: ignore[arg-type]
        assert answers(snapshot)[first].decision is DecisionKind.ADMIT


def test_claim_inside_the_guarantee_comes_first_whatever_the_balance() -> None:
    a, b = a_department("a", 1), a_department("b")
    snapshot = a_snapshot(a_pool(1, balances={"a": 10**6, "b": -(10**6)}), [a, b], requests_of_each(1, 1))
    assert answers(snapshot)["a0"].decision is DecisionKind.ADMIT


def test_loans_between_teams_cancel_out_in_the_balance_of_their_department() -> None:
    """The balances of x and z are equal; inside x the team that lent is served first."""
    departments = [a_department("x"), a_department("p", parent="x"), a_department("q", parent="x"), a_department("z")]
    claims = [pending("p", "p", 1), pending("q", "q", 1), pending("z", "z", 1)]
    snapshot = a_snapshot(a_pool(2, balances={"p": 4000, "q": -4000}), departments, claims)
    assert {id for id, answer in answers(snapshot).items() if answer.decision is DecisionKind.ADMIT} == {"q", "z"}


def test_balances_never_cause_a_preemption() -> None:
    """With fair sharing b preempts work of a, which borrows more; a balance only lets b start first."""
    departments = [a_department("a"), a_department("b")]
    claims = [holding("h1", "a", 2), holding("h2", "a", 2), pending("w", "b", 2, submitted_at=-2000)]
    assert answers(a_snapshot(a_pool(4), departments, claims, fair_sharing=True))["w"].victims == ("h1",)
    pool = a_pool(4, balances={"a": 10**6, "b": -(10**6)})
    assert answers(a_snapshot(pool, departments, claims, fair_sharing=True))["w"].decision is DecisionKind.WAIT


def test_borrow_preempt_policy_still_applies_with_balances() -> None:
    policy = a_policy(borrow_preempt=BorrowPreempt())
    departments = [a_department("a"), a_department("b", policy=policy)]
    claims = [holding("h", "a", 2), pending("w", "b", 2, priority=1)]
    for balances in (None, {"a": -9000}):
        snapshot = a_snapshot(a_pool(2, balances=balances), departments, claims)  # type: ignore[arg-type]
        assert answers(snapshot)["w"].victims == ("h",)


def order(balances: list[int], weights: list[object], used: list[int]) -> list[str]:
    """The order in which one claim of each department is served."""
    departments = [a_department(name, weight=weight) for name, weight in zip(NAMES, weights, strict=True)]
    ledger = Ledger(a_pool(100, balances=dict(zip(NAMES, balances, strict=True))), departments)
    for name, units in zip(NAMES, used, strict=True):
        ledger.add(name, units)  # type: ignore[arg-type]
    claims = [pending(name, name, 1) for name in NAMES]
    competition = Competition(ledger, claims, fair=False, asks=lambda claim: claim.units)
    served = []
    while (claim := competition.next()) is not None:
        served.append(claim.department)
        competition.enter_next(claim.department)
    return [str(name) for name in served]


USED = st.lists(st.integers(0, 6), min_size=4, max_size=4)


@many
@given(BALANCES, WEIGHTS, USED, st.integers(0, 3), st.integers(1, 9000))
def test_lending_more_never_moves_a_department_back_in_the_order(
    balances: list[int], weights: list[object], used: list[int], index: int, more: int
) -> None:
    before = order(balances, weights, used)
    assert sorted(before) == [*NAMES]
    lent = [balance - more * (n == index) for n, balance in enumerate(balances)]
    assert order(lent, weights, used).index(NAMES[index]) <= before.index(NAMES[index])


@many
@given(BALANCES, WEIGHTS, USED, st.integers(0, 3), st.sampled_from([2, 3, 10]))
def test_greater_weight_never_moves_a_department_back_in_the_order(
    balances: list[int], weights: list[object], used: list[int], index: int, times: int
) -> None:
    heavier = [weight * times if n == index else weight for n, weight in enumerate(weights)]  # type: ignore[operator]
    assert order(balances, heavier, used).index(NAMES[index]) <= order(balances, weights, used).index(NAMES[index])


@many
@given(BALANCES, WEIGHTS, USED, st.integers(2, 50))
def test_order_does_not_depend_on_the_scale_of_balances_and_usage(
    balances: list[int], weights: list[object], used: list[int], times: int
) -> None:
    """Balances and borrowed units, all multiplied by the same factor, give the same order."""
    departments = [a_department(name, weight=weight) for name, weight in zip(NAMES, weights, strict=True)]
    ranks = []
    for factor in (1, times):
        given = {name: balance * factor for name, balance in zip(NAMES, balances, strict=True)}
        ledger = Ledger(a_pool(10_000, balances=given), departments)
        for name, units in zip(NAMES, used, strict=True):
            ledger.add(name, units * factor)  # type: ignore[arg-type]
        ranks.append(sorted(NAMES, key=lambda name: (ledger.balance_after(ledger[name], 0), name)))
    assert ranks[0] == ranks[1]


@many
@given(snapshots(fair=False), st.integers(-(10**6), 10**6))
def test_equal_weights_and_balances_plan_as_fair_sharing_without_preemption(snapshot: Snapshot, balance: int) -> None:
    """Equal balances make no difference; where policies permit no preemption, fair sharing makes the same plan."""
    never = replace(snapshot.departments[0].policy or a_policy(), within="never", reclaim="never", borrow_preempt=None)
    departments = tuple(replace(each, weight=1, policy=never) for each in snapshot.departments)
    equal = {each.id: abs(balance) for each in departments}
    flat = replace(snapshot, departments=departments)
    over_time = replace(flat, pools=(replace(flat.pools[0], balances=equal),))
    fair = replace(flat, settings=replace(flat.settings, fair_sharing=True))
    assert decide(over_time) == decide(fair)


WORLDS = [World(*kinds) for kinds in product((True, False), repeat=3)]


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_every_snapshot_comes_to_rest_with_balances(world: World) -> None:
    restless = []
    for seed in range(examples(100, 5_000)):
        crowd = a_crowd(seed, world)
        balances = {each.id: (hash_of(seed, each.id) - 500) * 10 for each in crowd.departments}
        if not played(replace(crowd, pools=(replace(crowd.pools[0], balances=balances),)), most=60).settled:
            restless.append(seed)
    assert restless == []


def hash_of(seed: int, name: str) -> int:
    """A number below 1000 that is the same in every run."""
    return (seed * 7919 + sum(map(ord, name)) * 104_729) % 1000


def test_balances_round_trip_as_json_and_reject_unknown_departments() -> None:
    snapshot = a_snapshot(a_pool(1, balances={"a": -5}), [a_department("a")], [])
    assert parse_snapshot(snapshot_to_json(snapshot)) == snapshot
    assert snapshot_to_json(snapshot)["pools"][0]["balances"] == {"a": -5}
    assert parse_snapshot(snapshot_to_json(replace(snapshot, pools=(a_pool(1, balances={}),)))).pools[0].balances == {}
    with pytest.raises(SnapshotError, match=r"pools\[0\].balances.b: unknown department 'b'"):
        parse_snapshot(snapshot_to_json(replace(snapshot, pools=(a_pool(1, balances={"b": 1}),))))

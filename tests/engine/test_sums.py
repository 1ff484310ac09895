"""Claims of many sizes: what they give together takes too many values to compare them all."""

import random
from contextlib import nullcontext
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from quotas.engine import invariants, problem
from quotas.engine.admission import decide
from quotas.engine.permission import Fairness, taker_of
from quotas.engine.recallable import cheapest_sum
from quotas.engine.search import makes_room
from quotas.engine.types import Claim, DecisionKind, Snapshot
from tests.engine.builders import a_department, a_pool, a_snapshot, answers, holding, pending
from tests.engine.effort import examples, patient
from tests.engine.strategies import crowded, reclaims
from tests.engine.test_victims import (
    CANDIDATES,
    never_worse_than_greedy,
    none_goes_in_vain,
    the_best_is_chosen,
    the_books,
)
from tests.engine.towns import a_town

pytestmark = patient


def in_odd_sizes(snapshot: Snapshot) -> Snapshot:
    """As if units were tenths, and hardly any two claims of one size."""
    claims = tuple(replace(c, units_per_pod=10 * c.units_per_pod + 3 * n % 7) for n, c in enumerate(snapshot.claims))
    departments = tuple(
        replace(d, quotas={"gpu": replace(d.quotas["gpu"], guaranteed=10 * d.quotas["gpu"].guaranteed)})
        for d in snapshot.departments
    )
    more = sum(claim.units for claim in claims) - 10 * sum(claim.units for claim in snapshot.claims)
    (pool,) = snapshot.pools
    pools = (replace(pool, capacity=10 * (pool.capacity or 0) + more),)
    return replace(snapshot, pools=pools, departments=departments, claims=claims)


@settings(max_examples=examples(200, 2000), deadline=None)
@given(reclaims(candidates=CANDIDATES).map(in_odd_sizes) | reclaims(fair=True).map(in_odd_sizes))
def test_of_few_claims_of_any_sizes_the_best_go(snapshot: Snapshot) -> None:
    the_best_is_chosen(snapshot)


@settings(
    max_examples=examples(100, 1000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    snapshot=reclaims(candidates=20).map(in_odd_sizes) | reclaims(fair=True, candidates=20) | crowded(),
    most=st.integers(0, 200),
)
def test_where_sums_are_too_many_a_search_finds_who_goes(
    snapshot: Snapshot, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problem, "SUMS", most)
    monkeypatch.setattr(problem, "FEW", 0)
    books, claim = the_books(snapshot)
    assume(makes_room(books, taker_of(books, claim), ()) is None)
    none_goes_in_vain(books, claim)
    if snapshot.pools[0].nodes is None:
        never_worse_than_greedy(books, claim)


def of_mib(chance: random.Random, fair: bool) -> Snapshot:
    """Twelve departments, 150 claims and 60 that wait, of sizes that hardly any two have: all that is held is lent out."""
    sizes = [chance.randrange(500, 24_000) for _ in range(60)]
    held = [holding(f"h{n:03}", f"d{chance.randrange(6)}", chance.choice(sizes)) for n in range(150)]
    asked = [pending(f"p{n:03}", f"d{chance.randrange(12)}", chance.choice(sizes)) for n in range(60)]
    used = sum(claim.units for claim in held)
    departments = [a_department(f"d{n}", used // 12) for n in range(12)]
    return a_snapshot(a_pool(used), departments, [*held, *asked], fair_sharing=fair)


@pytest.mark.parametrize("fair", [False, True])
def test_a_pool_of_mib_is_planned_whatever_the_sizes(fair: bool) -> None:
    """No table of all sums would fit here: some ten thousand for each of some hundred claims."""
    snapshot = of_mib(random.Random(7), fair)
    plan = decide(snapshot)
    assert invariants.of_plan(snapshot, plan) == ()
    assert sum(decision.decision is DecisionKind.RECLAIM for decision in plan.decisions) > 20


def test_who_is_far_above_its_borrow_limit_asks_others_for_what_they_can_give_only() -> None:
    """Its limit was cut: of 148 units to go all but three are its own to give, and nobody else is asked for more."""
    mine = [holding(f"m{n:02}", "a", 3 + n % 5) for n in range(40)]
    theirs = [holding(f"o{n:02}", f"b{n % 3}", 2 + n % 7) for n in range(60)]
    departments = [a_department("a", 8, borrow_limit=3), *(a_department(f"b{n}") for n in range(3))]
    used = sum(claim.units for claim in [*mine, *theirs])
    asked = pending("asked", "a", 3, priority=1)
    decided = answers(a_snapshot(a_pool(used), departments, [*mine, *theirs, asked], fair_sharing=True))
    assert {victim[0] for victim in decided["asked"].victims} == {"m"}
    assert sum(claim.units for claim in mine if claim.id not in decided["asked"].victims) + 3 <= 11


def test_wherever_the_comparing_ends_those_who_go_are_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of the best set, or of a set of lower priorities that is as good: then the best is taken."""
    held = [holding(f"h{n}", "bcd"[n % 3], 2 + n % 4, priority=n % 3, started_at=-60 * n) for n in range(9)]
    departments = [a_department("a", 12), *(a_department(department, 1) for department in "bcd")]
    used = sum(claim.units for claim in held)
    snapshot = a_snapshot(a_pool(used), departments, [*held, pending("asked", "a", 7, priority=3)])
    monkeypatch.setattr(problem, "FEW", 0)
    for most in range(0, 400, 5):
        monkeypatch.setattr(problem, "SUMS", most)
        for fair in (False, True):
            none_goes_in_vain(*the_books(replace(snapshot, settings=replace(snapshot.settings, fair_sharing=fair))))


@pytest.mark.parametrize("seed", range(10))
def test_on_nodes_who_goes_is_searched_for_too(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "SUMS", 0)
    monkeypatch.setattr(problem, "FEW", 0)
    town = a_town(seed)
    assert invariants.of_plan(town, decide(town)) == ()


@settings(max_examples=examples(200, 3000), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9)), min_size=1, max_size=9), st.integers(1, 60))
def test_the_cheapest_sum_is_the_least_of_all(offers: list[tuple[int, int]], need: int) -> None:
    """Of (units, lost work)."""
    claims = {f"h{n}": (holding(f"h{n}", "b", units), lost) for n, (units, lost) in enumerate(offers)}
    assume(sum(units for units, _ in offers) >= need)
    sizes: dict[int, list[tuple[int, str, Claim]]] = {}
    for id, (claim, lost) in claims.items():
        sizes.setdefault(claim.units, []).append((lost, id, claim))
    values = (
        (sum(claims[id][1] for id in ids), len(ids), sum(claims[id][0].units for id in ids), ids)
        for count in range(1, len(claims) + 1)
        for ids in combinations(sorted(claims), count)
    )
    best = min(value for value in values if value[2] >= need)
    chosen = cheapest_sum({size: sorted(of_size) for size, of_size in sizes.items()}, need)
    assert tuple(sorted(claim.id for claim in chosen)) == best[3]


def test_a_pass_in_which_much_was_compared_compares_less_for_each_question() -> None:
    """A large pass is tired later: so much for each claim."""
    one = [holding("h", "b", 1), pending("p", "a", 1)]
    many = [*one, *(pending(f"p{n}", "b", 1) for n in range(4_000))]
    departments = [a_department("a", 1), a_department("b")]
    for claims, tired in ((one, 1_000_000), (many, 250 * 4_002)):
        books, claim = the_books(a_snapshot(a_pool(1), departments, claims))
        asked = problem.Problem(books, taker_of(books, claim), [], {}, None, (1, 1, 1), Fairness.BEFORE)
        assert asked.sums == 100_000
        asked.compare(30_000)
        asked.compare(tired - 30_001)
        assert books.sums == tired - 1
        assert replace(asked).sums == 100_000
        books.sums += 1
        assert replace(asked).sums == 2_000


def test_so_many_sums_are_compared_for_one_question_but_of_a_few_claims_all() -> None:
    claims = [holding(f"h{n}", "b", 1) for n in range(9)] + [pending("p", "a", 1)]
    books, claim = the_books(a_snapshot(a_pool(9), [a_department("a", 1), a_department("b")], claims))
    theirs = {"b": books.holding["b"].values()}
    for own, few in ((7, True), (8, False)):
        mine = [claim] * own
        asked = problem.Problem(books, taker_of(books, claim), mine, theirs, None, (1, 1, 1), Fairness.BEFORE)
        asked.compare(60_000)
        asked.compare(40_000)
        with nullcontext() if few else pytest.raises(problem.TooManySets):
            asked.compare(1)

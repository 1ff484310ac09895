"""The cheapest set of claims that together release a given number of units."""

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.planning_pass import decide
from quotas.engine.victim_search import cheapest_sum
from tests.engine.builders import a_department, a_pool, a_snapshot, holding, pending
from tests.engine.effort import examples


@settings(max_examples=examples(300, 3000), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9)), min_size=1, max_size=9), st.integers(1, 60))
def test_cheapest_sum_is_the_cheapest_of_all_subsets(offers: list[tuple[int, int]], need: int) -> None:
    """Each offer is (units, lost work)."""
    claims = [holding(f"h{n}", "b", units) for n, (units, _) in enumerate(offers)]
    lost = {claim.id: lost for claim, (_, lost) in zip(claims, offers, strict=True)}
    sets = (some for count in range(1, len(claims) + 1) for some in combinations(claims, count))
    costs = (
        (sum(lost[c.id] for c in some), len(some), sum(c.units for c in some), tuple(c.id for c in some))
        for some in sets
    )
    best = min((cost for cost in costs if cost[2] >= need), default=None)
    chosen = cheapest_sum(claims, need, lambda claim: claim.units, lambda claim: lost[claim.id])
    assert (chosen and tuple(claim.id for claim in chosen)) == (best and best[3])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(2))
def test_cheapest_sum_of_hundreds_of_sizes_is_within_two_percent_of_a_lower_bound(seed: int) -> None:
    """The lower bound may take parts of claims. A search that kept every sum took many minutes."""
    chance = random.Random(seed)
    claims = [holding(f"h{n:03}", "b", 256 * chance.randrange(16, 160)) for n in range(360)]
    lost = {claim.id: claim.units * chance.randrange(100_000) for claim in claims}
    need = sum(claim.units for claim in claims) // 2
    chosen = cheapest_sum(claims, need, lambda claim: claim.units, lambda claim: lost[claim.id])
    assert chosen is not None
    assert sum(claim.units for claim in chosen) >= need

    least, missing = 0.0, need
    for claim in sorted(claims, key=lambda claim: lost[claim.id] / claim.units):
        part = min(claim.units, missing)
        least, missing = least + lost[claim.id] * part / claim.units, missing - part
    assert sum(lost[claim.id] for claim in chosen) < 1.02 * least


@pytest.mark.timeout(120)
def test_recall_of_half_a_pool_in_mib_finds_victims_in_time() -> None:
    chance = random.Random(1)
    borrowed = [
        holding(f"h{n:03}", "b", 256 * chance.randrange(16, 160), started_at=-chance.randrange(100_000))
        for n in range(360)
    ]
    units = sum(claim.units for claim in borrowed)
    recall = pending("recall", "a", units // 2, pods=0)
    plan = decide(a_snapshot(a_pool(units), [a_department("a", units), a_department("b")], [*borrowed, recall]))
    assert plan.decisions[0].decision == "reclaim"
    assert 100 < len(plan.decisions[0].victims) < 200

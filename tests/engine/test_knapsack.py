"""The cheapest claims that give so many units together."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.victim_search import cheapest_sum
from tests.engine.builders import holding
from tests.engine.effort import examples


@settings(max_examples=examples(300, 3000), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9)), min_size=1, max_size=9), st.integers(1, 60))
def test_the_cheapest_sum_is_the_least_of_all(offers: list[tuple[int, int]], need: int) -> None:
    """Of (units, lost work)."""
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

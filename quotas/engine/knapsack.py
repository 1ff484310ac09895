"""The cheapest claims that give a number of units together: one knapsack, for pools (and recalls) that only count units."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from quotas.engine.types import Claim, ClaimId

Value = tuple[int, int, int, tuple[ClaimId, ...]]
"""(lost work, how many, units, which) of a set of claims"""


def cheapest_sum(
    claims: Iterable[Claim], need: int, units: Callable[[Claim], int], lost: Callable[[Claim], int]
) -> tuple[Claim, ...] | None:
    """The claims that give at least `need` units together and lose the least work; of those that lose the same the fewest, then
    the fewest units, then the smaller ids. None if all together are too few.

    A table has the best set for every sum, up to the need; sums are as many as the need has units, so it is thinned out
    after each size.
    """
    table: dict[int, Value] = {0: (0, 0, 0, ())}
    by_id = {claim.id: claim for claim in claims}
    for size, same in _worth_trying(by_id.values(), need, units, lost):
        for given, value in list(table.items()):
            for claim in same[: -(-(need - given) // size)]:
                value = value[0] + lost(claim), value[1] + 1, value[2] + size, (*value[3], claim.id)
                state = min(value[2], need)
                if state not in table or _key(value) < _key(table[state]):
                    table[state] = value
        table = _undominated(table)
    return tuple(by_id[id] for id in sorted(table[need][3])) if need in table else None


def lowest_sum(
    claims: Iterable[Claim], need: int, units: Callable[[Claim], int], lost: Callable[[Claim], int]
) -> tuple[Claim, ...] | None:
    """The same of the lowest priorities that suffice."""
    claims = list(claims)
    for ceiling in sorted({claim.priority for claim in claims}):
        low = [claim for claim in claims if claim.priority <= ceiling]
        if sum(map(units, low)) >= need:
            return tuple(low) if len(low) == 1 else cheapest_sum(low, need, units, lost)
    return None


def _key(value: Value) -> tuple[int, int, int, list[ClaimId]]:
    return *value[:3], sorted(value[3])


def _worth_trying(
    claims: Iterable[Claim], need: int, units: Callable[[Claim], int], lost: Callable[[Claim], int]
) -> Iterable[tuple[int, list[Claim]]]:
    """By size, the largest first, the claims that can be in the best set, cheapest first: of fewer than would be enough others
    are no smaller and lose less."""
    sizes: dict[int, list[Claim]] = {}
    for claim in claims:
        sizes.setdefault(units(claim), []).append(claim)
    losses: list[int] = []
    for size in sorted(sizes, reverse=True):
        many = -(-need // size)
        cheapest = sorted(sizes[size], key=lambda claim: (lost(claim), claim.id))[:many]
        worth = [claim for claim in cheapest if bisect_left(losses, lost(claim)) < many]
        for claim in worth:
            insort(losses, lost(claim))
        yield size, worth


def _undominated(table: dict[int, Value]) -> dict[int, Value]:
    """The table without sums that are less than another and cost more."""
    kept: dict[int, Value] = {}
    least: tuple[int, int] | None = None
    for given, value in sorted(table.items(), reverse=True):
        if least is None or value[:2] <= least:
            kept[given], least = value, value[:2]
    return kept

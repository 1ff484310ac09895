"""The order of victim sets with fair sharing: changes of shares compare as the shares that remain."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from quotas.engine.quota_tree import NO_CHANGE, Ledger, ShareChange, lowered, share
from tests.engine.builders import a_department, a_pool

SIZES = st.lists(st.integers(0, 6), min_size=4, max_size=4)
WEIGHTS = st.lists(st.sampled_from([0, 1, 1, 2]), min_size=4, max_size=4)


def a_ledger(weights: list[int], used: list[int]) -> Ledger:
    departments = [a_department(f"d{n}", n % 3, weight=weight) for n, weight in enumerate(weights)]
    ledger = Ledger(a_pool(12), departments)
    for department, units in zip(departments, used, strict=True):
        ledger.add(department.id, units)
    return ledger


def changed(ledger: Ledger, taken: list[int]) -> tuple[ShareChange, list[int]]:
    """The change from taking so many units from each department, and the shares that remain."""
    accounts = list(ledger.accounts.values())
    change = NO_CHANGE
    for account, units in zip(accounts, taken, strict=True):
        change += lowered(account, units)
    remaining = [share(account, account.usage - units) for account, units in zip(accounts, taken, strict=True)]
    return change, sorted(remaining, reverse=True)


@given(WEIGHTS, SIZES, SIZES, SIZES)
def test_changes_compare_as_the_shares_that_remain(
    weights: list[int], used: list[int], some: list[int], others: list[int]
) -> None:
    ledger = a_ledger(weights, used)
    (one, left), (other, left_by_other) = changed(ledger, some), changed(ledger, others)
    assert (one < other, one == other, one > other) == (
        left < left_by_other,
        left == left_by_other,
        left > left_by_other,
    )


def test_change_that_leaves_fewer_of_the_highest_differing_share_is_less() -> None:
    lower, higher = ShareChange(((9, -1), (4, 1))), ShareChange(((9, -1), (5, 1)))
    assert lower < higher < NO_CHANGE < ShareChange(((1, 1),))
    assert ShareChange(((9, -2),)) < lower
    assert lower + ShareChange(((4, -1), (2, 1))) == ShareChange(((9, -1), (2, 1)))
    assert (lower + NO_CHANGE, NO_CHANGE + lower) == (lower, lower)


def test_share_with_a_small_weight_is_below_the_share_without_weight() -> None:
    light, none = (Ledger(a_pool(2), [a_department("a", weight=w)])["a"].pace for w in (Fraction(1, 4), 0))  # type: ignore[index]
    assert light < none

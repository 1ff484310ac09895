"""What departments have borrowed and lent lately: the sums of the database are those of the pure function on the ledger."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.models import Department
from quotas.models import LedgerEntry, Pool, UsageHour
from quotas.planning.snapshot import load_snapshot
from quotas.rules.policies import BOUNDS
from quotas.spending.balances import balances, lately, remember
from quotas.spending.decay import HOUR, PART_BITS, Decaying, Lately, factor_of
from quotas.spending.metering import sum_hours, whole_second
from tests import builders as make
from tests.quotas.reports.test_ledger import BEGIN, SECONDS, a_ledger

HALF_LIVES = st.integers(*BOUNDS["balance_half_life"])
DAY = 24


# The pure function ----------------------------------------------------------------------------------------------------


def test_a_half_life_leaves_a_half() -> None:
    sums = Decaying[str](DAY * HOUR, 100)
    sums.count("a", borrowed=80 * HOUR, lent=8 * HOUR)
    sums.pass_to(100 + DAY)
    assert [round(float(hours), 4) for hours in sums.sums["a"].hours()] == [40, 4]


def test_who_always_borrows_one_unit_comes_to_a_thousand_thousandths_and_who_lends_it_to_as_many_below_zero() -> None:
    sums = Decaying[str](DAY * HOUR, 0)
    for hour in range(40 * DAY):
        sums.pass_to(hour)
        sums.count("a", borrowed=HOUR)
        sums.count("b", lent=HOUR)
        sums.count("c", lent=HOUR, borrowed=HOUR)
    assert sums.balances() == {"a": 1000, "b": -1000}


@given(HALF_LIVES, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10**6)), max_size=20), st.integers(60, 99))
def test_it_is_the_closed_form_of_use_spread_over_its_hours(
    half_life: int, used: list[tuple[int, int]], until: int
) -> None:
    """u · h/ln 2 · (2^((b-now)/h) - 2^((a-now)/h)), divided by the mean life h/ln 2: what was borrowed on average."""
    sums = Decaying[str](half_life, 0)
    expected = Decimal(0)
    with localcontext() as context:
        context.prec = 50
        for hour, seconds in sorted(used):
            sums.pass_to(hour)
            sums.count("a", borrowed=seconds)
            ends, begins = (Decimal((at - until) * HOUR) / half_life for at in (hour, hour - 1))
            expected += Decimal(seconds) / HOUR * (2**ends - 2**begins)
        sums.pass_to(until)
    assert abs(sums.balances().get("a", 0) - expected * 1000) <= Decimal("0.51")


@given(
    HALF_LIVES,
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.integers(0, 9999), st.integers(0, 9999))),
)
def test_it_is_the_same_when_it_is_kept_in_between_and_each_department_is_counted_by_itself(
    half_life: int, steps: list[tuple[int, str, int, int]]
) -> None:
    whole, alone = Decaying[int](half_life, 7), Decaying[int](half_life, 7)
    kept = Decaying[int](half_life, 7)
    hour = 7
    for hours, who, borrowed, lent in steps:
        hour += hours
        for sums in (whole, kept):
            sums.pass_to(hour)
            sums.count(ord(who), borrowed=borrowed, lent=lent)
        if who == "a":
            alone.pass_to(hour)
            alone.count(ord("a"), borrowed=borrowed, lent=lent)
        kept = Decaying.from_json(kept.to_json())
    alone.pass_to(hour)
    assert kept.sums == whole.sums
    assert alone.sums.get(ord("a"), Lately()) == whole.sums.get(ord("a"), Lately())


@given(HALF_LIVES, st.lists(st.integers(0, 9999), min_size=2, max_size=9), st.integers(0, 8), st.integers(1, 9999))
def test_who_lends_more_never_has_the_greater_balance(half_life: int, lent: list[int], at: int, more: int) -> None:
    sums = Decaying[str](half_life, 0)
    for hour, units in enumerate(lent):
        sums.pass_to(hour)
        sums.count("a", borrowed=5000, lent=units)
        sums.count("b", borrowed=5000, lent=units + more * (hour == at % len(lent)))
    found = sums.balances()
    assert found.get("b", 0) <= found.get("a", 0)


def test_a_factor_is_exact() -> None:
    assert factor_of(HOUR) == 1 << 31
    assert factor_of(2 * HOUR) ** 2 <= 1 << 63 < (factor_of(2 * HOUR) + 1) ** 2
    assert Fraction(factor_of(DAY * HOUR), 1 << 32) ** DAY == pytest.approx(Fraction(1, 2), rel=1e-7)


@given(st.integers(0, 10**7), st.integers(0, 10**5))
def test_a_time_is_cut_at_hours(since: int, lasts: int) -> None:
    parts = [*Decaying.by_hours(since, since + lasts)]
    assert sum(seconds for _, seconds in parts) == lasts
    assert all(0 < seconds <= HOUR for _, seconds in parts)
    assert [hour for hour, _ in parts] == ([*range(since // HOUR, (since + lasts - 1) // HOUR + 1)] if lasts else [])


# Of the ledger --------------------------------------------------------------------------------------------------------


def by_hand(pool: Pool, now: dt.datetime) -> dict[int, Lately]:
    """From the ledger alone, entry by entry and hour by hour."""
    end, used = int(whole_second(now).timestamp()), list[tuple[int, int, int, int]]()
    for entry in LedgerEntry.objects.filter(pool=pool, own=False):
        began = int(whole_second(entry.started_at).timestamp())
        ended = end if entry.ended_at is None else min(end, int(whole_second(entry.ended_at).timestamp()))
        for hour, seconds in Decaying.by_hours(began, ended):
            used.append((hour, entry.department_id, entry.units * seconds, 0))
            if entry.lender_id is not None:
                used.append((hour, entry.lender_id, 0, entry.units * seconds))
    sums = Decaying[int](pool.balance_half_life or 0, -1)
    for hour, department, borrowed, lent in sorted(used):
        sums.pass_to(hour)
        sums.count(department, borrowed=borrowed, lent=lent)
    sums.pass_to(end // HOUR)
    return {who: each for who, each in sums.sums.items() if any(each)}


def some(sums: Decaying[int]) -> dict[int, Lately]:
    return {who: each for who, each in sums.sums.items() if any(each)}


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(4))
def test_sums_of_the_database_are_those_of_the_ledger(seed: int, django_assert_max_num_queries: Any) -> None:
    """The meter and the memory run now and then, and are late; the pass asks at any time."""
    chance = random.Random(f"balances {seed}")
    _departments, pools = a_ledger(chance)
    for pool in pools[:2]:
        pool.balance_half_life = chance.choice(
            [HOUR, 5 * HOUR, DAY * HOUR, 14 * DAY * HOUR, chance.randrange(HOUR, 10**6)]
        )
        pool.save()
    now, end = BEGIN, BEGIN + dt.timedelta(seconds=SECONDS)
    while now < end:
        if chance.random() < 0.7:
            sum_hours(now=now)
        if chance.random() < 0.7:
            remember(now=now)
        now += dt.timedelta(seconds=chance.choice([60, 20_000, 40_000, 86_000]))
        rows = list(Pool.objects.all())
        with django_assert_max_num_queries(4):
            found = lately(rows, now=now)
        assert {pk: some(sums) for pk, sums in found.items()} == {
            pool.pk: by_hand(again(pool), now) for pool in pools[:2]
        }
        assert {pk: sums.balances() for pk, sums in found.items()} == by_id(
            balances(rows, Department.objects.all(), now=now)
        )
    assert any(pool.balance_sums for pool in Pool.objects.all())


def by_id(balances: dict[int, dict[Any, int]]) -> dict[int, dict[int, int]]:
    ids = dict(Department.objects.values_list("slug", "pk"))
    return {pool: {ids[slug]: value for slug, value in each.items()} for pool, each in balances.items()}


def again(pool: Pool) -> Pool:
    return Pool.objects.get(pk=pool.pk)


@pytest.mark.django_db
def test_where_no_pool_has_a_half_life_nothing_is_asked(django_assert_num_queries: Any) -> None:
    pool = make.pool("a100", cards=8)
    with django_assert_num_queries(0):
        assert balances([pool], [], now=BEGIN) == {}
    assert load_snapshot(pool.group, now=BEGIN).pools[0].balances is None


@pytest.mark.django_db
@pytest.mark.parametrize("minutes", [1, 59, 61, 119])
def test_what_is_remembered_is_counted_on_by_one_query(minutes: int, django_assert_num_queries: Any) -> None:
    """The meter has run in the last hour or the one before."""
    _departments, [first, second, *_] = a_ledger(random.Random(minutes))
    Pool.objects.filter(pk__in=[first.pk, second.pk]).update(balance_half_life=DAY * HOUR)
    metered = BEGIN.replace(minute=0) + dt.timedelta(days=3)
    sum_hours(now=metered)
    remember(now=metered)
    rows, now = [again(first), again(second)], metered + dt.timedelta(minutes=minutes)
    with django_assert_num_queries(1):
        found = lately(rows, now=now)
    assert [some(found[row.pk]) for row in rows] == [by_hand(row, now) for row in rows]


@pytest.mark.django_db
def test_another_half_life_forgets_what_was_remembered() -> None:
    chance = random.Random(5)
    _departments, [pool, *_] = a_ledger(chance)
    end = BEGIN + dt.timedelta(days=4)
    for half_life in (HOUR, DAY * HOUR):
        Pool.objects.filter(pk=pool.pk).update(balance_half_life=half_life)
        for _ in range(2):
            sum_hours(now=end)
            remember(now=end)
        assert some(lately([again(pool)], now=end)[pool.pk]) == by_hand(again(pool), end)
    assert remember(now=end) == 0  # nothing has become final since


@pytest.mark.django_db
def test_what_a_clock_that_was_ahead_has_remembered_does_not_count() -> None:
    _departments, [pool, *_] = a_ledger(random.Random(6))
    Pool.objects.filter(pk=pool.pk).update(balance_half_life=DAY * HOUR)
    later = BEGIN + dt.timedelta(days=3)
    sum_hours(now=later)
    remember(now=later)
    assert again(pool).balance_sums
    UsageHour.objects.filter(hour__gt=BEGIN).delete()
    now = BEGIN + dt.timedelta(hours=5)
    assert some(lately([again(pool)], now=now)[pool.pk]) == by_hand(again(pool), now)


@pytest.mark.django_db
def test_the_planner_is_given_balances_by_department() -> None:
    vision, nlp, pool = make.department("vision"), make.department("nlp"), make.pool("a100", cards=8)
    pool.balance_half_life = DAY * HOUR
    pool.save()
    claim = make.claim(nlp, pool, 4, "holding", started_at=BEGIN)
    LedgerEntry.objects.create(
        claim=claim, pool=pool, department=nlp, own=False, lender=vision, units=4, started_at=BEGIN
    )
    given = load_snapshot(pool.group, now=BEGIN + dt.timedelta(days=1)).pools[0].balances
    assert given is not None
    assert given["nlp"] == -given["vision"] == pytest.approx(2000, abs=60)  # half of the 4 that it would come to


def test_parts_of_a_unit_second_are_kept() -> None:
    sums = Decaying[str](HOUR, 0)
    sums.count("a", borrowed=1)
    sums.pass_to(PART_BITS)
    assert sums.sums["a"] == Lately(1, 0)

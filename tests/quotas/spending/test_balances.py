"""Balances of recent loans: the sums in the database equal those of the pure function on the ledger."""

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
from tests.quotas.reports.test_ledger import BEGIN, SECONDS, random_ledger

HALF_LIVES = st.integers(*BOUNDS["balance_half_life"])
DAY = 24


# The pure function ----------------------------------------------------------------------------------------------------


def test_sums_halve_after_one_half_life() -> None:
    sums = Decaying[str](DAY * HOUR, 100)
    sums.count("a", borrowed=80 * HOUR, lent=8 * HOUR)
    sums.pass_to(100 + DAY)
    assert [round(float(hours), 4) for hours in sums.sums["a"].hours()] == [40, 4]


def test_balance_of_a_constant_loan_of_one_unit_approaches_a_thousand_thousandths() -> None:
    sums = Decaying[str](DAY * HOUR, 0)
    for hour in range(40 * DAY):
        sums.pass_to(hour)
        sums.count("a", borrowed=HOUR)
        sums.count("b", lent=HOUR)
        sums.count("c", lent=HOUR, borrowed=HOUR)
    assert sums.balances() == {"a": 1000, "b": -1000}


@given(HALF_LIVES, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10**6)), max_size=20), st.integers(60, 99))
def test_balance_equals_the_closed_form_of_use_spread_over_its_hours(
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
def test_sums_survive_storage_and_departments_are_independent(
    half_life: int, steps: list[tuple[int, str, int, int]]
) -> None:
    whole, alone = Decaying[int](half_life, 7), Decaying[int](half_life, 7)
    kept = Decaying[int](half_life, 7)
    hour = 7
    for hours, department, borrowed, lent in steps:
        hour += hours
        for sums in (whole, kept):
            sums.pass_to(hour)
            sums.count(ord(department), borrowed=borrowed, lent=lent)
        if department == "a":
            alone.pass_to(hour)
            alone.count(ord("a"), borrowed=borrowed, lent=lent)
        kept = Decaying.from_json(kept.to_json())
    alone.pass_to(hour)
    assert kept.sums == whole.sums
    assert alone.sums.get(ord("a"), Lately()) == whole.sums.get(ord("a"), Lately())


@given(HALF_LIVES, st.lists(st.integers(0, 9999), min_size=2, max_size=9), st.integers(0, 8), st.integers(1, 9999))
def test_lending_more_never_increases_the_balance(half_life: int, lent: list[int], at: int, more: int) -> None:
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
def test_period_is_split_at_full_hours(since: int, lasts: int) -> None:
    parts = [*Decaying.by_hours(since, since + lasts)]
    assert sum(seconds for _, seconds in parts) == lasts
    assert all(0 < seconds <= HOUR for _, seconds in parts)
    assert [hour for hour, _ in parts] == ([*range(since // HOUR, (since + lasts - 1) // HOUR + 1)] if lasts else [])


# Against the ledger ---------------------------------------------------------------------------------------------------


def computed_from_ledger(pool: Pool, now: dt.datetime) -> dict[int, Lately]:
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
    return {department: each for department, each in sums.sums.items() if any(each)}


def nonzero(sums: Decaying[int]) -> dict[int, Lately]:
    return {department: each for department, each in sums.sums.items() if any(each)}


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(4))
def test_sums_in_the_database_equal_those_of_the_ledger(seed: int, django_assert_max_num_queries: Any) -> None:
    """Metering and `remember` run irregularly and late; the sums are read at any time."""
    chance = random.Random(f"balances {seed}")
    _departments, pools = random_ledger(chance)
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
        assert {pk: nonzero(sums) for pk, sums in found.items()} == {
            pool.pk: computed_from_ledger(reloaded(pool), now) for pool in pools[:2]
        }
        assert {pk: sums.balances() for pk, sums in found.items()} == by_id(
            balances(rows, Department.objects.all(), now=now)
        )
    assert any(pool.balance_sums for pool in Pool.objects.all())


def by_id(balances: dict[int, dict[Any, int]]) -> dict[int, dict[int, int]]:
    ids = dict(Department.objects.values_list("slug", "pk"))
    return {pool: {ids[slug]: value for slug, value in each.items()} for pool, each in balances.items()}


def reloaded(pool: Pool) -> Pool:
    return Pool.objects.get(pk=pool.pk)


@pytest.mark.django_db
def test_no_query_is_made_when_no_pool_has_a_half_life(django_assert_num_queries: Any) -> None:
    pool = make.pool("a100", cards=8)
    with django_assert_num_queries(0):
        assert balances([pool], [], now=BEGIN) == {}
    assert load_snapshot(pool.group, now=BEGIN).pools[0].balances is None


@pytest.mark.django_db
@pytest.mark.parametrize("minutes", [1, 59, 61, 119])
def test_remembered_sums_are_continued_with_one_query(minutes: int, django_assert_num_queries: Any) -> None:
    """The meter has run in the last hour or the one before."""
    _departments, [first, second, *_] = random_ledger(random.Random(minutes))
    Pool.objects.filter(pk__in=[first.pk, second.pk]).update(balance_half_life=DAY * HOUR)
    metered = BEGIN.replace(minute=0) + dt.timedelta(days=3)
    sum_hours(now=metered)
    remember(now=metered)
    rows, now = [reloaded(first), reloaded(second)], metered + dt.timedelta(minutes=minutes)
    with django_assert_num_queries(1):
        found = lately(rows, now=now)
    assert [nonzero(found[row.pk]) for row in rows] == [computed_from_ledger(row, now) for row in rows]


@pytest.mark.django_db
def test_change_of_the_half_life_discards_remembered_sums() -> None:
    chance = random.Random(5)
    _departments, [pool, *_] = random_ledger(chance)
    end = BEGIN + dt.timedelta(days=4)
    for half_life in (HOUR, DAY * HOUR):
        Pool.objects.filter(pk=pool.pk).update(balance_half_life=half_life)
        for _ in range(2):
            sum_hours(now=end)
            remember(now=end)
        assert nonzero(lately([reloaded(pool)], now=end)[pool.pk]) == computed_from_ledger(reloaded(pool), end)
    assert remember(now=end) == 0  # nothing has become final since


@pytest.mark.django_db
def test_sums_remembered_by_a_clock_that_was_ahead_are_ignored() -> None:
    _departments, [pool, *_] = random_ledger(random.Random(6))
    Pool.objects.filter(pk=pool.pk).update(balance_half_life=DAY * HOUR)
    later = BEGIN + dt.timedelta(days=3)
    sum_hours(now=later)
    remember(now=later)
    assert reloaded(pool).balance_sums
    UsageHour.objects.filter(hour__gt=BEGIN).delete()
    now = BEGIN + dt.timedelta(hours=5)
    assert nonzero(lately([reloaded(pool)], now=now)[pool.pk]) == computed_from_ledger(reloaded(pool), now)


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
    assert given["nlp"] == -given["vision"] == pytest.approx(2000, abs=60)  # half of the 4 that it would approach


def test_parts_of_a_unit_second_are_kept() -> None:
    sums = Decaying[str](HOUR, 0)
    sums.count("a", borrowed=1)
    sums.pass_to(PART_BITS)
    assert sums.sums["a"] == Lately(1, 0)

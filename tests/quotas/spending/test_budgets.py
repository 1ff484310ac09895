"""The use of a budget equals the report of the same period to the second, whatever was remembered before."""

from __future__ import annotations

import datetime as dt
import random
from fractions import Fraction
from typing import Any

import pytest
from django.db.models import Q
from django.utils import timezone

from portal.access import Actor
from portal.models import Department
from quotas.models import Budget, BudgetAction, LedgerEntry, Pool
from quotas.planning.snapshot import load_snapshot
from quotas.reports.asked import Asked
from quotas.reports.queries import report
from quotas.spending.budgets import Spent, period_of, rates_of, remember, spent_of, used_up
from quotas.spending.metering import sum_hours
from tests import builders as make
from tests.quotas.reports.test_ledger import BEGIN, SECONDS, random_ledger

pytestmark = pytest.mark.django_db
MARCH, APRIL = dt.datetime(2026, 3, 1, tzinfo=dt.UTC), dt.datetime(2026, 4, 1, tzinfo=dt.UTC)


# Periods --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "now", "begins", "ends"),
    [
        ("UTC", "2026-03-31T23:59:59", "2026-03-01T00:00:00", "2026-04-01T00:00:00"),
        ("UTC", "2026-04-01T00:00:00", "2026-04-01T00:00:00", "2026-05-01T00:00:00"),
        ("Asia/Shanghai", "2026-03-31T16:00:00", "2026-03-31T16:00:00", "2026-04-30T16:00:00"),
        ("Asia/Shanghai", "2026-03-31T15:59:59", "2026-02-28T16:00:00", "2026-03-31T16:00:00"),
        ("Europe/Berlin", "2026-03-29T12:00:00", "2026-02-28T23:00:00", "2026-03-31T22:00:00"),  # clocks change in it
        ("UTC", "2028-02-29T12:00:00", "2028-02-01T00:00:00", "2028-03-01T00:00:00"),
        ("UTC", "2026-12-31T12:00:00", "2026-12-01T00:00:00", "2027-01-01T00:00:00"),
    ],
)
def test_a_month_is_one_of_the_installations_zone(zone: str, now: str, begins: str, ends: str, settings: Any) -> None:
    settings.TIME_ZONE = zone
    with timezone.override("America/New_York"):  # the reader's zone does not matter
        found = period_of(Budget(hours=1), dt.datetime.fromisoformat(f"{now}+00:00"))
    assert found == tuple(dt.datetime.fromisoformat(f"{each}+00:00") for each in (begins, ends))


def test_a_term_begins_with_its_first_day_and_ends_with_its_last() -> None:
    budget = Budget(hours=1, starts_on=dt.date(2026, 3, 10), ends_on=dt.date(2026, 3, 10))
    day = dt.datetime(2026, 3, 10, tzinfo=dt.UTC)
    assert period_of(budget, day) == (day, day + dt.timedelta(days=1))
    assert period_of(budget, day - dt.timedelta(seconds=1)) is None
    assert period_of(budget, day + dt.timedelta(days=1)) is None


# Against the report ---------------------------------------------------------------------------------------------------


def random_budgets(chance: random.Random, departments: list[Department], pools: list[Pool]) -> list[Budget]:
    people = {claim.user for entry in LedgerEntry.objects.select_related("claim__user") if (claim := entry.claim).user}
    terms = [(None, None), (dt.date(2026, 3, 28), dt.date(2026, 4, 2)), (dt.date(2026, 3, 27), dt.date(2026, 3, 30))]
    rows = []
    for department in departments:
        for person in [None, *sorted(people, key=lambda user: user.username if user else "")]:
            for pool in [None, chance.choice(pools)]:
                starts_on, ends_on = chance.choice(terms)
                fields = {"counts": chance.choice(["all", "borrowed"]), "action": chance.choice(BudgetAction.values)}
                fields |= {"hours": chance.randint(1, 900), "starts_on": starts_on, "ends_on": ends_on}
                rows.append(Budget.objects.create(department=department, person=person, pool=pool, **fields))
    return rows


def used_by_report(budget: Budget, now: dt.datetime) -> dict[int, int]:
    """Unit-seconds by pool, as the report of the period so far has them."""
    span = period_of(budget, now)
    assert span is not None
    query = Asked(
        span[0], span[1], ("pool",), department=budget.department, pool=budget.pool,
        person=budget.person.username if budget.person else "",
    )  # fmt: skip
    rows = report(Actor(None), query, now=now).rows
    pools = dict(Pool.objects.values_list("slug", "pk"))
    borrowed = budget.counts == "borrowed"
    used = {pools[row.key[0]]: row.borrowed if borrowed else row.allocated for row in rows}
    return {pool: seconds for pool, seconds in used.items() if seconds}


@pytest.mark.parametrize("seed", range(8))
def test_use_of_a_budget_equals_its_report_to_the_second(seed: int) -> None:
    """Metering and `remember` run irregularly and late; the use is read at any time."""
    chance = random.Random(f"budget {seed}")
    departments, pools = random_ledger(chance)
    random_budgets(chance, departments, pools)
    per_card = dict(Pool.objects.values_list("pk", "units_per_card"))
    now, end = BEGIN, BEGIN + dt.timedelta(seconds=SECONDS)
    while now < end:
        if chance.random() < 0.7:
            sum_hours(now=now)
        if chance.random() < 0.7:
            remember(now=now)
        now += dt.timedelta(seconds=chance.choice([60, 5_400, 40_000, 86_000]))
        budgets = list(Budget.objects.select_related("department", "person", "pool"))
        for spent in spent_of(budgets, now=now):
            expected = used_by_report(spent.budget, now)
            assert {pool: seconds for pool, seconds in spent.unit_seconds.items() if seconds} == expected
            assert spent.seconds == sum(Fraction(units, per_card[pool]) for pool, units in expected.items())
    assert Budget.objects.exclude(counted={}).exists()


def test_remembered_use_is_ignored_when_the_tree_or_the_period_changes() -> None:
    chance = random.Random(3)
    departments, _pools = random_ledger(chance)
    lab, vision = departments[:2]
    budget = Budget.objects.create(department=lab, hours=5)
    now = BEGIN + dt.timedelta(days=2)
    for hours in range(0, 49, 7):
        sum_hours(now=BEGIN + dt.timedelta(hours=hours))
    assert remember(now=now) == 1
    before = used_of(budget, now)
    Department.objects.filter(pk=vision.pk).update(parent=None)  # moves out with all that it used
    assert used_of(budget, now) == used_by_report(reloaded(budget), now) != before
    later = APRIL + dt.timedelta(days=1)
    assert used_of(budget, later) == used_by_report(reloaded(budget), later)


def reloaded(budget: Budget) -> Budget:
    return Budget.objects.select_related("department", "person", "pool").get(pk=budget.pk)


def used_of(budget: Budget, now: dt.datetime) -> dict[int, int]:
    [spent] = spent_of([reloaded(budget)], now=now)
    return {pool: seconds for pool, seconds in spent.unit_seconds.items() if seconds}


def test_part_of_a_card_counts_as_that_fraction() -> None:
    vision, t4 = make.department("vision"), make.pool("t4", unit="MiB", units_per_card=16_384, cards=2)
    start = dt.datetime(2026, 3, 3, tzinfo=dt.UTC)
    make.holding(vision, t4, own=4_096, started_at=start)
    [spent] = spent_of([Budget(department=vision, hours=5)], now=start + dt.timedelta(hours=8))
    assert (spent.hours, spent.whole_hours, spent.share) == (2.0, 2, Fraction(2, 5))


@pytest.mark.parametrize(
    ("hours", "near", "up"), [(101, False, False), (100, True, False), (81, True, False), (80, True, True)]
)
def test_budget_is_near_at_80_percent_and_used_up_at_100(hours: int, near: bool, up: bool) -> None:
    vision, start = make.department("vision"), dt.datetime(2026, 3, 3, tzinfo=dt.UTC)
    make.holding(vision, make.pool("a100"), own=8, started_at=start)
    [spent] = spent_of([Budget(department=vision, hours=hours)], now=start + dt.timedelta(hours=10))
    assert (spent.is_near, spent.is_used_up) == (near, up)


def test_budget_is_not_used_up_one_second_earlier() -> None:
    vision, start = make.department("vision"), dt.datetime(2026, 3, 3, tzinfo=dt.UTC)
    make.holding(vision, make.pool("a100"), own=1, started_at=start)
    budget, at = Budget(department=vision, hours=1), start + dt.timedelta(hours=1)
    assert [spent.is_used_up for spent in spent_of([budget], now=at - dt.timedelta(seconds=1))] == [False]
    assert [spent.is_used_up for spent in spent_of([budget], now=at)] == [True]


def test_the_rate_is_that_of_the_last_24_hours_of_the_period() -> None:
    vision, start = make.department("vision"), dt.datetime(2026, 3, 10, tzinfo=dt.UTC)
    budget = Budget.objects.create(department=vision, hours=1)
    make.holding(vision, make.pool("a100"), own=4, started_at=start)
    now = start + dt.timedelta(hours=6)
    assert rates_of(spent_of([budget], now=now), now=now) == {budget.pk: Fraction(1)}
    soon = APRIL + dt.timedelta(minutes=59)
    assert rates_of(spent_of([budget], now=soon), now=soon) == {}
    later = APRIL + dt.timedelta(hours=2)
    assert rates_of(spent_of([budget], now=later), now=later) == {budget.pk: Fraction(4)}


# In the snapshot ------------------------------------------------------------------------------------------------------


def test_used_up_budget_binds_the_department_and_its_teams_in_its_pool() -> None:
    lab = make.department("lab")
    vision, bio = make.department("vision", parent=lab), make.department("bio")
    a100, t4, start = make.pool("a100"), make.pool("t4"), dt.datetime(2026, 3, 3, tzinfo=dt.UTC)
    make.holding(vision, a100, own=1, started_at=start)
    ann = make.user("ann")
    Budget.objects.create(department=lab, pool=a100, hours=2, action="no_new_work")
    Budget.objects.create(department=lab, pool=t4, hours=1)  # nothing was used there
    Budget.objects.create(department=vision, person=ann, hours=1)  # she has used nothing
    Budget.objects.create(department=vision, hours=1, action="nothing")  # only warns
    snapshot = load_snapshot(a100.group, now=start + dt.timedelta(hours=3))
    found = {row.id: row.budgets for row in snapshot.departments}
    assert found[bio.slug] == ()
    [budget] = found["vision"]
    assert found["lab"] == (budget,)
    assert (budget.department, budget.limit, budget.used, budget.user, budget.pool) == ("lab", 2, 3, None, "a100")
    assert (budget.resets_at, budget.borrowing_only) == (int(APRIL.timestamp()), False)
    assert all(row.budgets == () for row in load_snapshot(t4.group, now=start + dt.timedelta(hours=3)).departments)


def test_new_period_frees_the_budget_at_its_first_second_without_a_job() -> None:
    vision, a100 = make.department("vision"), make.pool("a100")
    make.holding(vision, a100, own=8, started_at=MARCH)
    Budget.objects.create(department=vision, hours=1, action="no_new_work")
    last, first = (load_snapshot(a100.group, now=at) for at in (APRIL - dt.timedelta(seconds=1), APRIL))
    assert len(last.departments[0].budgets) == 1
    assert first.departments[0].budgets == ()
    # 8 GPUs still run.
    assert len(load_snapshot(a100.group, now=APRIL + dt.timedelta(hours=1)).departments[0].budgets) == 1


def test_budgets_cost_a_constant_number_of_queries(django_assert_max_num_queries: Any) -> None:
    chance = random.Random(1)
    departments, pools = random_ledger(chance)
    random_budgets(chance, departments, pools)
    now = BEGIN + dt.timedelta(days=3)
    sum_hours(now=now)
    budgets = list(Budget.objects.filter(~Q(hours=0)).select_related("department", "person", "pool"))
    rows = list(Department.objects.all())
    with django_assert_max_num_queries(7):
        found: list[Spent] = spent_of(budgets, now=now, departments=rows)
    assert len(found) > 10
    assert used_up([], now=now, departments=rows) == {}


@pytest.mark.parametrize("nth", [1, 2, 3, 5])
def test_remembering_can_be_killed_anywhere(nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random("killed")
    departments, pools = random_ledger(chance)
    random_budgets(chance, departments, pools)
    now, remaining = BEGIN + dt.timedelta(days=2), [nth]
    sum_hours(now=BEGIN)
    sum_hours(now=now)

    class Killed(BaseException):
        pass

    objects = Budget.objects.filter

    def killed(*args: Any, **more: Any) -> Any:
        remaining[0] -= 1
        if remaining[0] == 0:
            raise Killed
        return objects(*args, **more)

    monkeypatch.setattr(Budget.objects, "filter", killed)
    with pytest.raises(Killed):
        remember(now=now)
    monkeypatch.undo()
    later = now + dt.timedelta(hours=3)
    for spent in spent_of(Budget.objects.select_related("department", "person", "pool"), now=later):
        assert {pool: n for pool, n in spent.unit_seconds.items() if n} == used_by_report(spent.budget, later)

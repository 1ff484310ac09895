"""Metered hours are deleted after METERED_DAYS; reports and budgets over any period still equal the ledger to the second."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest

from portal.access import Actor
from quotas.models import Budget, LedgerEntry, WorkDay, WorkHour
from quotas.reports.queries import report
from quotas.spending import metering
from quotas.spending.budgets import spent_of
from quotas.spending.metering import DAY, forget_old_hours, hours_kept_from, sum_hours
from tests import builders as make
from tests.quotas.reports.test_ledger import (
    BEGIN,
    SECONDS,
    Killed,
    computed_from_entries,
    random_ledger,
    random_prices,
    random_query,
)
from tests.quotas.spending.test_budgets import random_budgets, used_by_report

pytestmark = pytest.mark.django_db
END = BEGIN + dt.timedelta(seconds=SECONDS)
LATER = dt.timedelta(days=6)
"""From the end of the ledger to a time when some of its days are older than METERED_DAYS, and some are not."""


def metered_until(end: dt.datetime) -> None:
    now = BEGIN
    while now < end:
        sum_hours(now=now)
        now += dt.timedelta(hours=13)
    sum_hours(now=end)


@pytest.mark.parametrize("seed", range(8))
def test_reports_stay_exact_when_hours_are_deleted_under_changing_settings(seed: int, settings: Any) -> None:
    chance = random.Random(f"old {seed}")
    departments, pools = random_ledger(chance)
    random_prices(chance, pools)
    metered_until(END + LATER)
    now = END + dt.timedelta(days=chance.uniform(0, 6))
    for days in chance.sample(range(2, 11), 3):  # shorter and longer, in any order
        settings.METERED_DAYS = days
        if chance.random() < 0.8:
            forget_old_hours(now=now)
    root = Actor(make.user("root", is_operator=True))
    entries = list(LedgerEntry.objects.select_related("claim", "pool", "department"))
    for _ in range(15):
        query = random_query(chance, departments, pools, END)
        inside = None if query.department is None else set(query.department.with_teams())
        expected = computed_from_entries(query, entries, inside)
        rows = {(row.key, row.unit): row for row in report(root, query, now=now).rows if row.allocated}
        assert {key: (row.own, row.borrowed) for key, row in rows.items()} == {
            key: (row["own"], row["borrowed"]) for key, row in expected.items()
        }, query


def test_term_that_began_before_the_kept_hours_is_counted_exactly(settings: Any) -> None:
    settings.METERED_DAYS, settings.TIME_ZONE = 2, "Asia/Kathmandu"  # its days begin at a quarter past 18 UTC
    departments, pools = random_ledger(random.Random(5))
    random_budgets(random.Random(5), departments, pools)
    Budget.objects.update(starts_on=dt.date(2026, 3, 28), ends_on=dt.date(2026, 5, 2))
    metered_until(END + LATER)
    assert forget_old_hours(now=END + LATER) > 0
    for spent in spent_of(Budget.objects.select_related("department", "person", "pool"), now=END + LATER):
        assert {pool: n for pool, n in spent.unit_seconds.items() if n} == used_by_report(spent.budget, END + LATER)


def test_only_old_hours_that_are_summed_as_days_are_deleted(settings: Any) -> None:
    settings.METERED_DAYS = 3
    random_ledger(random.Random(1))
    metered_until(END)
    days, hours = WorkDay.objects.count(), WorkHour.objects.count()
    forget_old_hours(now=END)
    limit = metering.day_of(END - dt.timedelta(days=3))
    assert WorkHour.objects.order_by("hour").values_list("hour", flat=True)[0] >= limit
    assert (WorkDay.objects.count(), WorkHour.objects.count() < hours) == (days, True)
    assert forget_old_hours(now=END) == 0
    late = END + dt.timedelta(days=400)  # the meter has stopped: hours not yet summed as days are kept
    forget_old_hours(now=late)
    oldest = WorkHour.objects.order_by("hour").values_list("hour", flat=True)[0]
    assert oldest.date() > WorkDay.objects.order_by("-day").values_list("day", flat=True)[0] - dt.timedelta(days=1)


def test_readers_use_no_hours_within_a_day_of_those_being_deleted(settings: Any) -> None:
    settings.METERED_DAYS = 3
    random_ledger(random.Random(1))
    metered_until(END)
    assert hours_kept_from(END) == metering.day_of(END - dt.timedelta(days=3)) + DAY
    forget_old_hours(now=END)
    settings.METERED_DAYS = 400
    assert hours_kept_from(END) == WorkHour.objects.order_by("hour").values_list("hour", flat=True)[0]


def test_run_deletes_a_bounded_number_of_days_and_can_be_killed_between_them(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.METERED_DAYS = 2
    random_ledger(random.Random(1))
    metered_until(END + LATER)

    def days() -> int:
        return len({hour.date() for hour in WorkHour.objects.values_list("hour", flat=True)})

    before = days()
    monkeypatch.setattr(metering, "DAYS_AT_ONCE", 2)
    forget_old_hours(now=END + LATER)
    assert days() == before - 2
    filtered, remaining = WorkHour.objects.filter, [3]

    def killed(*args: Any, **more: Any) -> Any:
        remaining[0] -= 1
        if not remaining[0]:
            raise Killed
        return filtered(*args, **more)

    monkeypatch.setattr(WorkHour.objects, "filter", killed)
    with pytest.raises(Killed):
        forget_old_hours(now=END + LATER)
    monkeypatch.setattr(WorkHour.objects, "filter", filtered)
    assert days() == before - 3
    monkeypatch.setattr(metering, "DAYS_AT_ONCE", 30)
    forget_old_hours(now=END + LATER)
    assert days() <= 3

"""Metered hours are deleted after METERED_DAYS; reports and budgets over any time stay the ledger to the second."""

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
from tests.quotas.reports.test_ledger import BEGIN, SECONDS, Killed, a_ledger, a_question, by_hand, prices
from tests.quotas.spending.test_budgets import by_report, some_budgets

pytestmark = pytest.mark.django_db
END = BEGIN + dt.timedelta(seconds=SECONDS)
LATER = dt.timedelta(days=6)
"""After the ledger ended: then some of its days are older than METERED_DAYS, and some not."""


def metered_until(end: dt.datetime) -> None:
    now = BEGIN
    while now < end:
        sum_hours(now=now)
        now += dt.timedelta(hours=13)
    sum_hours(now=end)


@pytest.mark.parametrize("seed", range(8))
def test_reports_stay_exact_when_hours_are_deleted_whatever_was_set_before(seed: int, settings: Any) -> None:
    chance = random.Random(f"old {seed}")
    departments, pools = a_ledger(chance)
    prices(chance, pools)
    metered_until(END + LATER)
    now = END + dt.timedelta(days=chance.uniform(0, 6))
    for days in chance.sample(range(2, 11), 3):  # shorter and longer, in any order
        settings.METERED_DAYS = days
        if chance.random() < 0.8:
            forget_old_hours(now=now)
    root = Actor(make.user("root", is_operator=True))
    entries = list(LedgerEntry.objects.select_related("claim", "pool", "department"))
    for _ in range(15):
        asked = a_question(chance, departments, pools, END)
        inside = None if asked.department is None else set(asked.department.with_teams())
        expected = by_hand(asked, entries, inside)
        rows = {(row.key, row.unit): row for row in report(root, asked, now=now).rows if row.allocated}
        assert {key: (row.own, row.borrowed) for key, row in rows.items()} == {
            key: (row["own"], row["borrowed"]) for key, row in expected.items()
        }, asked


def test_a_term_that_began_before_the_hours_that_are_kept_is_counted_right(settings: Any) -> None:
    settings.METERED_DAYS, settings.TIME_ZONE = 2, "Asia/Kathmandu"  # its days begin at a quarter past 18 UTC
    departments, pools = a_ledger(random.Random(5))
    some_budgets(random.Random(5), departments, pools)
    Budget.objects.update(starts_on=dt.date(2026, 3, 28), ends_on=dt.date(2026, 5, 2))
    metered_until(END + LATER)
    assert forget_old_hours(now=END + LATER) > 0
    for spent in spent_of(Budget.objects.select_related("department", "person", "pool"), now=END + LATER):
        assert {pool: n for pool, n in spent.unit_seconds.items() if n} == by_report(spent.budget, END + LATER)


def test_only_hours_that_are_old_and_summed_as_days_go_and_days_stay(settings: Any) -> None:
    settings.METERED_DAYS = 3
    a_ledger(random.Random(1))
    metered_until(END)
    days, hours = WorkDay.objects.count(), WorkHour.objects.count()
    forget_old_hours(now=END)
    limit = metering.day_of(END - dt.timedelta(days=3))
    assert WorkHour.objects.order_by("hour").values_list("hour", flat=True)[0] >= limit
    assert (WorkDay.objects.count(), WorkHour.objects.count() < hours) == (days, True)
    assert forget_old_hours(now=END) == 0
    late = END + dt.timedelta(days=400)  # the meter stood still: what it has not summed as days stays
    forget_old_hours(now=late)
    left = WorkHour.objects.order_by("hour").values_list("hour", flat=True)[0]
    assert left.date() > WorkDay.objects.order_by("-day").values_list("day", flat=True)[0] - dt.timedelta(days=1)


def test_whoever_reads_stays_a_day_away_from_what_is_being_deleted(settings: Any) -> None:
    settings.METERED_DAYS = 3
    a_ledger(random.Random(1))
    metered_until(END)
    assert hours_kept_from(END) == metering.day_of(END - dt.timedelta(days=3)) + DAY
    forget_old_hours(now=END)
    settings.METERED_DAYS = 400
    assert hours_kept_from(END) == WorkHour.objects.order_by("hour").values_list("hour", flat=True)[0]


def test_a_run_deletes_a_bounded_number_of_days_and_may_be_killed_between_them(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.METERED_DAYS = 2
    a_ledger(random.Random(1))
    metered_until(END + LATER)

    def days() -> int:
        return len({hour.date() for hour in WorkHour.objects.values_list("hour", flat=True)})

    before = days()
    monkeypatch.setattr(metering, "DAYS_AT_ONCE", 2)
    forget_old_hours(now=END + LATER)
    assert days() == before - 2
    filtered, left = WorkHour.objects.filter, [3]

    def killed(*args: Any, **more: Any) -> Any:
        left[0] -= 1
        if not left[0]:
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

"""How long a usage report on years of metered use takes, and how long a run of the meter takes, each minute and each day.

    python bench/usage_report.py [--rows 10000000 --departments 60 --people 500]

It runs in PostgreSQL. Each hour has a row for each person and each of two kinds. The baseline, in the same run, is the same sums
read from the rows of hours, as without the rows of whole days.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

TIMES = 3
FILL = {
    "quotas_workhour": (
        "(department_id, pool_id, person, kind, own, lender_id, unit_seconds, hour)"
        " SELECT {first} + p %% {departments}, {pool}, 'person-' || p, k, p %% 3 > 0,"
        " CASE WHEN p %% 3 > 0 THEN NULL ELSE {first} + (p + 1) %% {departments} END, 3600 * (1 + p %% 4), h"
        " FROM generate_series(%s::timestamptz, %s::timestamptz, interval '1 hour') h,"
        " generate_series(0, {people} - 1) p, (VALUES ('job'), ('notebook')) AS kinds(k)"
    ),
    "quotas_usagehour": (
        "(department_id, pool_id, hour, seconds, guaranteed, own, borrowed, lent)"
        " SELECT {first} + d, {pool}, h, 3600, 8 * 3600, 3600, 3600, 3600"
        " FROM generate_series(%s::timestamptz, %s::timestamptz, interval '1 hour') h,"
        " generate_series(0, {departments} - 1) d"
    ),
}  # fmt: skip
DAYS = {
    "quotas_workday": (
        "(department_id, pool_id, person, kind, own, lender_id, unit_seconds, day)"
        " SELECT department_id, pool_id, person, kind, own, lender_id, sum(unit_seconds), (hour AT TIME ZONE 'UTC')::date AS day"
        " FROM quotas_workhour WHERE hour < date_trunc('day', %s::timestamptz, 'UTC')"
        " GROUP BY department_id, pool_id, person, kind, own, lender_id, day"
    ),
    "quotas_usageday": (
        "(department_id, pool_id, day, guaranteed)"
        " SELECT department_id, pool_id, (hour AT TIME ZONE 'UTC')::date AS day, sum(guaranteed)"
        " FROM quotas_usagehour WHERE hour < date_trunc('day', %s::timestamptz, 'UTC')"
        " GROUP BY department_id, pool_id, day"
    ),
}  # fmt: skip


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="metered rows of work, one for each hour and key")
    parser.add_argument("--departments", type=int, default=60)
    parser.add_argument("--people", type=int, default=500)
    given = parser.parse_args(arguments)
    from bench import _database

    _database.start()
    end = fill(given.rows, given.departments, given.people)
    from django.utils import timezone

    from portal.access import SYSTEM
    from quotas.models import WorkHour
    from quotas.reports.asked import Asked
    from quotas.reports.queries import report

    print(f"{WorkHour.objects.count():,} rows of hours", flush=True)
    for days in (1, 30, 365):
        for by in (("department",), ("person",), ("department", "person", "pool", "kind")):
            asked = Asked(end - dt.timedelta(days=days, minutes=17), end, by)
            took = best(lambda asked=asked: report(SYSTEM, asked, now=end))  # type: ignore[misc]
            raw = best(lambda asked=asked: from_hours(asked))  # type: ignore[misc]
            print(
                f"{days:4} days by {'+'.join(by):35} {took * 1000:8.0f} ms; the same from hours {raw * 1000:8.0f} ms:"
                f" ratio {took / raw:.2f}",
                flush=True,
            )
    budgets(end, given.people)
    meter(timezone.now())


def fill(rows: int, departments: int, people: int, cards: int = 8) -> dt.datetime:
    """Creates metered hours until now, and their days, in a pool with so many cards on nodes of eight. Returns the last hour."""
    from django.db import connection
    from django.utils import timezone

    from quotas.spending.metering import hour_of
    from tests import builders as make

    made = [make.department(f"d{number}") for number in range(departments)]
    pool = make.pool("a100", cards=cards, nodes=cards // 8)
    names = {"first": made[0].pk, "departments": departments, "people": people, "pool": pool.pk}
    end = hour_of(timezone.now())
    begin = end - dt.timedelta(hours=max(1, rows // (people * 2)) - 1)
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # skips foreign-key checks of ten million rows
        for table, text in FILL.items():
            cursor.execute(f"INSERT INTO {table} {text.format(**names)}", [begin.isoformat(), end.isoformat()])
        for table, text in DAYS.items():
            cursor.execute(f"INSERT INTO {table} {text}", [end.isoformat()])
        cursor.execute("SET session_replication_role = origin")
        cursor.execute("VACUUM ANALYZE")
    return end


def from_hours(asked: Any) -> int:
    """Reads the sums of a report from the rows of hours. Returns their number."""
    from django.db.models import Sum

    from quotas.models import UsageHour, WorkHour

    within = {"hour__gte": asked.start, "hour__lt": asked.end}
    names = sorted({*asked.by, "department", "pool", "own"})
    work = WorkHour.objects.filter(**within)
    rows = list(work.values(*names).annotate(spent=Sum("unit_seconds")))
    if {"person", "kind"}.isdisjoint(asked.by):
        rows += list(work.filter(lender__isnull=False).values("lender", "pool").annotate(spent=Sum("unit_seconds")))
        rows += list(UsageHour.objects.filter(**within).values("department", "pool").annotate(spent=Sum("guaranteed")))
    return len(rows)


def meter(now: dt.datetime) -> None:
    from quotas.models import UsageDay, WorkDay
    from quotas.spending.metering import day_of, sum_hours

    print(f"a minute's run of the meter: {best(lambda: sum_hours(now=now)) * 1000:.0f} ms", flush=True)
    last = day_of(now) - dt.timedelta(days=1)
    UsageDay.objects.filter(day=last.date()).delete()
    WorkDay.objects.filter(day=last.date()).delete()
    began = time.perf_counter()
    sum_hours(now=now)
    print(f"the one in which a day is summed: {(time.perf_counter() - began) * 1000:.0f} ms", flush=True)


def budgets(now: dt.datetime, people: int) -> None:
    """Measures what budgets of all departments and people cost a planning pass, without and with remembered hours."""
    from portal.models import Department
    from quotas.models import Budget
    from quotas.spending.budgets import remember, spent_of
    from tests import builders as make

    departments = list(Department.objects.all())
    users = [make.user(f"p{number}") for number in range(people)]
    first = (now - dt.timedelta(days=360)).date()
    Budget.objects.bulk_create([Budget(department=each, hours=10_000) for each in departments])
    Budget.objects.bulk_create(
        Budget(department=departments[number % len(departments)], person=user, hours=500)
        for number, user in enumerate(users)
    )
    Budget.objects.bulk_create(
        Budget(department=each, hours=100_000, starts_on=first, ends_on=now.date()) for each in departments
    )

    def sums() -> float:
        rows = list(Budget.objects.select_related("person", "pool"))
        return best(lambda: spent_of(rows, now=now, departments=departments))

    fresh, began = sums(), time.perf_counter()
    count = remember(now=now)
    took = time.perf_counter() - began
    print(
        f"{Budget.objects.count()} budgets, {len(departments)} of them of a year: {fresh * 1000:.0f} ms a pass; {count} "
        f"remembered in {took * 1000:.0f} ms: {sums() * 1000:.0f} ms a pass",
        flush=True,
    )


def best(act: Callable[[], Any]) -> float:
    """Seconds of the fastest of TIMES runs."""
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        act()
        took.append(time.perf_counter() - began)
    return min(took)


if __name__ == "__main__":
    main(sys.argv[1:])

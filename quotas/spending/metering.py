"""Metering: the ledger summed by hour and by day, in the detail that reports need.

Rows are recomputed from the ledger, never incremented, so a run may be killed at any point or overlap with another one. The
ledger is read in whole seconds: an entry counts from the second in which it began to the second in which it ended.
Therefore the parts of a period add up to the whole, wherever it is cut.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet, Sum

from quotas.models import LedgerEntry, Quota, UsageDay, UsageHour, WorkDay, WorkHour

HOUR = dt.timedelta(hours=1)
DAY = dt.timedelta(days=1)
REMADE = HOUR
"""Hours that ended so recently are summed again: a slow transaction may still commit an entry that began or ended then."""
Key = tuple[int, int, str, str, bool, int | None]  # department, pool, person, kind, own, lender
KEY = ("department", "pool", "person", "kind", "own", "lender")
COLUMNS = (
    "department_id",
    "pool_id",
    "claim__person",
    "claim__kind",
    "own",
    "lender_id",
    "units",
    "started_at",
    "ended_at",
)


def whole_second(moment: dt.datetime) -> dt.datetime:
    return moment.replace(microsecond=0)


def hour_of(moment: dt.datetime) -> dt.datetime:
    return moment.astimezone(dt.UTC).replace(minute=0, second=0, microsecond=0)


def day_of(moment: dt.datetime) -> dt.datetime:
    return hour_of(moment).replace(hour=0)


def seconds_within(began: dt.datetime, ended: dt.datetime | None, start: dt.datetime, end: dt.datetime) -> int:
    """Seconds of an entry between two whole seconds, `start` and `end`. `ended` None: the entry is open."""
    last = end if ended is None else min(whole_second(ended), end)
    return max(0, int((last - max(whole_second(began), start)).total_seconds()))


def entries_within(start: dt.datetime, end: dt.datetime) -> QuerySet[LedgerEntry]:
    return LedgerEntry.objects.filter(started_at__lt=end).filter(Q(ended_at=None) | Q(ended_at__gt=start))


def last_metered(now: dt.datetime) -> dt.datetime | None:
    """The last metered hour, which may not be over. Hours in the future, from a clock that was ahead, do not count."""
    return UsageHour.objects.filter(hour__lte=now).order_by("-hour").values_list("hour", flat=True).first()


def sum_hours(*, now: dt.datetime) -> int:
    """Sum the hour before the last one written, every hour since, and the current one so far; then whole days. Returns the
    number of hours."""
    this, last = hour_of(now), last_metered(now)
    oldest = LedgerEntry.objects.order_by("started_at").values_list("started_at", flat=True).first()
    start = last - REMADE if last else hour_of(oldest or this)
    hours = list(_hours(start, this))
    for hour in hours:
        _sum_hour(hour, until=min(hour + HOUR, whole_second(now)), closed=last is not None and hour < last)
    _sum_days(this)
    return len(hours)


# Old hours ------------------------------------------------------------------------------------------------------------

DAYS_AT_ONCE = 30
"""The most days whose hours one cleanup run deletes, each in its own transaction."""


def hours_kept_from(now: dt.datetime) -> dt.datetime:
    """The hour before which WorkHours are deleted, or may be soon: METERED_DAYS after their day, whose sums are kept. Readers
    stay a day away from the hours that are being deleted, and from those that a shorter setting deleted before."""
    limit = day_of(now - dt.timedelta(days=settings.METERED_DAYS)) + DAY
    oldest = WorkHour.objects.order_by("hour").values_list("hour", flat=True).first()
    return limit if oldest is None else max(limit, oldest)


def rolled_until() -> dt.datetime | None:
    """The end of the last day that is summed as a day; None if there is none."""
    last = UsageDay.objects.order_by("-day").values_list("day", flat=True).first()
    return dt.datetime.combine(last, dt.time(), dt.UTC) + DAY if last else None


def forget_old_hours(*, now: dt.datetime) -> int:
    """Delete WorkHours that are older than METERED_DAYS and summed as days: the oldest days first, at most DAYS_AT_ONCE.
    Returns the number of rows."""
    rolled = rolled_until()
    if rolled is None:
        return 0
    limit = min(day_of(now - dt.timedelta(days=settings.METERED_DAYS)), rolled)
    deleted = 0
    for _ in range(DAYS_AT_ONCE):
        oldest = WorkHour.objects.filter(hour__lt=limit).order_by("hour").values_list("hour", flat=True).first()
        if oldest is None:
            break
        with transaction.atomic():
            deleted += WorkHour.objects.filter(hour__lt=min(day_of(oldest) + DAY, limit)).delete()[0]
    return deleted


# Summing --------------------------------------------------------------------------------------------------------------


def _hours(start: dt.datetime, end: dt.datetime) -> Iterator[dt.datetime]:
    while start <= end:
        yield start
        start += HOUR


def _sum_hour(hour: dt.datetime, *, until: dt.datetime, closed: bool) -> None:
    """`closed`: the whole hour was summed before. Then its guarantees stay: today's may differ from those of that hour."""
    seconds = int((until - hour).total_seconds())
    used: dict[Key, int] = defaultdict(int)
    for *key, units, began, ended in entries_within(hour, until).values_list(*COLUMNS).iterator():
        used[tuple(key)] += units * seconds_within(began, ended, hour, until)
    sums: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for (department, pool, _, _, own, lender), spent in used.items():
        sums[department, pool]["own" if own else "borrowed"] += spent
        if lender is not None:
            sums[lender, pool]["lent"] += spent
    if not closed:
        for quota in Quota.objects.all():
            sums[quota.department_id, quota.pool_id]["guaranteed"] = quota.guaranteed * seconds
    of_now = [] if closed else ["seconds", "guaranteed"]
    with transaction.atomic():
        UsageHour.objects.bulk_create(  # sorted, so that concurrent runs wait for each other and do not deadlock
            [
                UsageHour(department_id=d, pool_id=p, hour=hour, seconds=seconds, **columns)
                for (d, p), columns in sorted(sums.items())
            ],
            update_conflicts=True,
            unique_fields=["department", "pool", "hour"],
            update_fields=["own", "borrowed", "lent", *of_now],
        )
        WorkHour.objects.filter(hour=hour).delete()
        WorkHour.objects.bulk_create(
            [
                WorkHour(
                    hour=hour, department_id=department, pool_id=pool, person=person, kind=kind, own=own,
                    lender_id=lender, unit_seconds=spent,
                )
                for (department, pool, person, kind, own, lender), spent in used.items() if spent
            ], batch_size=5_000,
        )  # fmt: skip


def _sum_days(this: dt.datetime) -> None:
    """Sum the days whose hours are final and that are not summed yet."""
    last = UsageDay.objects.order_by("-day").values_list("day", flat=True).first()
    hours = UsageHour.objects.filter(hour__lt=day_of(this - REMADE))
    if last is not None:
        hours = hours.filter(hour__gte=dt.datetime.combine(last, dt.time(), dt.UTC) + DAY)
    for day in hours.datetimes("hour", "day", tzinfo=dt.UTC):
        _sum_day(day)


def _sum_day(day: dt.datetime) -> None:
    within = {"hour__gte": day, "hour__lt": day + DAY}
    promised = UsageHour.objects.filter(**within).values("department", "pool").annotate(sum=Sum("guaranteed"))
    used = WorkHour.objects.filter(**within).values(*KEY).annotate(sum=Sum("unit_seconds"))
    with transaction.atomic():
        UsageDay.objects.bulk_create(
            [
                UsageDay(department_id=row["department"], pool_id=row["pool"], day=day.date(), guaranteed=row["sum"])
                for row in promised.order_by("department", "pool")
            ],
            update_conflicts=True, unique_fields=["day", "department", "pool"], update_fields=["guaranteed"],
        )  # fmt: skip
        WorkDay.objects.filter(day=day.date()).delete()
        WorkDay.objects.bulk_create(
            [
                WorkDay(
                    day=day.date(), department_id=row["department"], pool_id=row["pool"], person=row["person"],
                    kind=row["kind"], own=row["own"], lender_id=row["lender"], unit_seconds=row["sum"],
                )
                for row in used
            ], batch_size=5_000,
        )  # fmt: skip

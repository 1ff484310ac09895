"""Unit-seconds (own, borrowed, lent) by hour, summed from the ledger. Rows are recomputed, never incremented."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator

from django.db import transaction
from django.db.models import Q

from quotas.models import LedgerEntry, Quota, UsageHour

HOUR = dt.timedelta(hours=1)
Sums = dict[tuple[int, int], dict[str, int]]  # (department, pool) → column → unit-seconds


def sum_hours(*, now: dt.datetime) -> int:
    """Sums every hour since the last one written, and the current one so far. Returns how many hours."""
    this = now.replace(minute=0, second=0, microsecond=0)
    last = UsageHour.objects.order_by("-hour").values_list("hour", flat=True).first()
    oldest = LedgerEntry.objects.order_by("started_at").values_list("started_at", flat=True).first()
    start = last or (oldest or this).replace(minute=0, second=0, microsecond=0)
    hours = list(_hours(max(start, this - 90 * 24 * HOUR), this))
    for hour in hours:
        _sum_hour(hour, until=min(hour + HOUR, now))
    return len(hours)


def _hours(start: dt.datetime, end: dt.datetime) -> Iterator[dt.datetime]:
    while start <= end:
        yield start
        start += HOUR


def _sum_hour(hour: dt.datetime, *, until: dt.datetime) -> None:
    seconds = round((until - hour).total_seconds())
    sums: Sums = defaultdict(lambda: defaultdict(int))
    entries = LedgerEntry.objects.filter(started_at__lt=until).filter(Q(ended_at=None) | Q(ended_at__gt=hour))
    for entry in entries.iterator():
        overlap = round((min(entry.ended_at or until, until) - max(entry.started_at, hour)).total_seconds())
        spent = entry.units * max(overlap, 0)
        sums[entry.department_id, entry.pool_id]["own" if entry.own else "borrowed"] += spent
        if entry.lender_id is not None:
            sums[entry.lender_id, entry.pool_id]["lent"] += spent
    for quota in Quota.objects.all():
        sums[quota.department_id, quota.pool_id]["guaranteed"] = quota.guaranteed * seconds
    with transaction.atomic():
        UsageHour.objects.bulk_create(
            [
                UsageHour(department_id=d, pool_id=p, hour=hour, seconds=seconds, **columns)
                for (d, p), columns in sums.items()
            ],
            update_conflicts=True,
            unique_fields=["department", "pool", "hour"],
            update_fields=["seconds", "guaranteed", "own", "borrowed", "lent"],
        )

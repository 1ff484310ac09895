"""Where use is read from: whole days and hours as the meter summed them, the rest from the ledger. All that sum it do so
here, so that they agree to the second."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from django.core.cache import cache
from django.db.models import Case, IntegerField, Max, Q, QuerySet, Sum, Value, When

from quotas.models import LedgerEntry, UsageDay, UsageHour, WorkDay, WorkHour
from quotas.spending.cover import DAY, HOUR, Cover, Span, cover
from quotas.spending.metering import day_of, hours_kept_from, last_metered, rolled_until, seconds_within


def final_until(now: dt.datetime) -> dt.datetime | None:
    """Hours before it are summed for good; None: none is."""
    metered_last = last_metered(now)
    return metered_last - HOUR if metered_last else None


def spans_of(start: dt.datetime, end: dt.datetime, cuts: Iterable[dt.datetime], *, now: dt.datetime) -> Cover:
    """How the time is read now. None of the spans lies across one of the `cuts`."""
    final = max(start, final_until(now) or start)
    return cover(start, end, cuts, rolled=rolled_until() or start, final=final, hours_from=hours_kept_from(now))


def metered(
    spans: Cover, days: type[WorkDay | UsageDay] = WorkDay, hours: type[WorkHour | UsageHour] = WorkHour
) -> Iterator[tuple[QuerySet[Any], str]]:
    """The rows of whole days and hours, each with the name of its column of time."""
    if spans.days:
        within = any_of(Q(day__gte=begin.date(), day__lt=end.date()) for begin, end in spans.days)
        yield days.objects.filter(within), "day"
    if spans.hours:
        yield hours.objects.filter(any_of(Q(hour__gte=begin, hour__lt=end) for begin, end in spans.hours)), "hour"


def any_of(conditions: Iterable[Q]) -> Q:
    either = Q()
    for condition in conditions:
        either |= condition
    return either


def period_column(cuts: Sequence[dt.datetime], at: str) -> Any:
    """Which of the periods between the cuts a day or hour (the column `at`) lies in, from 0: none lies across a cut."""
    cases = [
        When(**{f"{at}__gte": (cut.date() if cut == day_of(cut) else cut.date() + DAY) if at == "day" else cut},
             then=Value(number))
        for number, cut in reversed(list(enumerate(cuts, 1)))
    ]  # fmt: skip
    return Case(*cases, default=Value(0), output_field=IntegerField()) if cases else Value(0)


def of_ledger(
    rest: Collection[Span], condition: Q, columns: dict[str, str]
) -> Iterator[tuple[Span, dict[str, Any], int]]:
    """(span, values, unit-seconds) of the entries in each span: one query."""
    if not rest:
        return
    during = any_of(Q(started_at__lt=e) & (Q(ended_at=None) | Q(ended_at__gt=b)) for b, e in rest)
    rows = LedgerEntry.objects.filter(during).filter(condition)
    for *values, units, began, ended in rows.values_list(
        *columns.values(), "units", "started_at", "ended_at"
    ).iterator():
        for span in rest:
            if spent := units * seconds_within(began, ended, *span):
                yield span, dict(zip(columns, values, strict=True)), spent


# Since the installation began ------------------------------------------------------------------------------------------

REMEMBERED = 2 * 86_400  # s


class Use(NamedTuple):
    """Whose use of what: ids, a user name ("": unknown), and whether it was their own or whose."""

    department: int
    pool: int
    person: str
    own: bool
    lender: int | None


def used_ever() -> dict[Use, int]:
    """Unit-seconds of all that was ever metered. Days are summed for good, so their sum is remembered until there is another
    day; only hours since then are read each time."""
    rolled = rolled_until()
    used = dict(_used_in_days(rolled)) if rolled else {}
    hours = WorkHour.objects.filter(hour__gte=rolled) if rolled else WorkHour.objects.all()
    for use, spent in _summed(hours):
        used[use] = used.get(use, 0) + spent
    return used


def _used_in_days(rolled: dt.datetime) -> list[tuple[Use, int]]:
    days = WorkDay.objects.filter(day__lt=rolled.date())
    key = f"quotas.used_in_days.{rolled:%Y%m%d}.{days.aggregate(last=Max('pk'))['last']}"
    sums: list[tuple[Use, int]] | None = cache.get(key)
    if sums is None:
        sums = list(_summed(days))
        cache.set(key, sums, REMEMBERED)
    return sums


def _summed(rows: QuerySet[Any]) -> Iterator[tuple[Use, int]]:
    for *use, spent in rows.values_list(*Use._fields).annotate(spent=Sum("unit_seconds")).order_by():
        yield Use(*use), spent

"""Read use: whole days and hours from the meter's sums, the rest from the ledger. Every sum is made here, so that all agree
to the second."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from django.core.cache import cache
from django.db.models import BigIntegerField, Case, F, Func, IntegerField, Max, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce, Greatest, Least

from quotas.models import LedgerEntry, UsageDay, UsageHour, WorkDay, WorkHour
from quotas.spending.cover import DAY, HOUR, Cover, Span, cover
from quotas.spending.metering import day_of, hours_kept_from, last_metered, rolled_until

AT_ONCE = 100
"""The most spans that one query of the ledger adds up."""


def final_until(now: dt.datetime) -> dt.datetime | None:
    """The hour before which the sums of hours no longer change; None if there is none."""
    metered_last = last_metered(now)
    return metered_last - HOUR if metered_last else None


def spans_of(start: dt.datetime, end: dt.datetime, cuts: Iterable[dt.datetime], *, now: dt.datetime) -> Cover:
    """The spans in which a period is read now. None of them crosses one of the `cuts`."""
    final = max(start, final_until(now) or start)
    return cover(start, end, cuts, rolled=rolled_until() or start, final=final, hours_from=hours_kept_from(now))


def metered(
    spans: Cover, days: type[WorkDay | UsageDay] = WorkDay, hours: type[WorkHour | UsageHour] = WorkHour
) -> Iterator[tuple[QuerySet[Any], str]]:
    """(rows, name of their time column) of the whole days and of the whole hours."""
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
    """The number, from 0, of the period between cuts that contains a day or hour. `at`: the time column, "day" or "hour"."""
    cases = [
        When(**{f"{at}__gte": (cut.date() if cut == day_of(cut) else cut.date() + DAY) if at == "day" else cut},
             then=Value(number))
        for number, cut in reversed(list(enumerate(cuts, 1)))
    ]  # fmt: skip
    return Case(*cases, default=Value(0), output_field=IntegerField()) if cases else Value(0)


class Seconds(Func):
    """A timestamp in whole seconds since 1970, rounded down as by `whole_second`."""

    template = "extract(epoch FROM date_trunc('second', %(expressions)s))::bigint"
    output_field = BigIntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **more: Any) -> Any:
        """For the demo. SQLite stores timestamps as text; the first 19 characters go to the second."""
        template = "CAST(strftime('%%%%s', substr(%(expressions)s, 1, 19)) AS INTEGER)"
        return self.as_sql(compiler, connection, template=template, **more)


def of_ledger(
    rest: Collection[Span], condition: Q, columns: dict[str, str]
) -> Iterator[tuple[Span, dict[str, Any], int]]:
    """(span, values, unit-seconds): the entries' sums by span and by the values of `columns`, computed by the database in whole
    seconds as the meter counts them. One query for AT_ONCE spans, so nearly always one."""
    spans = [*rest]
    for at in range(0, len(spans), AT_ONCE):
        some = spans[at : at + AT_ONCE]
        during = any_of(Q(started_at__lt=e) & (Q(ended_at=None) | Q(ended_at__gt=b)) for b, e in some)
        rows = LedgerEntry.objects.filter(during).filter(condition).values_list(*columns.values())
        for row in rows.annotate(**{f"in_{n}": _spent_in(span) for n, span in enumerate(some)}).order_by():
            values = dict(zip(columns, row, strict=False))
            for span, spent in zip(some, row[len(columns) :], strict=True):
                if spent:
                    yield span, values, spent


def _spent_in(span: Span) -> Sum:
    """Unit-seconds of entries between two whole seconds. An open entry (ended_at NULL) counts to the end of the span."""
    begin, end = (int(moment.timestamp()) for moment in span)
    lasts = Least(Coalesce(Seconds("ended_at"), end), end) - Greatest(Seconds("started_at"), begin)
    return Sum(F("units") * Greatest(lasts, 0), output_field=BigIntegerField())


# Since the installation began ------------------------------------------------------------------------------------------

REMEMBERED = 2 * 86_400  # s


class Use(NamedTuple):
    """Who used what: ids, a user name ("": unknown), and whether it was own quota or which department lent it."""

    department: int
    pool: int
    person: str
    own: bool
    lender: int | None


def used_ever() -> dict[Use, int]:
    """Unit-seconds of all that was ever metered. Sums of days never change, so their total is cached until there is another day;
    only the hours since then are read each time."""
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

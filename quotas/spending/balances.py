"""What departments have borrowed and lent lately in pools with fairness over time (decay.py), read from the ledger.

Each pool's row keeps the sums up to the last final hour, so that a planning pass only has to query the last two or three
hours of the ledger. If they are missing, they are recomputed from all metered hours, with the same result.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable

from django.db.models import Q

from portal.models import Department
from quotas.engine.types import DepartmentId
from quotas.models import LedgerEntry, Pool, UsageHour
from quotas.spending.cover import HOUR, Span
from quotas.spending.decay import Decaying
from quotas.spending.metering import hour_of, whole_second
from quotas.spending.source import Seconds, any_of, final_until, of_ledger

FEW = 2
"""Hours that the kept sums may lack: they lack that many after each full hour, until the meter has run."""
COLUMNS = {"pool": "pool_id", "department": "department_id", "lender": "lender_id"}


def lately(pools: Iterable[Pool], *, now: dt.datetime) -> dict[int, Decaying[int]]:
    """Pool id → the sums of its departments at `now`. One query if the kept sums are recent, at most four; none if no pool has
    a half-life."""
    return _counted([pool for pool in pools if pool.balance_half_life is not None], whole_second(now), now=now)


def balances(
    pools: Iterable[Pool], departments: Iterable[Department], *, now: dt.datetime
) -> dict[int, dict[DepartmentId, int]]:
    """Pool id → balances as the engine takes them, for pools with a half-life. `departments` must be all departments."""
    by_pool = {pool: sums.balances() for pool, sums in lately(pools, now=now).items()}
    return {
        pool: {DepartmentId(row.slug): of[row.pk] for row in departments if row.pk in of}
        for pool, of in by_pool.items()
    }


def remember(*, now: dt.datetime) -> int:
    """Keep the sums of final hours with each pool; concurrent runs write the same sums. Returns the number of pools updated."""
    final, done = final_until(now), 0
    if final is None:
        return 0
    behind = [
        pool
        for pool in Pool.objects.exclude(balance_half_life=None)
        if _remembered(pool, _number(final)).hour < _number(final)
    ]
    for pk, sums in _counted(behind, final, now=now).items():
        unchanged = Pool.objects.filter(pk=pk, balance_half_life=sums.half_life)
        done += unchanged.update(balance_sums=sums.to_json())
    return done


def _remembered(pool: Pool, until: int) -> Decaying[int]:
    """The kept sums; empty if they were counted with another half-life or are later than `until`. The pool has a half-life."""
    sums, half_life = pool.balance_sums, pool.balance_half_life
    if sums and sums["half_life"] == half_life and sums["hour"] <= until:
        return Decaying.from_json(sums)
    return Decaying(half_life or 0, -1)


def _counted(pools: list[Pool], until: dt.datetime, *, now: dt.datetime) -> dict[int, Decaying[int]]:
    """Pool id → its sums at a whole second. The pools have half-lives."""
    if not pools:
        return {}
    this = _number(until)
    sums = {pool.pk: _remembered(pool, this - 1) for pool in pools}
    used: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    begin = min(each.hour for each in sums.values())
    if begin < this - FEW:  # metered hours are fewer rows than ledger entries
        final = min(final_until(now) or _begin(pools, until), until)
        begin = _number(final)
        sums = {pool.pk: _remembered(pool, begin) for pool in pools}
        not_remembered = any_of(Q(pool=pk, hour__gte=_moment(max(0, each.hour))) for pk, each in sums.items())
        rows = UsageHour.objects.filter(not_remembered, hour__lt=final).exclude(borrowed=0, lent=0)
        of_row = Seconds("hour") / 3600
        for hour, pk, *values in rows.values_list(of_row, "pool", "department", "borrowed", "lent"):
            used[hour, pk][values[0]] = values[1:]
    for (hour, _), values, spent in of_ledger(_hours(_moment(begin), until), Q(pool__in=sums, own=False), COLUMNS):
        pk, number = values["pool"], _number(hour)
        if number < sums[pk].hour:  # in its sums already; another pool lacks this hour
            continue
        in_hour = used[number, pk]
        in_hour[values["department"]][0] += spent
        if values["lender"] is not None:
            in_hour[values["lender"]][1] += spent
    for (number, pk), departments in sorted(used.items()):
        sums[pk].pass_to(number)
        for department, (borrowed, lent) in departments.items():
            sums[pk].count(department, borrowed=borrowed, lent=lent)
    for each in sums.values():
        each.pass_to(this)
    return sums


def _begin(pools: list[Pool], until: dt.datetime) -> dt.datetime:
    """The hour of the first loan in the pools: where to begin if no hour is final."""
    entries = LedgerEntry.objects.filter(pool__in=pools, own=False, started_at__lt=until)
    oldest = entries.order_by("started_at").values_list("started_at", flat=True).first()
    return hour_of(oldest or until)


def _hours(begin: dt.datetime, end: dt.datetime) -> list[Span]:
    hours: list[Span] = []
    while begin < end:
        hours.append((begin, min(begin + HOUR, end)))
        begin += HOUR
    return hours


def _number(hour: dt.datetime) -> int:
    return int(hour.timestamp()) // 3600


def _moment(number: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(number * 3600, dt.UTC)

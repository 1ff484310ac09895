"""Use and loans over days: the trend from metered hours, and the ledger."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from django.db.models import Max, Q, QuerySet, Sum
from django.utils import timezone

from portal.models import Department
from quotas.board.usage_now import Live
from quotas.models import ClaimState, LedgerEntry, Pool, UsageHour
from quotas.spending.metering import hour_of

HOUR = dt.timedelta(hours=1)
A_WHILE = dt.timedelta(minutes=1)
"""Units of a loan that were lent within so long of its start count as lent since its start."""


@dataclass(frozen=True, slots=True)
class Point:
    """Mean units over one period."""

    at: dt.datetime
    guaranteed: float
    own: float
    borrowed: float
    lent: float

    @property
    def idle(self) -> float:
        return max(0.0, self.guaranteed - self.own - self.lent)


class Hour(NamedTuple):
    """Unit-seconds of a pool in one hour; `seconds`: how much of the hour was metered."""

    pool: int
    at: dt.datetime
    seconds: float
    guaranteed: float
    own: float
    borrowed: float
    lent: float


def metered_hours(pools: Iterable[Pool], *, departments: Collection[int] | None = None, days: int = 7) -> list[Hour]:
    """The hours of the last `days` that were metered, in any order. One query, two for several departments.

    `departments`: ids to add up; None: all. What they lent to each other counts as own use.
    """
    begin = hour_of(timezone.now()) - dt.timedelta(days=days)
    rows = UsageHour.objects.filter(pool__in=[pool.pk for pool in pools], hour__gt=begin)
    if departments is not None:
        rows = rows.filter(department__in=departments)
    hours = [
        Hour(*row)
        for row in rows.values("pool_id", "hour").values_list(
            "pool_id", "hour", Max("seconds"), Sum("guaranteed"), Sum("own"), Sum("borrowed"), Sum("lent")
        )
    ]
    if departments is None or len(departments) < 2:
        return hours
    among = _among(departments, begin)
    return [_seen_from_outside(hour, among.get((hour.pool, hour.at), 0.0)) for hour in hours]


def _seen_from_outside(hour: Hour, among: float) -> Hour:
    inner = min(among, hour.borrowed, hour.lent)
    return hour._replace(own=hour.own + inner, borrowed=hour.borrowed - inner, lent=hour.lent - inner)


def trend(hours: Iterable[Hour], *, step: dt.timedelta = HOUR) -> dict[int, list[Point]]:
    """Pool id → one point for each `step` with metered hours, oldest first. Days begin at the reader's midnight."""
    shift = (timezone.localtime().utcoffset() or dt.timedelta()).total_seconds()
    width = step.total_seconds()
    boxes: dict[tuple[int, int], list[tuple[float, ...]]] = defaultdict(list)
    for pool, at, *sums in hours:
        boxes[pool, int((at.timestamp() + shift) // width)].append(tuple(sums))
    points: dict[int, list[Point]] = defaultdict(list)
    for (pool, box), metered in sorted(boxes.items()):
        at = dt.datetime.fromtimestamp(box * width - shift, tz=dt.UTC)
        seconds, *totals = (sum(column) for column in zip(*metered, strict=True))
        points[pool].append(Point(at, *(total / max(seconds, 1) for total in totals)))
    return points


def _among(departments: Collection[int], begin: dt.datetime) -> dict[tuple[int, dt.datetime], float]:
    """(pool id, hour) → unit-seconds that these departments lent each other."""
    unit_seconds: dict[tuple[int, dt.datetime], float] = defaultdict(float)
    now = timezone.now()
    entries = LedgerEntry.objects.filter(Q(ended_at=None) | Q(ended_at__gt=begin), own=False)
    for entry in entries.filter(department__in=departments, lender__in=departments):
        end = entry.ended_at or now
        at = max(entry.started_at, begin)
        while at < end:
            hour = hour_of(at)
            until = min(end, hour + HOUR)
            unit_seconds[entry.pool_id, hour] += entry.units * (until - at).total_seconds()
            at = until
    return unit_seconds


class Latest(NamedTuple):
    """The units of a loan that were lent last: for the first time, or again after they had been returned."""

    units: int
    since: dt.datetime


@dataclass(slots=True)
class Loan:
    """What one department borrows from another in one pool: now, and over the period."""

    pool: Pool
    borrower: Department
    lender: Department | None  # None: unassigned capacity
    units: int = 0  # now
    leaving: int = 0  # of these, being recalled
    since: dt.datetime | None = None  # lent without a gap since then, to whichever claims
    latest: Latest | None = None  # if they are lent since A_WHILE or more after `since`
    unit_seconds: float = 0

    @property
    def gpu_hours(self) -> float:
        return self.pool.gpu_hours(self.unit_seconds)


def loans(live: Live, departments: Collection[int], *, days: int = 7) -> list[Loan]:
    """Loans with exactly one side in `departments`. Two queries at most.

    Running loans first, the longest-running first; then those that ended in the last `days` days.
    """
    begin = timezone.now() - dt.timedelta(days=days)
    rows = LedgerEntry.objects.filter(Q(ended_at=None) | Q(ended_at__gt=begin), own=False)
    one_inside = Q(department__in=departments) | Q(lender__in=departments)
    both_inside = Q(department__in=departments, lender__in=departments)
    return _by_parties(live, rows.filter(one_inside).exclude(both_inside), begin)


def running_loans(live: Live) -> list[Loan]:
    """All loans that run now, the longest-running first. Two queries at most."""
    return _by_parties(live, LedgerEntry.objects.filter(ended_at=None, own=False), timezone.now())


Parties = tuple[int, int, int | None]  # pool, borrower, lender


def _by_parties(live: Live, entries: QuerySet[LedgerEntry], begin: dt.datetime) -> list[Loan]:
    """Sum entries since `begin` in the pools of `live` to loans."""
    now = timezone.now()
    rows = entries.filter(pool__in=live.pools).values_list(
        "pool_id", "department_id", "lender_id", "units", "started_at", "ended_at", "lent_since", "claim__state"
    )
    by_parties: dict[Parties, Loan] = {}
    changed: set[Parties] = set()
    for pool, borrower, lender, units, started_at, ended_at, lent_since, state in rows:
        loan = by_parties.setdefault(
            (pool, borrower, lender),
            Loan(live.pools[pool], live.departments[borrower], live.departments.get(lender or 0)),
        )
        loan.unit_seconds += units * max(0.0, ((ended_at or now) - max(started_at, begin)).total_seconds())
        if ended_at is None:
            loan.units += units
            loan.leaving += units if state == ClaimState.LEAVING else 0
            begun = lent_since or started_at
            loan.since = min(loan.since or begun, begun)
            if lent_since is not None:
                changed.add((pool, borrower, lender))
    _find_latest({key: by_parties[key] for key in changed})
    return sorted(by_parties.values(), key=lambda loan: (loan.since or now, -loan.unit_seconds))


def _find_latest(loans: Mapping[Parties, Loan]) -> None:
    """Set `latest` of these running loans, from all that was lent since they began. One query, or none."""
    begins = [loan.since for loan in loans.values() if loan.since]
    if not begins:
        return
    changes: dict[Parties, dict[dt.datetime, int]] = defaultdict(lambda: defaultdict(int))
    rows = LedgerEntry.objects.filter(
        Q(ended_at=None) | Q(ended_at__gt=min(begins)), own=False,
        pool__in={pool for pool, _, _ in loans}, department__in={borrower for _, borrower, _ in loans},
    ).values_list("pool_id", "department_id", "lender_id", "units", "started_at", "ended_at")  # fmt: skip
    for pool, borrower, lender, units, started_at, ended_at in rows:
        of_one = changes[pool, borrower, lender]
        of_one[started_at] += units
        if ended_at is not None:
            of_one[ended_at] -= units
    for key, loan in loans.items():
        before = loan.units
        for at, change in sorted(changes[key].items(), reverse=True):
            before -= change
            if before < loan.units:
                loan.latest = Latest(loan.units - before, at) if loan.since and at - loan.since >= A_WHILE else None
                break

"""Use and loans over days: the trend from metered hours, and the ledger."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from django.db.models import F, Max, Q, QuerySet, Sum
from django.utils import timezone

from portal.models import Department
from quotas.models import ClaimState, LedgerEntry, Pool, UsageHour
from quotas.spending.metering import hour_of

HOUR = dt.timedelta(hours=1)


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


def trend(
    pools: Iterable[Pool], *, departments: Collection[int] | None = None, days: int = 7, step: dt.timedelta = HOUR
) -> dict[int, list[Point]]:
    """Pool id → points of `step` each, oldest first, only where hours were metered. Two queries.

    `departments`: ids to add up; None: everybody. What they lent among themselves is their own use, seen from outside.
    """
    begun = timezone.now().replace(minute=0, second=0, microsecond=0)
    shift = (timezone.localtime().utcoffset() or dt.timedelta()).total_seconds()  # days begin at the reader's midnight
    hours = UsageHour.objects.filter(pool__in=[pool.pk for pool in pools], hour__gt=begun - dt.timedelta(days=days))
    if departments is not None:
        hours = hours.filter(department__in=departments)
    rows = hours.values("pool_id", "hour").annotate(
        seconds_s=Max("seconds"),
        guaranteed_s=Sum("guaranteed"),
        own_s=Sum("own"),
        borrowed_s=Sum("borrowed"),
        lent_s=Sum("lent"),
    )
    among = _among(departments, begun - dt.timedelta(days=days)) if departments and len(departments) > 1 else {}
    boxes: dict[tuple[int, int], list[tuple[float, ...]]] = defaultdict(list)
    for row in rows:
        box = int((row["hour"].timestamp() + shift) // step.total_seconds())
        inner = min(among.get((row["pool_id"], row["hour"]), 0.0), row["borrowed_s"], row["lent_s"])
        used = (row["own_s"] + inner, row["borrowed_s"] - inner, row["lent_s"] - inner)
        boxes[row["pool_id"], box].append((row["guaranteed_s"], *used, row["seconds_s"]))
    points: dict[int, list[Point]] = defaultdict(list)
    for (pool, box), metered in sorted(boxes.items()):
        at = dt.datetime.fromtimestamp(box * step.total_seconds() - shift, tz=dt.UTC)
        *sums, seconds = (sum(column) for column in zip(*metered, strict=True))
        points[pool].append(Point(at, *(total / max(seconds, 1) for total in sums)))
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


@dataclass(slots=True)
class Loan:
    """What one department borrows from another in one pool: now, and over the period."""

    pool: Pool
    borrower: Department
    lender: Department | None  # None: the unpromised rest
    units: int = 0  # now
    leaving: int = 0  # of these, being recalled
    since: dt.datetime | None = None  # without a gap, whichever claims used it
    unit_seconds: float = 0

    @property
    def card_hours(self) -> float:
        return self.pool.card_hours(self.unit_seconds)


def loans(departments: Collection[int], *, days: int = 7) -> list[Loan]:
    """Loans with exactly one side in `departments`. One query.

    Running loans first, the longest first; then those that ended in the last `days` days.
    """
    inside = set(departments)
    begin = timezone.now() - dt.timedelta(days=days)
    rows = LedgerEntry.objects.filter(Q(ended_at=None) | Q(ended_at__gt=begin), own=False)
    one_inside = Q(department__in=inside) | Q(lender__in=inside)
    both_inside = Q(department__in=inside, lender__in=inside)
    return _by_parties(rows.filter(one_inside).exclude(both_inside), begin)


def running_loans(pool: Pool) -> list[Loan]:
    """All that is lent in the pool now, the longest first. One query."""
    return _by_parties(LedgerEntry.objects.filter(pool=pool, ended_at=None, own=False), timezone.now())


def _by_parties(entries: QuerySet[LedgerEntry], begin: dt.datetime) -> list[Loan]:
    """Loans as sums of entries, since `begin`."""
    now = timezone.now()
    by_parties: dict[tuple[int, int, int | None], Loan] = {}
    for entry in entries.select_related("pool", "department", "lender").annotate(claim_state=F("claim__state")):
        key = (entry.pool_id, entry.department_id, entry.lender_id)
        loan = by_parties.setdefault(key, Loan(entry.pool, entry.department, entry.lender))
        ended = entry.ended_at or now
        loan.unit_seconds += entry.units * max(0.0, (ended - max(entry.started_at, begin)).total_seconds())
        if entry.ended_at is None:
            loan.units += entry.units
            loan.leaving += entry.units if entry.claim_state == ClaimState.LEAVING else 0
            begun = entry.lent_since or entry.started_at
            loan.since = min(loan.since or begun, begun)
    return sorted(by_parties.values(), key=lambda loan: (loan.since or now, -loan.unit_seconds))

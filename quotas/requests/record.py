"""How a department has used a pool lately: information for those who decide a request."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from statistics import quantiles

from django.db.models import Sum
from django.utils import timezone

from portal.models import Department
from quotas.models import Claim, Pool, UsageHour
from quotas.reports.measured import used_by

DAYS = 30
LATEST = 5000  # the most starts that are read


@dataclass(frozen=True, slots=True)
class Record:
    """Use of the department and all below it in the last DAYS days, in GPU-hours. Waits of attempts are in
    seconds, from queued to started; None: nothing started. `used`: the GPU-hours of the `measured` ones in which cards
    computed; None: nothing was measured."""

    guaranteed: float
    own: float
    borrowed: float
    lent: float
    starts: int
    median_wait: float | None
    long_wait: float | None  # the 95th percentile
    used: float | None
    measured: float

    @property
    def idle(self) -> float:
        return max(0.0, self.guaranteed - self.own - self.lent)

    @property
    def share(self) -> float | None:
        """The share of the measured time in which cards computed."""
        return self.used / self.measured if self.used is not None and self.measured else None


def record_of(department: Department, pool: Pool) -> Record:
    """The department's record in the pool. Four queries."""
    now = timezone.now()
    since = now - dt.timedelta(days=DAYS)
    inside = department.with_teams()
    hours = UsageHour.objects.filter(department__in=inside, pool=pool, hour__gt=since)
    sums = hours.aggregate(*(Sum(name, default=0) for name in ("guaranteed", "own", "borrowed", "lent")))
    guaranteed, own, borrowed, lent = (pool.gpu_hours(seconds) for seconds in sums.values())
    started = Claim.objects.filter(department__in=inside, pool=pool, started_at__gt=since, pods__gt=0)
    times = started.order_by("-started_at").values_list("queued_at", "started_at")[:LATEST]
    waits = [max(0.0, (start - queued).total_seconds()) for queued, start in times if start is not None]
    parts = quantiles(waits, n=20, method="inclusive") if len(waits) > 1 else waits * 19
    median, long = (parts[9], parts[18]) if parts else (None, None)
    activity = used_by(inside, pool, since, now)
    used, measured = (pool.gpu_hours(seconds) for seconds in activity) if activity else (None, 0.0)
    return Record(guaranteed, own, borrowed, lent, len(waits), median, long, used, measured)

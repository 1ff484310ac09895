"""The use of pools over the last days, as charts and as tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from django.utils import timezone

from quotas.board.chart import Chart, draw
from quotas.board.history import HOUR, Point, metered_hours, trend
from quotas.models import Pool

PERIODS = {1: HOUR, 7: 2 * HOUR, 30: 8 * HOUR}  # days → width of one point: at most ninety points in a chart


@dataclass(frozen=True, slots=True)
class Trend:
    pool: Pool
    chart: Chart
    points: Sequence[Point]  # one a day, the latest first, for the table


def trends(pools: Sequence[Pool], *, days: int, departments: Collection[int] | None = None) -> Iterator[Trend]:
    """One trend for each pool with metered hours in the last `days`, which is a key of PERIODS.

    `departments`: ids whose use is added up; None: all, on the scale of the whole pool.
    """
    hours = metered_hours(pools, departments=departments, days=days)
    fine, daily = trend(hours, step=PERIODS[days]), trend(hours, step=dt.timedelta(days=1))
    end = timezone.localtime()
    for pool in pools:
        if pool.pk in fine:
            capacity = pool.nominal if departments is None else None
            chart = draw(pool, fine[pool.pk], end=end, days=days, step=PERIODS[days], capacity=capacity)
            yield Trend(pool, chart, daily[pool.pk][::-1])

"""One measured figure over time as SVG paths drawn on the server, in the manner of quotas/board/chart.py: a rectangle for
each point, so that times without measurement stay visible, as a grey ground."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 1000, 100  # of the drawing, which is stretched to its place
Value = tuple[dt.datetime, float | None]


@dataclass(frozen=True, slots=True)
class Tick:
    at: dt.datetime
    x: str  # percent
    hour: bool  # an hour of a day, not a day


@dataclass(frozen=True, slots=True)
class Chart:
    """`area` is what was measured, `gaps` the times between `begin` and `end` in which nothing was. `last` is the newest
    value, None if the newest time has none."""

    area: str
    gaps: str
    limit: str  # path of the line at what the rank may use; "": there is none
    ticks: tuple[Tick, ...]
    top: float
    last: float | None
    is_empty: bool
    width: int = WIDTH
    height: int = HEIGHT


def draw(
    values: Sequence[Value],
    *,
    begin: dt.datetime,
    end: dt.datetime,
    step: dt.timedelta,
    limit: float | None = None,
    ran: Sequence[tuple[dt.datetime, dt.datetime]] | None = None,
) -> Chart:
    """`begin` is before `end`. `ran`: from when to when it ran (None: all the time), in order; at other times there was nothing
    to measure, which is no gap. The scale reaches to the limit or the highest value, whichever is more."""
    known = [(at, value) for at, value in values if value is not None and begin - step < at < end]
    top = max([limit or 0, *(value for _at, value in known)]) or 1.0

    def x(at: dt.datetime) -> float:
        return min(max((at - begin) / (end - begin), 0), 1) * WIDTH

    def y(value: float) -> float:
        return HEIGHT - value / top * HEIGHT

    area = "".join(f"M{x(at):.1f} {HEIGHT}V{y(value):.1f}H{x(at + step):.1f}V{HEIGHT}Z" for at, value in known)
    gaps = []
    for first, last in ((begin, end),) if ran is None else ran:
        reached, stop = max(first, begin), min(last, end)
        for at in [*(at for at, _value in known if reached - step < at < stop), stop]:
            if at - reached >= step:
                gaps.append(f"M{x(reached):.1f} 0H{x(at):.1f}V{HEIGHT}H{x(reached):.1f}Z")
            reached = max(reached, at + step)
    line = f"M0 {y(limit):.1f}H{WIDTH}" if limit and limit < top else ""
    recent = [value for at, value in known if at + 2 * step >= end]
    return Chart(area, "".join(gaps), line, _ticks(begin, end), top, recent[-1] if recent else None, not known)


def _ticks(begin: dt.datetime, end: dt.datetime) -> tuple[Tick, ...]:
    """At most three full hours or midnights of the zone of `end`, none at the edges."""
    hours = (end - begin) / dt.timedelta(hours=1)
    step = next((each for each in (1, 2, 4, 6, 12) if hours / each <= 3), 24 * math.ceil(hours / 72))
    at = begin.astimezone(end.tzinfo).replace(hour=0, minute=0, second=0, microsecond=0)
    ticks = []
    while at < end:
        share = (at - begin) / (end - begin)
        if 0.08 < share < 0.92:
            ticks.append(Tick(at, f"{share:.2%}", step < 24))
        at += dt.timedelta(hours=step)
    return tuple(ticks)

"""One measured figure over time as SVG paths drawn on the server, like quotas/board/chart.py: a rectangle for each point,
so that times without measurement stay visible, as a grey background."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from portal.text.timeline import Timeline

Value = tuple[dt.datetime, float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """`area`: path of the measured values; `gaps`: path of the times between `begin` and `end` in which nothing was measured;
    `last`: the newest value, None if there is none of the last two steps."""

    area: str
    gaps: str
    limit: str  # path of the line at the rank's limit; "": there is none
    line: Timeline
    last: float | None
    is_empty: bool


def draw(
    values: Sequence[Value],
    *,
    begin: dt.datetime,
    end: dt.datetime,
    step: dt.timedelta,
    limit: float | None = None,
    ran: Sequence[tuple[dt.datetime, dt.datetime]] | None = None,
) -> Chart:
    """`begin` must be before `end`. `ran`: the (start, end) of the times in which it ran, in order (None: all the time); other
    times are no gaps, because there was nothing to measure. The scale reaches to the limit or the highest value, whichever is
    more."""
    known = [(at, value) for at, value in values if value is not None and begin - step < at < end]
    top = max([limit or 0, *(value for _at, value in known)]) or 1.0

    timeline = Timeline(begin, end, top, most=3, margin=0.08)
    area = "".join(timeline.box(at, at + step, 0, value) for at, value in known)
    gaps = []
    for first, last in ((begin, end),) if ran is None else ran:
        reached, stop = max(first, begin), min(last, end)
        for at in [*(at for at, _value in known if reached - step < at < stop), stop]:
            if at - reached >= step:
                gaps.append(timeline.box(reached, at, 0, top))
            reached = max(reached, at + step)
    line = timeline.line(begin, end, limit) if limit and limit < top else ""
    recent = [value for at, value in known if at + 2 * step >= end]
    return Chart(
        area,
        "".join(gaps),
        line,
        timeline,
        recent[-1] if recent else None,
        not known,
    )

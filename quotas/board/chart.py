"""A usage trend as SVG paths drawn on the server: one rectangle for each point, so that gaps in the metering stay
visible."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from portal.text.timeline import Timeline
from portal.text.words import amount
from quotas.board.history import Point
from quotas.models import Pool

COLUMN = '<rect class="chart-column" x="{}" y="0" width="{}" height="{}"><title>{}</title></rect>'
ALWAYS = ("own", "guaranteed")  # in the text of each point even when zero


@dataclass(frozen=True, slots=True)
class Band:
    kind: str  # own | lent | borrowed: its CSS class
    path: str


@dataclass(frozen=True, slots=True)
class Chart:
    bands: tuple[Band, ...]
    promise: str  # path of the guaranteed line
    columns: SafeString  # a rectangle for each point with its figures as tooltip; built here: a page has hundreds
    line: Timeline  # its top is the number of units at the upper edge


def draw(
    pool: Pool, points: Sequence[Point], *, end: dt.datetime, days: int, step: dt.timedelta, capacity: int | None = None
) -> Chart:
    """Draw own use from the bottom, lent above it, borrowed above the guarantee; empty space below the line is idle.

    With `capacity` the chart is of a whole pool, on the pool's scale: every lent unit is one that another department
    borrowed, so it is drawn once, as borrowed above own, and empty space is free. `points` must not be empty. The drawing
    covers all of the `days`, also those without points; its times are in the time zone of `end`.
    """
    whole_pool = capacity is not None
    base: Callable[[Point], float] = (lambda p: p.own) if whole_pool else (lambda p: max(p.guaranteed, p.own + p.lent))
    top = max(1, capacity or 0, math.ceil(max(max(p.guaranteed, base(p) + p.borrowed) for p in points)))
    line = Timeline(end - dt.timedelta(days=days), end, top)

    def band(kind: str, low: Callable[[Point], float], height: Callable[[Point], float]) -> Band:
        boxes = (line.box(p.at, p.at + step, low(p), low(p) + height(p)) for p in points if height(p) > 0)
        return Band(kind, "".join(boxes))

    bands = [band("own", lambda p: 0, lambda p: p.own), band("borrowed", base, lambda p: p.borrowed)]
    if not whole_pool:
        bands.insert(1, band("lent", lambda p: p.own, lambda p: p.lent))
    promise = "".join(line.line(p.at, p.at + step, p.guaranteed) for p in points)
    words = {
        "own": _("own"),
        **({} if whole_pool else {"lent": _("lent")}),
        "borrowed": _("borrowed"),
        "guaranteed": _("guaranteed"),
    }
    colon = _(": ")  # translated once: there are hundreds of points

    def text(point: Point) -> str:
        figures = ((name, word, getattr(point, name)) for name, word in words.items())
        parts = (f"{word} {amount(units, pool)}" for name, word, units in figures if units or name in ALWAYS)
        return point.at.astimezone(end.tzinfo).strftime("%m-%d %H:%M") + colon + " · ".join(parts)

    def column(point: Point) -> str:
        left, right = line.x(point.at), line.x(point.at + step)
        return COLUMN.format(f"{left:.1f}", f"{right - left:.1f}", line.height, escape(text(point)))

    columns = mark_safe("".join(map(column, points)))  # noqa: S308 - numbers, and text that is escaped
    return Chart(tuple(bands), promise, columns, line)

"""A usage trend as SVG paths drawn on the server: one rectangle for each point, so that gaps in the metering stay
visible."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quotas.board.history import Point

WIDTH, HEIGHT = 1000, 100  # of the drawing, which is stretched to its place
DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Band:
    kind: str  # own | lent | borrowed: the class it is drawn with
    path: str


@dataclass(frozen=True, slots=True)
class Tick:
    at: dt.datetime
    x: str  # percent
    hour: bool  # an hour of a day, not a day


@dataclass(frozen=True, slots=True)
class Chart:
    bands: tuple[Band, ...]
    promise: str  # path of the guaranteed line
    ticks: tuple[Tick, ...]
    top: int  # units at the upper edge
    width: int = WIDTH
    height: int = HEIGHT


def draw(
    points: Sequence[Point], *, end: dt.datetime, days: int, step: dt.timedelta, capacity: int | None = None
) -> Chart:
    """Own from the ground, lent above it, borrowed above the guarantee; what stays empty below the line is idle.

    With `capacity` it is a whole pool's, on the pool's scale: what is lent is what others borrowed, so that stands above own
    once, and what stays empty is free. `points` is not empty; the drawing begins with them if they are younger than `days`,
    and shows a day at least.
    """
    begin = max(end - dt.timedelta(days=days), min(points[0].at, end - DAY))
    whole_pool = capacity is not None
    base: Callable[[Point], float] = (lambda p: p.own) if whole_pool else (lambda p: max(p.guaranteed, p.own + p.lent))
    top = max(1, capacity or 0, math.ceil(max(max(p.guaranteed, base(p) + p.borrowed) for p in points)))

    def x(at: dt.datetime) -> float:
        return min(max((at - begin) / (end - begin), 0), 1) * WIDTH

    def y(units: float) -> float:
        return HEIGHT - units / top * HEIGHT

    def band(kind: str, low: Callable[[Point], float], height: Callable[[Point], float]) -> Band:
        boxes = (
            f"M{x(p.at):.1f} {y(low(p)):.1f}V{y(low(p) + height(p)):.1f}H{x(p.at + step):.1f}V{y(low(p)):.1f}Z"
            for p in points
            if height(p) > 0
        )
        return Band(kind, "".join(boxes))

    bands = [band("own", lambda p: 0, lambda p: p.own), band("borrowed", base, lambda p: p.borrowed)]
    if not whole_pool:
        bands.insert(1, band("lent", lambda p: p.own, lambda p: p.lent))
    promise = "".join(f"M{x(p.at):.1f} {y(p.guaranteed):.1f}H{x(p.at + step):.1f}" for p in points)
    return Chart(tuple(bands), promise, _ticks(begin, end), top)


def _ticks(begin: dt.datetime, end: dt.datetime) -> tuple[Tick, ...]:
    """Midnights of the reader's zone, or every sixth hour of the last two days; at most seven, none at the edges."""
    days = (end - begin) / DAY
    step = dt.timedelta(hours=6) if days <= 2 else DAY * math.ceil(days / 7)
    at = begin.astimezone(end.tzinfo).replace(hour=0, minute=0, second=0, microsecond=0)
    ticks = []
    while at < end:
        share = (at - begin) / (end - begin)
        if 0.03 < share < 0.97:
            ticks.append(Tick(at, f"{share:.2%}", at.hour != 0))
        at += step
    return tuple(ticks)

"""A trend as SVG paths, drawn on the server: one rectangle for each point, so that gaps in the metering stay gaps."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quotas.history import Point

WIDTH, HEIGHT = 720, 160


@dataclass(frozen=True, slots=True)
class Band:
    kind: str  # own | lent | borrowed: the class it is drawn with
    path: str


@dataclass(frozen=True, slots=True)
class Tick:
    at: dt.datetime
    x: float


@dataclass(frozen=True, slots=True)
class Chart:
    bands: tuple[Band, ...]
    promise: str  # path of the guaranteed line
    ticks: tuple[Tick, ...]
    top: float  # units at the upper edge
    width: int = WIDTH
    height: int = HEIGHT


def draw(points: Sequence[Point], *, begin: dt.datetime, end: dt.datetime, step: dt.timedelta) -> Chart:
    """Own from the ground, lent above it, borrowed above the guarantee; what stays white below the line is idle."""
    top = max((max(p.guaranteed, p.own + p.lent) + p.borrowed for p in points), default=0) or 1
    span = (end - begin).total_seconds()

    def x(at: dt.datetime) -> float:
        return min(max((at - begin).total_seconds() / span, 0), 1) * WIDTH

    def y(units: float) -> float:
        return HEIGHT - units / top * HEIGHT

    def band(kind: str, low: Callable[[Point], float], high: Callable[[Point], float]) -> Band:
        boxes = (
            f"M{x(p.at):.1f} {y(low(p)):.1f}V{y(high(p)):.1f}H{x(p.at + step):.1f}V{y(low(p)):.1f}Z"
            for p in points
            if high(p) > low(p)
        )
        return Band(kind, "".join(boxes))

    bands = (
        band("own", lambda p: 0, lambda p: p.own),
        band("lent", lambda p: p.own, lambda p: p.own + p.lent),
        band(
            "borrowed",
            lambda p: max(p.guaranteed, p.own + p.lent),
            lambda p: max(p.guaranteed, p.own + p.lent) + p.borrowed,
        ),
    )
    promise = "".join(f"M{x(p.at):.1f} {y(p.guaranteed):.1f}H{x(p.at + step):.1f}" for p in points)
    return Chart(bands, promise, _ticks(begin, end, x), top)


def _ticks(begin: dt.datetime, end: dt.datetime, x: Callable[[dt.datetime], float]) -> tuple[Tick, ...]:
    """Midnights of the reader's zone, at most eight."""
    days = max(1, (end - begin).days)
    every = -(-days // 8)
    midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0) + dt.timedelta(days=1)
    ticks = []
    while midnight < end:
        ticks.append(Tick(midnight, x(midnight)))
        midnight += dt.timedelta(days=every)
    return tuple(ticks)

"""The frame of a chart over time that the server draws: maps moments and amounts to coordinates, with ticks below."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass

WIDTH, HEIGHT = 1000, 100  # of the chart, which a page stretches to the available space
HOUR = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Tick:
    at: dt.datetime
    x: str  # percent
    hour: bool  # whether it marks an hour, not midnight


@dataclass(frozen=True, slots=True)
class Timeline:
    """A chart from `begin` to `end`, which is later, and from 0 to `top`. Times are shown in the zone of `end`."""

    begin: dt.datetime
    end: dt.datetime
    top: float
    most: int = 7  # ticks
    margin: float = 0.03  # share of the width at both edges that has no ticks
    width: int = WIDTH
    height: int = HEIGHT

    def x(self, at: dt.datetime) -> float:
        """The x coordinate, 0 to the width; moments outside are at the edge."""
        return min(max((at - self.begin) / (self.end - self.begin), 0), 1) * WIDTH

    def y(self, amount: float) -> float:
        """The y coordinate: the height for 0, and 0 for `top`."""
        return HEIGHT - amount / self.top * HEIGHT

    def box(self, begin: dt.datetime, end: dt.datetime, low: float, high: float) -> str:
        """The path of a rectangle between two moments and two amounts."""
        return f"M{self.x(begin):.1f} {self.y(low):.1f}V{self.y(high):.1f}H{self.x(end):.1f}V{self.y(low):.1f}Z"

    def line(self, begin: dt.datetime, end: dt.datetime, amount: float) -> str:
        """The path of a horizontal line between two moments."""
        return f"M{self.x(begin):.1f} {self.y(amount):.1f}H{self.x(end):.1f}"

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """Ticks at full hours or at midnight."""
        hours = (self.end - self.begin) / HOUR
        step = next(
            (each for each in (1, 2, 4, 6, 12) if hours / each <= self.most), 24 * math.ceil(hours / 24 / self.most)
        )
        at = self.begin.astimezone(self.end.tzinfo).replace(hour=0, minute=0, second=0, microsecond=0)
        ticks = []
        while at < self.end:
            share = (at - self.begin) / (self.end - self.begin)
            if self.margin < share < 1 - self.margin:
                ticks.append(Tick(at, f"{share:.2%}", at.hour != 0))
            at += step * HOUR
        return tuple(ticks)

"""Outcomes of estimates: each first estimate with the real start, and how accurate those of a pool were. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from workloads.estimates.calibrate import ENOUGH

MINUTE = dt.timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A first estimate, when it was `made`, and when its attempt `started` (now, if it still waits after its range)."""

    made: dt.datetime
    low: dt.datetime
    median: dt.datetime
    high: dt.datetime | None
    started: dt.datetime

    @property
    def is_earlier(self) -> bool:
        """Whether it started before the range; a minute of tolerance still counts as inside."""
        return self.started < self.low - MINUTE

    @property
    def is_later(self) -> bool:
        return self.high is not None and self.started > self.high + MINUTE

    @property
    def is_held(self) -> bool:
        return not (self.is_earlier or self.is_later)

    @property
    def expected(self) -> float:
        """Seconds from when the estimate was made to its median; `waited` are those to the start."""
        return (self.median - self.made).total_seconds()

    @property
    def waited(self) -> float:
        return (self.started - self.made).total_seconds()

    @property
    def error(self) -> float:
        """Seconds between the median and the start."""
        return abs(self.waited - self.expected)


@dataclass(frozen=True, slots=True)
class Calibration:
    """How accurate `count` first estimates, made in `hours` different hours, were: how many attempts started in their 80 % range,
    earlier, or later; and the median error, as a part of the wait and in seconds. Attempts that still wait after their range are
    counted as if they started now."""

    count: int
    hours: int
    held: int
    earlier: int
    later: int
    error_part: float
    error_seconds: float

    @property
    def is_enough(self) -> bool:
        """Whether a percentage has a meaning: estimates of one hour err together."""
        return self.hours >= ENOUGH

    @property
    def held_percent(self) -> int:
        return round(100 * self.held / self.count) if self.count else 0


def calibration_of(outcomes: Sequence[Outcome]) -> Calibration:
    hours = {int(each.made.timestamp()) // 3600 for each in outcomes}
    earlier, later = sum(each.is_earlier for each in outcomes), sum(each.is_later for each in outcomes)
    parts = [each.error / max(60.0, each.waited) for each in outcomes]
    return Calibration(
        len(outcomes), len(hours), len(outcomes) - earlier - later, earlier, later,
        median(parts or [0.0]), median([each.error for each in outcomes] or [0.0]),
    )  # fmt: skip

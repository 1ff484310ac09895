"""What became of estimates: each first one beside the start that came, and how well those of a pool held. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from workloads.estimates.calibrate import ENOUGH

MINUTE = dt.timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A first estimate, when it was `made`, and when its attempt `started`; where it still waits after its range, now."""

    made: dt.datetime
    low: dt.datetime
    median: dt.datetime
    high: dt.datetime | None
    started: dt.datetime

    @property
    def is_earlier(self) -> bool:
        """A minute beside the range is still in it."""
        return self.started < self.low - MINUTE

    @property
    def is_later(self) -> bool:
        return self.high is not None and self.started > self.high + MINUTE

    @property
    def is_held(self) -> bool:
        return not (self.is_earlier or self.is_later)

    @property
    def expected(self) -> float:
        """Seconds from when it was made to the middle, as is `waited` to the start."""
        return (self.median - self.made).total_seconds()

    @property
    def waited(self) -> float:
        return (self.started - self.made).total_seconds()

    @property
    def error(self) -> float:
        """Seconds from the middle to the start."""
        return abs(self.waited - self.expected)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Of `count` first estimates, made in so many different `hours`, whose attempt has started, or still waits after its range:
    how many started in their 80 % range, earlier, and later; and the median of how far the start was from the middle, as a part
    of the wait, and in seconds. What still waits is off by at least the time until now."""

    count: int
    hours: int
    held: int
    earlier: int
    later: int
    error_part: float
    error_seconds: float

    @property
    def is_enough(self) -> bool:
        """Whether a percentage says anything: estimates of one hour err together."""
        return self.hours >= ENOUGH

    @property
    def held_percent(self) -> int:
        return round(100 * self.held / self.count) if self.count else 0

    @property
    def error_percent(self) -> int:
        return round(100 * self.error_part)


def calibration_of(outcomes: Sequence[Outcome]) -> Calibration:
    hours = {int(each.made.timestamp()) // 3600 for each in outcomes}
    earlier, later = sum(each.is_earlier for each in outcomes), sum(each.is_later for each in outcomes)
    parts = [each.error / max(60.0, each.waited) for each in outcomes]
    return Calibration(
        len(outcomes), len(hours), len(outcomes) - earlier - later, earlier, later,
        median(parts or [0.0]), median([each.error for each in outcomes] or [0.0]),
    )  # fmt: skip

"""Estimates corrected by how those before them turned out. Pure; durations in seconds.

What the plays leave out (nodes that fail, habits that change, work unlike all before it) makes their ranges too narrow, or wrong
in one direction, for everybody alike. Of past estimates it is known by which factor the real wait was longer or shorter than each
end of the range. Each end of a new one is moved by the quantile of those factors that belongs to it, so that the same part lies
beyond it (conformalized quantile regression: Romano, Patterson and Candès, 2019).

Estimates of one hour err together: what ran then decided about all of them. So together they weigh as much as one, and a burst of
hundreds says no more than a single workload (hierarchical conformal prediction: Dunn, Wasserman and Ramdas, 2018).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from workloads.estimates.forward import HIGH, HORIZON, LOW, Estimate

ENOUGH = 20
"""Hours with past estimates below which nothing is corrected, and no percentage says anything."""
SHORT = 60
"""Waits shorter than that count as that long: a minute more or less is no error."""
MOST = 10.0
"""The most by which an end is moved, as a factor."""


@dataclass(frozen=True, slots=True)
class Past:
    """An estimate as it was played, in seconds from when it was made, and how long it then did take to start; or has taken so
    far, where it has not started. `hour`: in which it was made, since 1970."""

    hour: int
    low: int
    median: int
    high: int | None
    waited: int


@dataclass(frozen=True, slots=True)
class Correction:
    """By which factors the waits until the low, the middle and the high end become longer."""

    low: float = 1.0
    median: float = 1.0
    high: float = 1.0

    def of(self, played: Estimate, now: int) -> Estimate:
        """The low end stays the lowest, and the middle inside."""
        low = now + round((played.low - now) * self.low)
        high = None if played.high is None else max(low, now + round((played.high - now) * self.high))
        if high is not None and high > now + HORIZON:
            high = None
        median = max(low, now + round((played.median - now) * self.median))
        latest = played.latest if played.latest is not None and high is not None and played.latest >= high else None
        return replace(played, low=low, median=median if high is None else min(median, high), high=high, latest=latest)


def correction_of(pasts: Sequence[Past]) -> Correction:
    """What past estimates say of new ones; nothing where they are of too few hours. Those that have not started yet must be among
    them only where they wait longer than the high end: then they count as that long."""
    together = Counter(past.hour for past in pasts)
    if len(together) < ENOUGH:
        return Correction()
    weights = [1 / together[past.hour] for past in pasts]
    return Correction(
        *(
            _quantile(_factors(pasts, name), weights, part)
            for name, part in (("low", LOW), ("median", 0.5), ("high", HIGH))
        )
    )


def _factors(pasts: Sequence[Past], name: str) -> list[float]:
    return [_length(past.waited) / _length(getattr(past, name)) for past in pasts]


def _length(seconds: int | None) -> int:
    return HORIZON if seconds is None else max(SHORT, seconds)


def _quantile(factors: list[float], weights: list[float], part: float) -> float:
    """Of a weight of one more than there is, which is what makes the part hold for the next one. A part below the middle is
    counted from the largest factor down."""
    down = part < 0.5
    wanted = max(part, 1 - part) * (sum(weights) + 1) - 1e-9
    ordered = sorted(zip(factors, weights, strict=True), reverse=down)
    reached = accumulate(weight for _, weight in ordered)
    chosen = next(
        (factor for (factor, _), sum_ in zip(ordered, reached, strict=True) if sum_ >= wanted), ordered[-1][0]
    )
    return min(MOST, max(1 / MOST, chosen))

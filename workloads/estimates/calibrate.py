"""Corrects estimates by the outcomes of earlier ones. Pure; durations in seconds.

What the simulations leave out (failing nodes, changing habits, new kinds of workloads) makes their ranges too narrow or biased.
For each past estimate, the real wait was longer or shorter than each end of its range by some factor. Each end of a new estimate
is multiplied by the quantile of these factors that corresponds to it, so that the right part of the waits is beyond it
(conformalized quantile regression: Romano, Patterson and Candès, 2019).

Estimates of one hour err together, as they depend on the same running workloads. So all of an hour together have the weight of
one, and a burst of hundreds counts as much as a single workload (hierarchical conformal prediction: Dunn, Wasserman and Ramdas,
2018).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from workloads.estimates.forward import HIGH, HORIZON, LOW, Estimate

ENOUGH = 20
"""With past estimates from fewer hours nothing is corrected, and percentages have no meaning."""
SHORT = 60
"""Shorter waits count as this long: a minute more or less is no error."""
MOST = 10.0
"""The largest factor by which an end is moved."""


@dataclass(frozen=True, slots=True)
class Past:
    """An uncorrected estimate, in seconds from when it was made, and how long the workload then waited, or has waited so far.
    `hour`: when it was made, in hours since 1970."""

    hour: int
    low: int
    median: int
    high: int | None
    waited: int


@dataclass(frozen=True, slots=True)
class Correction:
    """The factors for the waits until the low end, the median and the high end of a range."""

    low: float = 1.0
    median: float = 1.0
    high: float = 1.0

    def of(self, played: Estimate, now: int) -> Estimate:
        """The corrected estimate. The low end stays the lowest, and the median stays inside the range."""
        low = now + round((played.low - now) * self.low)
        high = None if played.high is None else max(low, now + round((played.high - now) * self.high))
        if high is not None and high > now + HORIZON:
            high = None
        median = max(low, now + round((played.median - now) * self.median))
        latest = played.latest if played.latest is not None and high is not None and played.latest >= high else None
        return replace(played, low=low, median=median if high is None else min(median, high), high=high, latest=latest)


def correction_of(pasts: Sequence[Past]) -> Correction:
    """The correction from past estimates; none if they are from fewer than ENOUGH hours. Workloads that have not started yet must
    be included only if they have waited longer than their high end; their wait so far then counts."""
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
    """The weighted quantile. The total weight counts as one more than it is, so that the part holds for the next estimate. Parts
    below one half are counted from the largest factor down."""
    down = part < 0.5
    wanted = max(part, 1 - part) * (sum(weights) + 1) - 1e-9
    ordered = sorted(zip(factors, weights, strict=True), reverse=down)
    reached = accumulate(weight for _, weight in ordered)
    chosen = next(
        (factor for (factor, _), sum_ in zip(ordered, reached, strict=True) if sum_ >= wanted), ordered[-1][0]
    )
    return min(MOST, max(1 / MOST, chosen))

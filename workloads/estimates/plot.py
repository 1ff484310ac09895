"""How long starts were expected to take beside how long they took, as a drawing: a point for each first estimate. Pure.

Both scales grow by factors, from a minute to a week, so that an error of a tenth is as far from the diagonal everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from workloads.estimates.outcomes import Outcome

SIZE = 200
LEAST, MOST = 60, 7 * 24 * 3600  # s at the edges; what lies outside stands there
MARKS = (60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600)


@dataclass(frozen=True, slots=True)
class Mark:
    seconds: int
    at: float  # from the left
    up: float  # the same from the top, for the other scale


@dataclass(frozen=True, slots=True)
class Plot:
    """Paths of the points in a square of SIZE: `held` in their range, `missed` not; equal points are one."""

    held: str
    missed: str
    marks: tuple[Mark, ...]


def place(seconds: float) -> float:
    """Where a wait stands on either scale, from 0 to SIZE."""
    within = min(max(seconds, LEAST), MOST)
    return round(SIZE * math.log(within / LEAST) / math.log(MOST / LEAST), 1)


def plot_of(outcomes: Iterable[Outcome]) -> Plot:
    held, missed = set[tuple[float, float]](), set[tuple[float, float]]()
    for each in outcomes:
        point = place(each.expected), round(SIZE - place(each.waited), 1)
        (held if each.is_held else missed).add(point)
    crosses = (f"M{x - 2:g} {y - 2:g}l4 4m0-4l-4 4" for x, y in sorted(missed))
    marks = tuple(Mark(each, place(each), round(SIZE - place(each), 1)) for each in MARKS)
    return Plot("".join(f"M{x:g} {y:g}h0" for x, y in sorted(held)), "".join(crosses), marks)

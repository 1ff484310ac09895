"""A plot of expected and real waits, with a point for each first estimate. Pure.

Both scales are logarithmic, from a minute to a week, so that an error of a tenth is at the same distance from the diagonal
everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from workloads.estimates.outcomes import Outcome

SIZE = 200
LEAST, MOST = 60, 7 * 24 * 3600  # s at the edges; points outside are drawn there
MARKS = (60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600)


@dataclass(frozen=True, slots=True)
class Mark:
    seconds: int
    at: float  # from the left
    up: float  # the same from the top, for the other scale


@dataclass(frozen=True, slots=True)
class Plot:
    """SVG paths of the points in a square of SIZE: those in their range (`held`) and others (`missed`). Equal points are
    merged."""

    held: str
    missed: str
    marks: tuple[Mark, ...]


def place(seconds: float) -> float:
    """The position of a wait on either scale, from 0 to SIZE."""
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

"""Plots of a backtest over time: an area for the present rules, and a line over it for the draft."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from portal.text.timeline import Timeline
from workloads.replay.figures import Figures

OF_ALL = {
    "used": gettext_lazy("Cards in use"),
    "borrowed": gettext_lazy("Of them borrowed"),
    "waiting": gettext_lazy("Cards waited for"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """The part of a plot in which the pointer shows the numbers of a period."""

    at: dt.datetime
    x: float
    width: float
    now: float
    draft: float


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot; `now` and `draft` are SVG paths, the means are of the whole time."""

    title: str
    line: Timeline
    now: str
    draft: str
    columns: tuple[Column, ...]
    mean_now: str
    mean_draft: str


def of_all(figures: Mapping[str, Figures], begin: dt.datetime, end: dt.datetime) -> list[Plot]:
    """The plots of all departments together; none for an old backtest that was stored without a course."""
    sides = [figures[name]["all"] for name in ("now", "draft")]
    if "course" not in sides[0]:
        return []
    times = _periods(figures, begin, end)
    return [_plot(str(title), [side["course"][name] for side in sides], times) for name, title in OF_ALL.items()]


def of_departments(
    figures: Mapping[str, Figures], names: Mapping[str, str], begin: dt.datetime, end: dt.datetime
) -> list[Plot]:
    """A plot of the cards in use for each department, all on the same scale. `names`: department id → name."""
    now, then = (figures[name]["departments"] for name in ("now", "draft"))
    courses = {slug: [side[slug]["course"]["used"] for side in (now, then)]
               for slug in now if slug in then and "course" in now[slug]}  # fmt: skip
    top = max((max(values) for both in courses.values() for values in both), default=0)
    times = _periods(figures, begin, end)
    plots = [_plot(names.get(slug, slug), both, times, top) for slug, both in courses.items()]
    return sorted(plots, key=attrgetter("title"))


def _periods(figures: Mapping[str, Figures], begin: dt.datetime, end: dt.datetime) -> list[dt.datetime]:
    """The begins of the periods, and the end of the last one."""
    period = dt.timedelta(seconds=figures["now"]["period_s"])
    return [*(begin + n * period for n in range(math.ceil((end - begin) / period))), end]


def _plot(title: str, both: Sequence[Sequence[float]], times: Sequence[dt.datetime], top: float = 0) -> Plot:
    line = Timeline(times[0], times[-1], max(1, math.ceil(top or max(map(max, both)))))
    now, draft = both
    area = "".join(line.box(begin, end, 0, value) for (begin, end), value in zip(pairwise(times), now, strict=True))
    steps = "".join(f"V{line.y(value):.1f}H{line.x(end):.1f}" for end, value in zip(times[1:], draft, strict=True))
    columns = tuple(
        Column(begin, round(line.x(begin), 1), round(line.x(end) - line.x(begin), 1), *values)
        for (begin, end), *values in zip(pairwise(times), now, draft, strict=True)
    )
    means = [_mean(values, times) for values in both]
    return Plot(title, line, area, f"M0 {line.y(draft[0]):.1f}{steps}", columns, *means)


def _mean(values: Sequence[float], times: Sequence[dt.datetime]) -> str:
    seconds = [(end - begin).total_seconds() for begin, end in pairwise(times)]
    mean = sum(value * part for value, part in zip(values, seconds, strict=True)) / sum(seconds)
    return _("%(cards)s cards") % {"cards": f"{mean:,.1f}"}

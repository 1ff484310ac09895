"""Tables of a backtest's figures under the present rules and under the draft."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from portal.text.words import duration, percent
from workloads.replay.figures import Figures


def _hours(value: float) -> str:
    return _("%(hours)s GPU-h") % {"hours": f"{value:,.1f}"}


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _time(value: float) -> str:
    return duration(value) or _("none")


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure: its key in the figures (for waits "key.part"), how it is written, and whether more of it is better (1), worse
    (-1) or neither (0)."""

    name: str
    title: Any
    written: Callable[[Any], str]
    better: int = 0

    def of(self, figures: Figures) -> Any:
        """The value in these figures; None if there is none: no job waited in this way, it is a part of nothing, or the results
        were stored before it was counted."""
        name, dot, part = self.name.partition(".")
        return figures[name].get(part) if dot else figures.get(name)

    def in_words(self, value: Any) -> str:
        return "–" if value is None else self.written(value)


MEASURES = (
    Measure("utilisation", gettext_lazy("Cards in use"), percent, 1),
    Measure("useful_utilisation", gettext_lazy("Cards in use for work that was kept"), percent, 1),
    Measure("guarantee_served", gettext_lazy("Guarantees served"), percent, 1),
    Measure("gpu_hours_used", gettext_lazy("Used"), _hours, 1),
    Measure("gpu_hours_borrowed", gettext_lazy("Borrowed"), _hours),
    Measure("gpu_hours_lent", gettext_lazy("Lent"), _hours),
    Measure("gpu_hours_lost", gettext_lazy("Work lost"), _hours, -1),
    Measure("stops", gettext_lazy("Stops by recalls"), _count, -1),
    Measure("most_stops_of_a_job", gettext_lazy("Most stops of one workload"), _count, -1),
    Measure("late", gettext_lazy("Starts later than promised"), _count, -1),
    Measure("wait_inside_s.mean", gettext_lazy("Wait inside the guarantee, mean"), _time, -1),
    Measure("wait_inside_s.p50", gettext_lazy("… half waited at most"), _time, -1),
    Measure("wait_inside_s.p95", gettext_lazy("… 95 % waited at most"), _time, -1),
    Measure("wait_inside_s.max", gettext_lazy("… longest"), _time, -1),
    Measure("wait_above_s.mean", gettext_lazy("Wait above the guarantee, mean"), _time, -1),
    Measure("wait_above_s.p50", gettext_lazy("… half waited at most"), _time, -1),
    Measure("wait_above_s.p95", gettext_lazy("… 95 % waited at most"), _time, -1),
    Measure("wait_above_s.max", gettext_lazy("… longest"), _time, -1),
    Measure("jobs", gettext_lazy("Workloads"), _count),
    Measure("never_started", gettext_lazy("Of them never started"), _count, -1),
)
BY_NAME = {measure.name: measure for measure in MEASURES}
OF_DEPARTMENTS = (
    "wait_inside_s.mean", "wait_above_s.mean", "gpu_hours_borrowed", "gpu_hours_lent", "stops", "gpu_hours_lost", "late",
)  # fmt: skip
"""The most important first: a narrow window shows only the first columns. What each used is in its plot."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure under the present rules and under the draft. `gain` is 1 if the draft is better, -1 if worse, 0 if equal or
    neither."""

    measure: Measure
    now: str
    draft: str
    gain: int


def compared(now: Figures, then: Figures, names: tuple[str, ...] = ()) -> list[Cell]:
    """The cells of the named measures, or of all."""
    cells = []
    for measure in [BY_NAME[name] for name in names] or MEASURES:
        old, new = measure.of(now), measure.of(then)
        was, is_now = measure.in_words(old), measure.in_words(new)
        more = 0 if None in (old, new) or was == is_now else 1 if new > old else -1
        cells.append(Cell(measure, was, is_now, more * measure.better))
    return cells


def by_department(figures: Mapping[str, Figures]) -> dict[str, list[Cell]]:
    """Department id → its cells for OF_DEPARTMENTS."""
    now, then = (figures[name]["departments"] for name in ("now", "draft"))
    return {slug: compared(now[slug], then[slug], OF_DEPARTMENTS) for slug in now if slug in then}


def csv_rows(figures: Mapping[str, Figures]) -> Iterator[tuple[Any, ...]]:
    """(department, figure, now, draft); the department is "" for all together. Waits are in seconds."""
    sides = [figures["now"], figures["draft"]]
    for slug in ("", *sides[0]["departments"]):
        now, then = (side["departments"].get(slug) if slug else side["all"] for side in sides)
        for measure in MEASURES if then else ():
            yield slug, measure.name, measure.of(now), measure.of(then)

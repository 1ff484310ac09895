"""What a workload's ranks use: charts that are rendered with the page and refresh themselves."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.access import Actor, actor_of
from portal.text.numbers import natural
from portal.text.words import cores, memory, percent
from quotas.models import ClusterKind
from workloads.measurement import sources
from workloads.measurement.chart import Chart, draw
from workloads.measurement.history import Point, mean_of, points_of, source_for
from workloads.measurement.sample import cards_of
from workloads.models import Attempt, Workload
from workloads.pages.rows import workload_for

RANGES = {"3h": (3, 300), "24h": (24, 300), "7d": (7 * 24, 3600), "30d": (30 * 24, 3600)}
"""Name → (hours, seconds between points)."""
LEAST_POINTS = 6
"""Width in points of the chart of a workload that has just started."""
RANKS = 8
"""How many ranks' charts one page shows."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time that charts cover; `step` is the time between points, `ran` the begin and end of each attempt."""

    begin: dt.datetime
    end: dt.datetime
    step: dt.timedelta
    ran: tuple[tuple[dt.datetime, dt.datetime], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart with its labels: `now` is the newest value ("": not measured), `top` the value at the upper edge."""

    key: str
    label: str
    chart: Chart
    now: str
    top: str


@dataclass(frozen=True, slots=True)
class RankUse:
    rank: int | None  # None: the mean of all
    figures: tuple[Figure, ...]
    watts: int | None


@login_required
@require_safe
def usage(request: HttpRequest, department: str, workload: str) -> HttpResponse:
    """The charts alone, as a part of the page."""
    actor = actor_of(request)
    dept, row = workload_for(actor, department, workload)
    last = row.attempts.select_related("cluster").order_by("-number").first()
    return render(
        request, "workloads/_use.html", {"department": dept, "workload": row} | use_of(request, actor, row, last)
    )


def use_of(request: HttpRequest, actor: Actor, workload: Workload, last: Attempt | None) -> dict[str, Any]:
    """The context of `_use.html`. `use` is None if the workload has not started yet."""
    attempts = workload.attempts.filter(started_at__isnull=False).order_by("started_at")
    times = list(attempts.values_list("started_at", "finished_at"))
    if last is None or not times:
        return {"use": None}
    now = timezone.localtime()
    source = source_for(last)
    chosen = request.GET.get("range", "")
    chosen = chosen if chosen in RANGES else "3h"
    hours, step = RANGES[chosen]
    end = min(now, timezone.localtime(workload.finished_at)) if workload.finished_at else now
    begin = max(
        end - dt.timedelta(hours=hours),
        min(timezone.localtime(times[0][0]), end - LEAST_POINTS * dt.timedelta(seconds=step)),
    )
    by_rank = points_of(workload, begin - dt.timedelta(seconds=step), end, step)
    first = min(natural(request.GET.get("ranks", ""), workload.pods - 1) or 0, workload.pods - 1)
    numbers = range(first, min(first + RANKS, workload.pods))
    ran = tuple((started, finished or end) for started, finished in times if started is not None)
    span = Span(begin, end, dt.timedelta(seconds=step), ran)
    limits = limits_of(workload)
    parts = [_rank_use(number, by_rank.get(number, []), span, limits) for number in numbers]
    if workload.pods > 1:
        parts.insert(0, _rank_use(None, mean_of(list(by_rank.values())), span, limits))
    return {
        "use": parts,
        "ranges": [(name, name == chosen, _range_label(name)) for name in RANGES],
        "range": chosen,
        "rank_pages": range(0, workload.pods, RANKS) if workload.pods > RANKS else (),
        "first_rank": first,
        "unmeasured": why_unmeasured(workload, last, source, by_rank),
        "source": source,
        "failure": sources.failure_text(source.failure)
        if source and source.failing_since and actor.is_operator
        else "",
        "metrics_cluster": last.cluster.name if actor.is_operator else "",
        "renews": not workload.is_final,
    }


def _range_label(name: str) -> str:
    return {"3h": _("3 hours"), "24h": _("24 hours"), "7d": _("7 days"), "30d": _("30 days")}[name]


def limits_of(workload: Workload) -> dict[str, float | None]:
    """Key of a figure → the most that one rank may use; None: unknown."""
    pool = workload.pool
    asked = workload.asked_per_pod or workload.units_per_pod
    of_card = pool.card_mib or None
    gpu_mib = float(asked) if pool.unit == "MiB" else of_card and of_card * asked / pool.units_per_card
    return {
        "gpu": 1.0,
        "gpu_mib": gpu_mib,
        "cpu_milli": float(workload.cpu_milli),
        "memory_mib": float(workload.memory_mib),
    }


def _rank_use(
    rank: int | None,
    points: Sequence[Point],
    span: Span,
    limits: Mapping[str, float | None],
) -> RankUse:
    words: dict[str, tuple[str, Callable[[float], str]]] = {
        "gpu": (_("GPU activity"), percent),
        "gpu_mib": (_("GPU memory"), lambda value: memory(round(value))),
        "cpu_milli": ("CPU", lambda value: _("%(n)s cores") % {"n": cores(round(value, -1 if value >= 100 else 0))}),
        "memory_mib": (_("Memory"), lambda value: memory(round(value))),
    }
    figures = []
    for key, (label, written) in words.items():
        values = [(point.at, getattr(point, key)) for point in points]
        chart = draw(values, begin=span.begin, end=span.end, step=span.step, limit=limits[key], ran=span.ran)
        figures.append(
            Figure(key, label, chart, "" if chart.last is None else written(chart.last), written(chart.line.top))
        )
    recent = [point.watts for point in points if point.watts is not None and point.at + 2 * span.step >= span.end]
    return RankUse(rank, tuple(figures), recent[-1] if recent else None)


def why_unmeasured(
    workload: Workload, attempt: Attempt, source: Any, by_rank: Mapping[int, Sequence[Point]]
) -> str:  # fmt: skip
    """Why GPU activity is missing, as a sentence; "" if it is measured or the reason is unknown."""
    if any(point.gpu is not None for points in by_rank.values() for point in points):
        return ""
    if attempt.cluster.kind == ClusterKind.EMBEDDED:
        return _("The cards of this demo are simulated: there is nothing to measure.")
    if source is None or not source.url:
        return _("The use of this cluster is not measured: no Prometheus is connected.")
    if cards_of(workload) == "part" and "hami" not in workload.pool.sharing:
        return _("On a shared card it is not known which pod uses it.")
    return ""

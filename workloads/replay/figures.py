"""The figures of a replay: of all departments together, and of each."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from workloads.replay.accounting import Line, Outcome, Record

Figures = dict[str, Any]
HOUR = 3600
QUANTILES = (50, 90, 95, 99)


def figures_of(outcome: Outcome, *, with_course: bool = False) -> Figures:
    """All figures as JSON values: `all`, and `departments` by id. GPU-hours are of whole cards, waits are in seconds.

    `with_course` adds the `course` of each: mean cards `used`, `borrowed` (part of the used) and `waiting`, for each period of
    `period_s` seconds."""
    idle: Counter[str] = Counter()
    by_department: dict[str, Counter[str]] = {}
    for (rule, department), seconds in outcome.idle.items():
        idle[rule] += seconds
        by_department.setdefault(department, Counter())[rule] += seconds
    departments: dict[str, Figures] = {}
    for id in sorted({line.department for line in outcome.lines}):
        lines = [line for line in outcome.lines if line.department == id]
        records = [record for record in outcome.records if record.job.request.department == id]
        if records or any(line.guaranteed for line in lines):
            departments[id] = _figures(outcome, lines, records, by_department.get(id, Counter()), with_course)
    return {
        "days": round((outcome.end - outcome.begin) / 86400, 3),
        "passes": outcome.passes,
        "period_s": outcome.period,
        "all": _figures(outcome, outcome.lines, outcome.records, idle, with_course),
        "departments": departments,
    }


def _figures(
    outcome: Outcome, lines: Sequence[Line], records: Sequence[Record], idle: Counter[str], with_course: bool
) -> Figures:
    seconds = outcome.end - outcome.begin
    used, borrowed, lent, lost, due, served = (
        sum(getattr(line, name) * line.cards for line in lines)
        for name in ("used", "borrowed", "lent", "lost", "due", "served")
    )
    waited_inside = [record.late for record in records if record.late is not None]
    late = [by for by in waited_inside if by]
    recalls = Counter(record.recalls for record in records if record.recalls)
    return {
        "guaranteed_cards": round(sum(line.guaranteed * line.cards for line in lines), 3),
        "cards": round(outcome.cards, 3),
        "jobs": len(records),
        "finished": sum(record.finished_at is not None for record in records),
        "never_started": sum(record.first_start is None for record in records),
        "refused_or_ended": sum(record.refused for record in records),
        "utilisation": _part(used, outcome.cards * seconds),
        "useful_utilisation": _part(used - lost, outcome.cards * seconds),
        "guarantee_served": _part(served, due),
        "gpu_hours_used": round(used / HOUR, 1),
        "gpu_hours_borrowed": round(borrowed / HOUR, 1),
        "gpu_hours_lent": round(lent / HOUR, 1),
        "gpu_hours_lost": round(lost / HOUR, 1),
        "lost_of_borrowed": _part(lost, borrowed),
        "stops": sum(times * jobs for times, jobs in recalls.items()),
        "most_stops_of_a_job": max(recalls, default=0),
        "jobs_by_stops": {str(times): recalls[times] for times in sorted(recalls)},
        "late": len(late),
        "late_of_waits_inside": _part(len(late), len(waited_inside)),
        "latest_by_s": max(late, default=0),
        "started_after_promise": sum(record.broken for record in records),
        "wait_inside_s": _spread(record.waited(outcome.end) for record in records if record.inside),
        "wait_above_s": _spread(record.waited(outcome.end) for record in records if record.inside is False),
        "idle_while_waiting_gpu_hours": {rule: round(part / HOUR, 1) for rule, part in idle.most_common() if part},
    } | ({"course": _course(outcome, lines)} if with_course else {})


def _course(outcome: Outcome, lines: Sequence[Line]) -> Figures:
    """Mean cards in each period of the outcome: used, borrowed (part of the used), waiting. The last period may be shorter."""
    ends = [*range(outcome.begin, outcome.end, outcome.period), outcome.end]
    course: Figures = {}
    for part, name in enumerate(("used", "borrowed", "waiting")):
        so_far = [0.0, *(sum(line.course[at][part] * line.cards for line in lines) for at in range(len(ends) - 1))]
        course[name] = [
            round((now - before) / (end - begin), 2)
            for (before, now), (begin, end) in zip(pairwise(so_far), pairwise(ends), strict=True)
        ]
    return course


def _part(part: float, whole: float) -> float | None:
    """None: a part of nothing."""
    return round(part / whole, 6) if whole else None


def _spread(values: Iterable[int]) -> Figures:
    """Count, mean, quantiles and maximum of the values."""
    ordered = sorted(values)
    if not ordered:
        return {"jobs": 0}
    at = {f"p{q}": ordered[min(len(ordered) - 1, len(ordered) * q // 100)] for q in QUANTILES}
    return {"jobs": len(ordered), "mean": round(sum(ordered) / len(ordered)), **at, "max": ordered[-1]}

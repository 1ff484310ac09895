"""Writes the Grafana dashboards of the chart (deploy/helm/gpu-quota-portal/dashboards): `make docs`.

This file defines the figures and their titles; the rest is the same for all. tests/workloads/test_dashboards.py runs every
query on a real Prometheus.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "deploy/helm/gpu-quota-portal/dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
THEIRS = "%(theirs)s"  # in a query: replaced by the labels that the reader has chosen
Panel = dict[str, Any]


def series(metric: str, **labels: str) -> str:
    """`portal_metric{…}`; a value that begins with ~ is a pattern."""
    chosen = [f'{name}=~"{value[1:]}"' if value[0] == "~" else f'{name}="{value}"' for name, value in labels.items()]
    return f"portal_{metric}{{{', '.join([*chosen, THEIRS])}}}"


def by(labels: str, what: str, function: str = "sum") -> str:
    return f"{function} by ({labels}) ({what})" if labels else f"{function}({what})"


def rate(metric: str, over: str = "$__rate_interval", **labels: str) -> str:
    return f"{'increase' if over == '$__range' else 'rate'}({series(metric, **labels)}[{over}])"


def share(labels: str, part: str, whole: str) -> str:
    """A ratio; no value if the whole is 0."""
    return f"{by(labels, part)} / ({by(labels, whole)} > 0)"


def panel(title: str, query: str, labels: str = "", says: str = "", unit: str = "short", **more: Any) -> Panel:
    """`labels`: the labels that name each line. `more`: `kind` (timeseries), `stacked`; the rest are Grafana's defaults of the
    field."""
    kind, stacked = more.pop("kind", "timeseries"), more.pop("stacked", False)
    if kind == "timeseries":
        more["custom"] = {"fillOpacity": 25, "stacking": {"mode": "normal"}} if stacked else {"fillOpacity": 0}
    legend = " ".join(f"{{{{{label}}}}}" for label in labels.split(", ")) if labels else "__auto"
    target = {"refId": "A", "datasource": SOURCE, "expr": query, "legendFormat": legend}
    config = {"defaults": {"unit": unit, **more}, "overrides": []}
    return {"type": kind, "title": title, "description": says, "fieldConfig": config, "targets": [target]}


def lines(title: str, labels: str, what: str, says: str = "", function: str = "sum", **more: Any) -> Panel:
    return panel(title, by(labels, what, function), labels, says, **more)


def number(title: str, query: str, says: str = "", labels: str = "", **more: Any) -> Panel:
    return panel(title, query, labels, says, kind="stat", **more)


def percent(title: str, labels: str, part: str, whole: str, says: str = "", **more: Any) -> Panel:
    return panel(title, share(labels, part, whole), labels, says, unit="percentunit", min=0, **more)


IN_USE = series("usage_units", leaf="true", share="~own|borrowed")
LENT = series("usage_units", leaf="true", share="lent")
PRESENT, FREE = series("pool_units", kind="present"), series("pool_units", kind="free")
OVERVIEW = [
    number("Present", by("unit", PRESENT), "On healthy cards of nodes that take work.", "unit"),
    number("In use", by("unit", IN_USE), labels="unit"),
    number("Lent", by("unit", LENT), "Guaranteed to one department, used by another.", "unit"),
    number("Free", by("unit", FREE), labels="unit"),
    number("Waiting", by("", series("queue_length", leaf="true")), "Claims in the queues."),
    lines("Own and borrowed", "pool, share", IN_USE, stacked=True),
    lines("Lent", "pool", LENT, stacked=True),
    percent("In use of what is present", "pool", IN_USE, PRESENT),
    lines("Free", "pool", FREE),
    lines("Units that wait", "pool", series("queue_units", leaf="true")),
    lines("Longest wait", "pool", series("queue_oldest_seconds"), "Of the claims in the queue now.", "max", unit="s"),
    lines("Promised and present", "pool, kind", series("pool_units", kind="~promised|present"),
          "What is promised above what is present can be kept only when nodes come back."),
    lines("Outside the quota", "pool", series("pool_units", kind="outside"), "Taken by pods that nobody was admitted for."),
]  # fmt: skip

ROW = "department, pool"
OWN = series("usage_units", share="own")
DEPARTMENTS = [
    lines("Guaranteed", ROW, series("guaranteed_units"), "With all teams below."),
    lines("Own use", ROW, OWN),
    lines("Borrowed", ROW, series("usage_units", share="borrowed")),
    lines("Lent to others", ROW, series("usage_units", share="lent")),
    percent("Used of the guarantee", ROW, OWN, series("guaranteed_units")),
    lines("Waiting claims", ROW, series("queue_length")),
    lines("Waiting units", ROW, series("queue_units")),
    lines("Longest wait", ROW, series("department_queue_oldest_seconds"), "Of the claims in the queue now.", "max", unit="s"),
    panel("Unit-hours in the time shown", by("department, share, unit", rate("used_unit_seconds_total", "$__range")) + " / 3600",
          "department, share, unit", "Own and borrowed use, and what was lent: as the report Usage has it.", kind="bargauge"),
    panel("Unit-hours of people in the time shown",
          f"topk(20, {by('person, unit', rate('person_used_unit_seconds_total', '$__range'))}) / 3600", "person, unit",
          kind="bargauge"),
]  # fmt: skip

LOST = series("reclaim_lost_unit_seconds")
RED_FROM_1 = {"mode": "absolute", "steps": [{"color": "green", "value": None}, {"color": "red", "value": 1}]}
RECALL = [
    number("Late now", by("", series("recalls", stage="late")), "Past notice and grace, and still there.", thresholds=RED_FROM_1),
    number("Came back in 24 hours", by("", series("reclaims"))),
    number("The latest of them", by("", series("reclaim_late_seconds"), "max"), "Past notice and grace.", unit="s"),
    number("Unit-hours lost in 24 hours", by("unit", LOST) + " / 3600", labels="unit"),
    lines("Being recalled", "pool, stage", series("recalls"),
          "recalled: the notice runs. notified: the container can read the deadline. saved: the program reported it. "
          "stopping: SIGTERM was sent. late: past notice and grace.", stacked=True),
    lines("Units that leave", "pool", series("usage_units", leaf="true", share="leaving")),
    lines("Held for owners", "pool", series("usage_units", leaf="true", share="held"), "Reserved, or coming back."),
    lines("From notice until free", "pool, quantile", series("reclaim_seconds"), "Of the last 24 hours.", "max", unit="s"),
    lines("Late by", "pool", series("reclaim_late_seconds"), "The worst of the last 24 hours.", "max", unit="s"),
    lines("Preemptions in 24 hours", "pool", series("reclaims")),
    lines("How work ended in 24 hours", "pool, outcome", series("attempts_ended"), stacked=True),
    panel("Unit-hours lost in 24 hours", by("pool, unit", LOST) + " / 3600", "pool, unit",
          "Since the last checkpoint, without the cost of starting again."),
]  # fmt: skip

P95 = f"histogram_quantile(0.95, {by('kind, le', rate('request_seconds_bucket'))})"
HEALTH = [
    number("Version", by("version", series("info"), "max"), "Two: an upgrade is under way.", "version"),
    number("Since the last backup", f"time() - {by('', series('backup_timestamp_seconds'), 'max')}", unit="s"),
    number("Quarantined", by("what", series("quarantined")), labels="what"),
    lines("Planning passes", "group, quantile", series("plan_pass_seconds"), "Of the last hour.", "max", unit="s"),
    panel("Since the last pass", f"time() - {by('group', series('plan_pass_timestamp_seconds'), 'max')}", "group", unit="s"),
    lines("Waiting claims", "pool", series("queue_length", leaf="true")),
    panel("Since a scheduled job began", f"time() - {by('job', series('job_last_run_timestamp_seconds'), 'max')}", "job",
          "The worker and the beat are well when each keeps its rhythm.", unit="s"),
    lines("Answers a second", "kind, status", rate("request_seconds_count"), unit="reqps"),
    panel("95 of 100 answers begin within", P95, "kind", unit="s"),
    percent("Errors of the portal", "kind", rate("request_seconds_count", status="5xx"), rate("request_seconds_count")),
    lines("Clusters that answer", "cluster", series("cluster_reachable"), function="min", min=0, max=1),
    lines("Watchers: since a sign of life", "process", series("heartbeat_age_seconds"), function="max", unit="s"),
    lines("Mails and webhooks that wait", "channel", series("outbox_waiting")),
    lines("The oldest of them", "channel", series("outbox_oldest_seconds"), function="max", unit="s"),
    lines("Workloads", "state", series("workloads"), stacked=True),
    lines("Failed runs of jobs in 7 days", "job", series("job_failed_runs")),
]  # fmt: skip

ALLOCATED, MEASURED, ACTIVE = (series("activity_units", what=what) for what in ("allocated", "measured", "active"))
EFFICIENCY = [
    number("Active of measured", share("", ACTIVE, MEASURED), "Of the cards that work holds now.", unit="percentunit"),
    number("Measured of allocated", share("", MEASURED, ALLOCATED), "What is not measured is not idle.", unit="percentunit"),
    number("Warned of being idle", by("unit", series("idle_units")), labels="unit"),
    lines("Allocated, measured, active", "pool, what", series("activity_units")),
    percent("Active of measured, by pool", "pool", ACTIVE, MEASURED),
    percent("Active of measured, by department", "department", ACTIVE, MEASURED),
    panel("Measured and not active", f"{by('department', MEASURED)} - {by('department', ACTIVE)}", "department",
          "As many units computed nothing."),
    lines("Warned of being idle", "pool", series("idle_units")),
    percent("Used by nobody", "pool", FREE, PRESENT),
    lines("Metered use", "pool, share", rate("used_unit_seconds_total", share="~own|borrowed"), "In units.", stacked=True),
    lines("Clusters whose use is measured", "cluster", series("use_measured"), function="min", min=0, max=1),
    lines("Since the last measuring", "cluster", series("use_measured_age_seconds"), function="max", unit="s"),
]  # fmt: skip

DASHBOARDS = {
    "overview": ("Overview", ["pool"], OVERVIEW),
    "departments": ("Departments", ["pool", "department"], DEPARTMENTS),
    "recall": ("Recall contract", ["pool"], RECALL),
    "health": ("Portal health", [], HEALTH),
    "efficiency": ("Use and efficiency", [], EFFICIENCY),
}  # name → title, labels that the reader can choose, panels
CHOICES = {
    "instance": ("Installation", "portal_info"),
    "pool": ("Pool", 'portal_pool_units{instance=~"$instance"}'),
    "department": ("Department", 'portal_guaranteed_units{instance=~"$instance"}'),
}  # label → its title, the metric that has its values


def variables(labels: list[str]) -> Iterator[dict[str, Any]]:
    yield {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"}
    for label in labels:
        name, where = CHOICES[label]
        several = {"multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
        query = f"label_values({where}, {label})"
        common = {"type": "query", "name": label, "label": name, "datasource": SOURCE, "refresh": 2, "sort": 1}
        yield common | {"query": query, "definition": query} | ({} if label == "instance" else several)


def placed(panels: list[Panel], theirs: str) -> Iterator[Panel]:
    """Numbers in one row, the others in two columns."""
    numbers = sum(each["type"] == "stat" for each in panels)
    for index, each in enumerate(panels):
        at = index - numbers
        wide, row = 24 // max(numbers, 1), 4 if numbers else 0
        place = {"x": 12 * (at % 2), "y": row + 8 * (at // 2), "w": 12, "h": 8}
        if each["type"] == "stat":
            place = {"x": wide * index, "y": 0, "w": wide, "h": 4}
        targets = [target | {"expr": target["expr"] % {"theirs": theirs}} for target in each["targets"]]
        yield {"id": index + 1, **each, "datasource": SOURCE, "gridPos": place, "targets": targets}


def dashboard(name: str) -> dict[str, Any]:
    title, chosen, panels = DASHBOARDS[name]
    labels = ["instance", *chosen]
    link = {
        "type": "dashboards",
        "title": "GPU quota",
        "tags": ["gpu-quota-portal"],
        "asDropdown": True,
        "keepTime": True,
    }
    return {
        "uid": f"gpu-quota-portal-{name}",
        "title": f"GPU quota: {title}",
        "tags": ["gpu-quota-portal"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "timezone": "browser",
        "links": [link],
        "templating": {"list": list(variables(labels))},
        "panels": list(placed(panels, ", ".join(f'{label}=~"${label}"' for label in labels))),
    }


def written(name: str) -> str:
    return json.dumps(dashboard(name), indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in DASHBOARDS:
        (FOLDER / f"{each}.json").write_text(written(each))

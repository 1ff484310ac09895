"""The page that a notice links to, in the inbox, mails and webhooks: that of its subject."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse

OF_KIND = {
    "token.expiring": "portal:tokens",
    "usage.month": "quotas:usage",
    "cluster.not_measured": "workloads:metrics",
    "cluster.measured": "workloads:metrics",
    "quota.changed": "quotas:quotas",
    "webhook.failing": "portal:webhooks",
    "webhook.test": "portal:webhooks",
    "member.removed": "",  # the removed person cannot see the department any more
}


def page_of(kind: str, department: str, workload: str, facts: Mapping[str, Any]) -> str:
    """The page's path; "" if there is none in this installation. `department`: its slug, "" if the notice has none or it is
    deleted; `workload`: its public id or ""."""
    name, where = _page_and_place(kind, department, workload, facts)
    if not name or ("department" in where and not department):
        return ""
    try:
        path = reverse(name, kwargs=where)
    except NoReverseMatch:
        return ""
    return f"{path}?{query}" if (query := _query(kind, department, facts)) else path


def _page_and_place(kind: str, department: str, workload: str, facts: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """(name of the URL, its arguments)."""
    where = {"department": department}
    if kind in {"node.quarantined", "node.quarantine_ended"}:
        node = str(facts.get("node", ""))
        return ("quotas:node_health", {"node": node}) if node else ("quotas:operator_nodes", {})
    if kind in {"cluster.not_measured", "cluster.measured"}:
        return OF_KIND[kind], {"cluster": str(facts.get("cluster", ""))}
    if kind == "provider.missing" or kind.startswith("directory."):
        return "portal:operator_groups", {}
    if workload:
        return "workloads:detail", where | {"workload": workload}
    if not department or kind in {"usage.month", "token.expiring"}:
        return (OF_KIND.get(kind, "") if department else ""), {}
    if request := str(facts.get("request", "")):
        return "quotas:request", where | {"quota_request": request}
    return OF_KIND.get(kind, "quotas:budgets" if kind.startswith("budget.") else "quotas:department"), where


def _query(kind: str, department: str, facts: Mapping[str, Any]) -> str:
    """The query string: for a monthly report the department and month of the usage page, else ""."""
    if kind != "usage.month":
        return ""
    try:
        first = dt.date.fromisoformat(f"{facts.get('month', '')}-01")
    except ValueError:
        return ""
    last = (first + dt.timedelta(days=31)).replace(day=1) - dt.timedelta(days=1)
    return urlencode({"department": department, "from": first, "until": last})

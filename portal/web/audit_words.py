"""Entries of the audit log in words of the reader's language. The entries themselves have codes, which the API and the CSV file
return unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.apps import apps
from django.utils.translation import gettext as _

from portal.errors import N_
from portal.infra.versions import readable
from portal.models import AuditEntry, Department, User
from portal.notify.notices import fact_text
from portal.text.words import cores, duration, exact, limit_in_words, listed, memory
from portal.web.code_names import fact_name

IN_UNITS = {"guaranteed", "borrow_limit", "lend_limit", "units", "before", "nominal", "units_per_pod"}
UNLIMITED = {"borrow_limit", "lend_limit"}  # null is a value of these: there is no limit
OF_REQUESTS = {"units", "before"}  # values of what is requested
IN_SECONDS = {"notice", "grace", "min_runtime", "max_runtime", "starvation_after", "restart_cost", "balance_half_life"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
CODES = {  # of policies
    "any": N_("any workload"),
    "lower_priority": N_("lower priority only"),
    "lower_or_newer_equal": N_("lower priority, and newer ones of the same priority"),
    "never": N_("never"),
}
KINDS = {
    "notebook": N_("Notebooks"), "job": N_("Jobs"), "distributed": N_("Distributed jobs"), "service": N_("Services"),
}  # fmt: skip
IDLE_LIMITS = {  # of an idle policy, in the order in which they are shown
    "action": N_("when idle"), "below": N_("idle below"), "minutes": N_("for so long"),
    "countdown": N_("stop after the warning"), "keep": N_("“Keep it” gives"),
}  # fmt: skip
IDLE_ACTIONS = {
    "nothing": N_("do nothing"), "warn": N_("warn only"), "borrowed": N_("stop borrowed work only"),
    "stop": N_("warn, then stop"),
}  # fmt: skip
COUNTS = {"all": N_("all use"), "borrowed": N_("borrowed use only")}  # of budgets
LONGEST = 300
"""Characters of one value; a cluster's options have many more."""


class Reader:
    """Names and units for the slugs and IDs in these entries: seven queries, whatever their number."""

    def __init__(self, entries: Iterable[AuditEntry]) -> None:
        targets = {entry.target for entry in entries}
        users = User.objects.filter(username__in={target.rpartition(" ")[2] for target in targets})
        self.users = {user.username: user.label for user in users}
        workloads = apps.get_model("workloads", "Workload")._default_manager.filter(public_id__in=targets)
        self.workloads = dict(workloads.values_list("public_id", "name"))
        self.requests = self._subjects("QuotaRequest", targets)
        self.budgets = self._subjects("Budget", {target.rpartition("/")[2] for target in targets})
        pools = apps.get_model("quotas", "Pool")._default_manager.values_list("slug", "name", "unit")
        self.pools: dict[str, tuple[str, str]] = {slug: (name, unit) for slug, name, unit in pools}
        self.departments = dict(Department.objects.values_list("slug", "name"))
        self.kinds = dict(apps.get_model("workloads", "Workload")._meta.get_field("kind").flatchoices)

    def _subjects(self, model: str, ids: set[str]) -> dict[str, str]:
        """ID of a quota request or budget → its department and pool."""
        rows = apps.get_model("quotas", model)._default_manager.filter(public_id__in=ids).order_by()
        named = rows.values_list("public_id", "department__name", "pool__name")
        return {id: f"{department} / {pool or _('all pools')}" for id, department, pool in named}

    def changes(self, entry: AuditEntry) -> list[tuple[str, str, str]]:
        """(name, before, after) of every value in the entry; of idle policies, of every limit that changed."""
        before, after = entry.before or {}, entry.after or {}
        if before.keys() | after.keys() == {"idle_policy"}:
            return list(_idle_changes(before.get("idle_policy") or {}, after.get("idle_policy") or {}))
        facts = before | after
        unit = self._unit(entry.target, facts)
        # A request's amounts are those of what it asks for.
        as_read = dict.fromkeys(OF_REQUESTS, "borrow_limit") if facts.get("wanted") == "borrow_limit" else {}

        def text(key: str, values: Mapping[str, Any]) -> str:
            return self._text(as_read.get(key, key), values[key], unit) if key in values else readable(None)

        return [(fact_name(key), text(key, before), text(key, after)) for key in facts]

    def target(self, entry: AuditEntry) -> tuple[str, str]:
        """The name of the entry's target, and what tells it from others of that name, if it is not the same."""
        kind, _space, key = entry.target.rpartition(" ")
        match kind:
            case "user":
                return self.users.get(key, key), key
            case "department":
                return self.departments.get(key, key), key
        for names in (self.workloads, self.requests):
            if key in names:
                return names[key], key
        owner, slash, pool = entry.target.partition("/")
        if pool in self.budgets:
            return self.budgets[pool], pool
        if slash and owner in self.departments and pool in self.pools:
            return f"{self.departments[owner]} / {self.pools[pool][0]}", entry.target
        return entry.target, entry.target

    def _unit(self, target: str, facts: Mapping[str, Any]) -> str:
        """The unit of the pool that the values or the target name; "" if neither does."""
        named = (facts.get("pool"), target.rpartition("/")[2])
        return next((self.pools[slug][1] for slug in named if isinstance(slug, str) and slug in self.pools), "")

    def _text(self, key: str, value: Any, unit: str) -> str:
        text = self._words(key, value, unit)
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"

    def _words(self, key: str, value: Any, unit: str) -> str:
        if value is None and key in UNLIMITED:
            return limit_in_words(key, None, unit)
        if isinstance(value, str) and value:
            return self._of_text(key, value)
        if isinstance(value, int) and not isinstance(value, bool):
            return _of_number(key, value, unit)
        if isinstance(value, list) and value:
            return (_("; ") if isinstance(value[0], dict | list) else _(", ")).join(
                self._words(key, each, unit) for each in value
            )
        if isinstance(value, dict) and value:
            return listed(f"{fact_name(name)}{_(': ')}{self._words(name, each, unit)}" for name, each in value.items())
        return _("never") if key == "borrow_preempt" and value is None else readable(value)

    def _of_text(self, key: str, value: str) -> str:
        if key == "pool" and value in self.pools:
            return self.pools[value][0]
        if key == "kind":
            return str(self.kinds.get(value, value))
        if key == "parent":
            return str(self.departments.get(value, value))
        if key in ("reclaim", "within") and value in CODES:
            return _(CODES[value])
        if key == "counts" and value in COUNTS:
            return _(COUNTS[value])
        if TIME.match(value):
            return fact_text("when_at", value)
        return fact_text("what" if key == "wanted" else key, value)


def _idle_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for kind in sorted(before.keys() | after.keys()):
        for limit, name in IDLE_LIMITS.items():
            was, now = (rules.get(kind, {}).get(limit) for rules in (before, after))
            if was != now:
                yield f"{_(KINDS.get(kind, kind))}{_(': ')}{_(name)}", _idle_text(limit, was), _idle_text(limit, now)


def _idle_text(limit: str, value: Any) -> str:
    if value is None:
        return readable(None)
    if limit == "action":
        return _(IDLE_ACTIONS.get(value, value))
    return f"{value} %" if limit == "below" else duration(value * 60)


def _of_number(key: str, value: int, unit: str) -> str:
    if key in IN_UNITS and unit:
        return exact(value, unit)
    if key in IN_SECONDS:
        return duration(value)
    return {"memory_mib": memory, "cpu_milli": cores}.get(key, str)(value)

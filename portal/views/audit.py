"""The audit log: who changed what, with filters in the address, and all of it as CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator

from django.apps import apps
from django.contrib.auth.decorators import login_required
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.access import operator_of
from portal.models import AuditEntry
from portal.web.audit_words import Reader
from portal.web.code_names import event_label
from portal.web.facets import Filter, department_filter
from portal.web.lists import Column, ListState
from portal.web.navigation import address

COLUMNS = ("at", "actor", "token", "action", "department", "target", "before", "after", "request_id", "source")
SEARCHED = (
    "target", "actor_name", "actor__first_name", "actor__last_name", "token_name", "action", "source", "request_id",
)  # fmt: skip


@login_required
@require_safe
def audit(request: HttpRequest) -> HttpResponseBase:
    operator_of(request)
    rows = AuditEntry.objects.select_related("actor", "department")
    state = list_of(request, rows)
    if state.is_sheet:
        return state.sheet("audit", COLUMNS, cells(state.chosen(rows)))
    context = state.context(rows)
    page = context["page"]
    reader = Reader(page)
    context["lines"] = [
        (entry, reader.changes(entry), *reader.target(entry), target_address(entry, reader)) for entry in page
    ]
    return render(request, "portal/operator_audit.html", context)


def list_of(request: HttpRequest, rows: QuerySet[AuditEntry]) -> ListState:
    """The state of the list of these entries: columns, filters and search."""
    columns = [
        Column("at", _("Time"), ("at",), fixed=True),
        Column("actor", _("Who"), ("actor_name",)),
        Column("action", _("Action"), ("action",)),
        Column("department", _("Department"), ("department__name",), gaps=True),
        Column("target", _("Target"), ("target",)),
        Column("event", _("Event")),
    ]
    filters = [
        Filter("action", _("Action"), "action", event_label),
        Filter("actor", _("Who"), "actor_name"),
        department_filter(rows),
        Filter("target", "", "target"),
    ]
    return ListState(request.GET, columns, searched=searched, moment="at", filters=filters, shown_as="-at")


def searched(word: str) -> Q:
    """The entries with the word in a field that is shown, or in the name of their workload."""
    named = apps.get_model("workloads", "Workload")._default_manager.filter(name__icontains=word)
    either = Q(target__in=named.values("public_id"))
    for field in SEARCHED:
        either |= Q((f"{field}__icontains", word))
    return either


def target_address(entry: AuditEntry, reader: Reader) -> str:
    """The URL of the page about the entry's target; "" if there is none."""
    if entry.target in reader.workloads:
        return address("workloads:by_id", {"workload": entry.target})
    kind, _space, key = entry.target.rpartition(" ")
    if key in reader.users and (kind == "user" or entry.action.startswith("operator.")):
        return address("portal:operator_user", {"username": key})
    slug = entry.department.slug if entry.department else ""
    if entry.target in reader.requests:
        return address("quotas:request", {"department": slug, "quota_request": entry.target})
    budget = entry.target.rpartition("/")[2]
    if budget in reader.budgets:
        return address("quotas:budget", {"department": slug, "budget": budget})
    if slug and entry.action.startswith(("department.", "member.", "quota.", "budget.")):
        return address("quotas:department", {"department": slug})
    return ""


def cells(rows: QuerySet[AuditEntry]) -> Iterator[list[object]]:
    for row in rows.iterator(chunk_size=1000):
        department = row.department.slug if row.department else ""
        versions = [
            json.dumps(value, ensure_ascii=False) if value is not None else "" for value in (row.before, row.after)
        ]
        who = [row.at, row.actor_name, row.token_name, row.action, department, row.target]
        yield [*who, *versions, row.request_id, row.source]

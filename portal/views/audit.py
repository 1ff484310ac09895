"""The audit log: who changed what, with filters in the address, and all of it as CSV."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import reduce
from operator import or_

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.access import operator_of
from portal.models import AuditEntry, Department, User
from portal.web.audit_words import Reader
from portal.web.code_names import event_label
from portal.web.facets import facet, narrow
from portal.web.lists import Column, ListState
from portal.web.navigation import address
from portal.web.spreadsheets import download

PER_PAGE = 50
WORKLOAD = re.compile(r"[0-9a-z]{26}")  # its id
PATHS = {"action": "action", "actor": "actor_name", "department": "department__slug", "target": "target"}
COLUMNS = ("at", "actor", "token", "action", "department", "target", "before", "after", "request_id", "source")


@login_required
@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    operator_of(request)
    state = ListState(request.GET, columns())
    rows = matching(state)
    page = Paginator(state.ordered(narrow(request, rows, PATHS)), PER_PAGE).get_page(request.GET.get("page"))
    actions = {code: event_label(code) for code in rows.values_list("action", flat=True).order_by().distinct()}
    names = dict(Department.objects.values_list("slug", "name"))
    facets = [
        facet(request, rows, PATHS, "action", _("Action"), actions),
        facet(request, rows, PATHS, "actor", _("Who")),
        facet(request, rows, PATHS, "department", _("Department"), names),
    ]
    reader = Reader()
    users = {entry.target for entry in page if entry.action.startswith("user.")}
    accounts = set(User.objects.filter(username__in=users).values_list("username", flat=True))
    context = {
        "list": state, "page": page, "facets": facets,
        "lines": [(entry, reader.changes(entry), target_address(entry, accounts)) for entry in page],
        "narrowed": state.is_narrowed or any(request.GET.get(name) for name in PATHS),
    }  # fmt: skip
    return render(request, "portal/operator_audit.html", context)


def columns() -> list[Column]:
    return [
        Column("at", _("Time"), ("at",)),
        Column("actor", _("Who"), ("actor_name",)),
        Column("action", _("Action"), ("action",)),
        Column("department", _("Department"), ("department__name",)),
        Column("target", _("Target"), ("target",)),
        Column("event", _("Event")),
    ]


def matching(state: ListState) -> QuerySet[AuditEntry]:
    """Entries of the asked days that name the searched words: who, with which token, and on what."""
    rows = state.within(AuditEntry.objects.select_related("department"), "at")
    if words := state.words:
        named = ("target", "actor_name", "token_name", "action", "source", "request_id")
        rows = rows.filter(reduce(or_, (Q(**{f"{name}__icontains": words}) for name in named)))
    return rows


def target_address(entry: AuditEntry, accounts: set[str]) -> str:
    """The page of what the entry is about; "" where it has none of its own."""
    if WORKLOAD.fullmatch(entry.target) and entry.action.startswith("workload."):
        return address("workloads:by_id", {"workload": entry.target})
    if entry.action.startswith(("department.", "member.", "quota.", "budget.")) and entry.department:
        return address("quotas:department", {"department": entry.department.slug})
    if entry.target in accounts:
        return address("portal:operator_user", {"username": entry.target})
    return ""


@login_required
@require_safe
def export(request: HttpRequest) -> StreamingHttpResponse:
    """All rows that the page's filters select, newest first, as CSV that is streamed."""
    operator_of(request)
    state = ListState(request.GET, columns())
    rows = state.ordered(narrow(request, matching(state), PATHS))
    name = f"audit-{timezone.now():%Y%m%d-%H%M%S}.csv"
    return download(name, COLUMNS, cells(rows))


def cells(rows: QuerySet[AuditEntry]) -> Iterator[list[str]]:
    for row in rows.iterator(chunk_size=1000):
        department = row.department.slug if row.department else ""
        versions = [
            json.dumps(value, ensure_ascii=False) if value is not None else "" for value in (row.before, row.after)
        ]
        who = [row.at.isoformat(), row.actor_name, row.token_name, row.action, department, row.target]
        yield [*who, *versions, row.request_id, row.source]

"""The audit log: who changed what, with filters in the address, and all of it as CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.access import operator_of
from portal.models import AuditEntry, Department
from portal.web.audit_words import Reader
from portal.web.code_names import event_label
from portal.web.facets import facet, narrow
from portal.web.spreadsheets import download

PER_PAGE = 50
PATHS = {"action": "action", "actor": "actor_name", "department": "department__slug", "target": "target"}
COLUMNS = ("at", "actor", "token", "action", "department", "target", "before", "after", "request_id", "source")


@login_required
@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    operator_of(request)
    rows = AuditEntry.objects.select_related("department")
    page = Paginator(narrow(request, rows, PATHS), PER_PAGE).get_page(request.GET.get("page"))
    actions = {code: event_label(code) for code in rows.values_list("action", flat=True).order_by().distinct()}
    names = dict(Department.objects.values_list("slug", "name"))
    facets = [
        facet(request, rows, PATHS, "action", _("Action"), actions),
        facet(request, rows, PATHS, "actor", _("Who")),
        facet(request, rows, PATHS, "department", _("Department"), names),
    ]
    reader = Reader()
    context = {"page": page, "lines": [(entry, reader.changes(entry)) for entry in page], "facets": facets}
    return render(request, "portal/operator_audit.html", context)


@login_required
@require_safe
def export(request: HttpRequest) -> StreamingHttpResponse:
    """All rows that the page's filters select, newest first, as CSV that is streamed."""
    operator_of(request)
    rows = narrow(request, AuditEntry.objects.select_related("department"), PATHS)
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

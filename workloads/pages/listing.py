"""Workloads of a department, and of all for operators. Filters, order, columns and page are in the address."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST, require_safe

from portal.access import Actor, Right, actor_of, department_for, operator_of, visible
from portal.errors import Problem
from portal.models import Department
from portal.web.facets import facet, narrow
from portal.web.lists import Column, ListState
from portal.web.pages import render_part
from portal.web.spreadsheets import download
from quotas.models import Pool
from workloads import actions
from workloads.lifecycle import LIVE
from workloads.models import TEXTS, Kind, State, Workload
from workloads.pages.rows import Row, rows_of
from workloads.status.attempts import known_attempts, with_attempts

PAGE = 50
MOST_AT_ONCE = 200
PATHS = {"state": "state", "pool": "pool__slug", "kind": "kind", "author": "author__username"}
EVERYWHERE = {"department": "department__slug", **PATHS}
CSV_COLUMNS = (
    "id", "name", "kind", "state", "department", "pool", "unit", "units", "own", "borrowed", "author",
    "submitted_at", "finished_at", "attempts", "exit_code", "promised_at", "start_low", "start_median", "start_high",
)  # fmt: skip


def columns(*, departments: bool) -> list[Column]:
    every = [
        Column("name", _("Name"), ("name",), fixed=True),
        Column("department", _("Department"), ("department__name",)),
        Column("state", _("State"), ("state",)),
        Column("pool", _("Pool"), ("pool__name",)),
        Column("amount", _("Amount"), ("asked",), number=True),
        Column("share", _("Own / borrowed")),
        Column("start", _("Expected start")),
        Column("since", _("Since"), ("state_since",)),
        Column("submitted", _("Submitted"), ("submitted_at",), extra=True),
        Column("ended", _("Ended"), ("finished_at",), extra=True),
        Column("author", _("By"), ("author__username",)),
        Column("attempt", _("Attempt"), ("attempts_made",), number=True),
    ]
    return [each for each in every if departments or each.name != "department"]


@login_required
@require_safe
def listing(request: HttpRequest, department: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department)
    inside = dept.with_teams()
    everything = visible(actor, Workload.objects.filter(department__in=inside))
    state = ListState(request.GET, columns(departments=len(inside) > 1), newest="-public_id")
    context = {
        "department": dept,
        "may_submit": actor.may(Right.SUBMIT, dept),
        "some_unseen": not actor.seen.issuperset(inside),
        "several": reverse("workloads:several", args=[dept.slug]),
        "csv": reverse("workloads:csv", args=[dept.slug]),
    }
    return page_of(request, everything, state, PATHS, context)


@login_required
@require_safe
def everywhere(request: HttpRequest) -> HttpResponse:
    """The workloads of all departments, for operators."""
    operator_of(request)
    state = ListState(request.GET, columns(departments=True), newest="-public_id")
    context = {"several": reverse("workloads:several_everywhere"), "csv": reverse("workloads:csv_everywhere")}
    return page_of(request, Workload.objects.all(), state, EVERYWHERE, context)


def page_of(
    request: HttpRequest,
    everything: QuerySet[Workload],
    state: ListState,
    paths: dict[str, str],
    context: dict[str, Any],
) -> HttpResponse:
    matches = matching(everything, state)
    chosen = state.ordered(narrow(request, matches, paths)).defer(*TEXTS)
    page = Paginator(chosen, PAGE).get_page(request.GET.get("page"))
    rows = rows_of(cast(QuerySet[Workload], page.object_list))
    states = {value: str(label) for value, label in State.choices}
    pools, kinds = dict(Pool.objects.values_list("slug", "name")), {value: str(label) for value, label in Kind.choices}
    facets = [
        facet(request, matches, paths, "state", _("State"), states),
        facet(request, matches, paths, "pool", _("Pool"), pools),
        facet(request, matches, paths, "kind", _("Kind"), kinds),
        facet(request, matches, paths, "author", _("By")),
    ]
    if "department" in paths:
        names = dict(Department.objects.values_list("slug", "name"))
        facets.insert(0, facet(request, matches, paths, "department", _("Department"), names))
    context |= {
        "list": state,
        "page": page,
        "rows": rows,
        "stoppable": stoppable(actor_of(request), [row.workload for row in rows]),
        "any": everything.exists(),
        "narrowed": state.is_narrowed or any(request.GET.get(name) for name in paths),
        "facets": facets,
    }
    return render_part(request, "workloads/list.html", context, part="rows")


def matching(rows: QuerySet[Workload], state: ListState) -> QuerySet[Workload]:
    """Those with the searched words, of the asked days."""
    rows = state.within(rows.annotate(asked=F("pods") * F("units_per_pod")), "submitted_at")
    words = state.words
    return rows.filter(Q(name__icontains=words) | Q(public_id__startswith=words.lower())) if words else rows


@login_required
@require_safe
def csv(request: HttpRequest, department: str) -> StreamingHttpResponse:
    """All rows that the page's filters select, in its order."""
    actor = actor_of(request)
    dept = department_for(actor, department)
    rows = visible(actor, Workload.objects.filter(department__in=dept.with_teams()))
    return sheet(request, rows, PATHS, dept.slug)


@login_required
@require_safe
def csv_everywhere(request: HttpRequest) -> StreamingHttpResponse:
    operator_of(request)
    return sheet(request, Workload.objects.all(), EVERYWHERE, "all")


def sheet(request: HttpRequest, rows: QuerySet[Workload], paths: dict[str, str], where: str) -> StreamingHttpResponse:
    state = ListState(request.GET, columns(departments=True), newest="-public_id")
    chosen = state.ordered(narrow(request, matching(rows, state), paths)).defer(*TEXTS)
    return download(f"workloads-{where}-{timezone.now():%Y%m%d-%H%M%S}.csv", CSV_COLUMNS, cells(chosen))


def cells(rows: QuerySet[Workload]) -> Iterator[list[object]]:
    for workload in with_attempts(rows).iterator(chunk_size=500):
        attempts = known_attempts(workload)
        row = Row(workload, attempts[-1] if attempts else None)
        yield [
            workload.public_id, workload.name, workload.kind, workload.state, workload.department.slug, workload.pool.slug,
            workload.pool.unit, workload.units, row.own, row.borrowed, workload.author.username if workload.author else "",
            written(workload.submitted_at), written(workload.finished_at),
            workload.attempts_made, "" if workload.exit_code is None else workload.exit_code, written(row.promised_at),
            *(written(getattr(row.estimate, name, None)) for name in ("low", "median", "high")),
        ]  # fmt: skip


def written(moment: dt.datetime | None) -> str:
    return moment.isoformat() if moment else ""


def stoppable(actor: Actor, workloads: list[Workload]) -> set[int]:
    """Keys of the live workloads that the actor may stop and extend: own work, or for owners anybody's."""
    return {
        each.pk
        for each in workloads
        if each.state in LIVE
        and not each.cancel_requested_at
        and actor.may(actor.right_over(each.author), each.department)
    }


@login_required
@require_POST
def several(request: HttpRequest, department: str) -> HttpResponse:
    """Stops or extends the selected workloads; says how many, and why others were refused."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.SUBMIT)
    inside = visible(actor, Workload.objects.filter(department__in=dept.with_teams()))
    return change_several(request, actor, inside, reverse("workloads:list", args=[dept.slug]))


@login_required
@require_POST
def several_everywhere(request: HttpRequest) -> HttpResponse:
    return change_several(request, operator_of(request), Workload.objects.all(), reverse("workloads:everywhere"))


EXTENSIONS = {"extend-1h": 3600, "extend-8h": 8 * 3600}  # s


def change_several(request: HttpRequest, actor: Actor, rows: QuerySet[Workload], otherwise: str) -> HttpResponse:
    seconds = EXTENSIONS.get(request.POST.get("do", ""))
    chosen = rows.filter(public_id__in=request.POST.getlist("workload")[:MOST_AT_ONCE])
    done = 0
    for workload in chosen.select_related("department", "author", "pool").order_by("public_id"):
        try:
            if seconds:
                actions.extend(actor=actor, workload=workload, seconds=seconds)
            else:
                actions.cancel(actor=actor, workload=workload)
            done += 1
        except Problem as problem:
            messages.error(request, f"{workload.name}{_(': ')}{problem.detail}")
    if done:
        text = ngettext("%(n)s workload is stopping.", "%(n)s workloads are stopping.", done)
        if seconds:
            text = ngettext("%(n)s workload was extended.", "%(n)s workloads were extended.", done)
        messages.success(request, text % {"n": done})
    back = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}, require_https=request.is_secure()):
        return redirect(back)
    return redirect(otherwise)

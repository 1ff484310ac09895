"""The list of a department's workloads, and of all for operators. Filters, order, columns and page are in the address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext
from django.views.decorators.http import require_POST, require_safe

from portal.access import Actor, Right, actor_of, department_for, operator_of, visible
from portal.errors import Problem
from portal.web.facets import Filter, department_filter
from portal.web.lists import Column, ListState
from portal.web.pages import render_part
from quotas.models import Pool
from workloads import actions
from workloads.lifecycle import LIVE
from workloads.models import TEXTS, Kind, State, Workload
from workloads.pages.rows import Row, rows_of
from workloads.status.attempts import known_attempts, with_attempts

MOST_AT_ONCE = 200
CSV_COLUMNS = (
    "id", "name", "kind", "state", "department", "pool", "unit", "units", "own", "borrowed", "author",
    "submitted_at", "finished_at", "attempts", "exit_code", "promised_at", "start_low", "start_median", "start_high",
)  # fmt: skip


def list_of(request: HttpRequest, rows: QuerySet[Workload], *, departments: bool) -> ListState:
    """The list that the address requests; `departments`: the rows may belong to more than one department."""
    every = [
        Column("name", _("Name"), ("name",), fixed=True),
        Column("department", _("Department"), ("department__name",)),
        Column("state", _("State"), ("state",)),
        Column("pool", _("Pool"), ("pool__name",)),
        Column("amount", _("Amount"), ("asked",), number=True),
        Column("share", _("Own / borrowed")),
        Column("start", _("Expected start"), extra=departments),  # a hidden one is shown below the share
        Column(
            "since", _("Since"), ("state_since",), extra=True
        ),  # a hidden one is shown below the state of live workloads
        Column("submitted", pgettext("moment", "Submitted"), ("submitted_at",)),
        Column("ended", _("Ended"), ("finished_at",), extra=True, gaps=True),
        Column("author", _("By"), ("author__username",), gaps=True),
        Column("attempt", _("Attempt"), ("attempts_made",), number=True, extra=True),
    ]
    pools = dict(Pool.objects.values_list("slug", "name"))
    filters = [
        Filter("state", _("State"), "state", {value: str(label) for value, label in State.choices}),
        Filter("pool", _("Pool"), "pool__slug", pools),
        Filter("kind", _("Kind"), "kind", {value: str(label) for value, label in Kind.choices}),
        Filter("author", _("By"), "author__username"),
    ]
    return ListState(
        request.GET,
        [each for each in every if departments or each.name != "department"],
        searched=("name", "^public_id"),
        moment="submitted_at",
        filters=[department_filter(rows), *filters] if departments else filters,
        default=("-public_id",),
        shown_as="-submitted",
    )


@login_required
@require_safe
def listing(request: HttpRequest, department: str) -> HttpResponseBase:
    actor = actor_of(request)
    dept = department_for(actor, department)
    inside = dept.with_teams()
    everything = visible(actor, Workload.objects.filter(department__in=inside))
    context = {
        "department": dept,
        "may_submit": actor.may(Right.SUBMIT, dept),
        "some_unseen": not actor.seen.issuperset(inside),
        "several": reverse("workloads:several", args=[dept.slug]),
    }
    state = list_of(request, everything, departments=len(inside) > 1)
    return page_of(request, everything, state, dept.slug, context)


@login_required
@require_safe
def everywhere(request: HttpRequest) -> HttpResponseBase:
    """The workloads of all departments, for operators."""
    operator_of(request)
    everything = Workload.objects.all()
    context = {"several": reverse("workloads:several_everywhere")}
    return page_of(request, everything, list_of(request, everything, departments=True), "all", context)


def page_of(
    request: HttpRequest, everything: QuerySet[Workload], state: ListState, where: str, context: dict[str, Any]
) -> HttpResponseBase:
    everything = everything.annotate(asked=F("pods") * F("units_per_pod")).defer(*TEXTS)
    if state.is_sheet:
        return state.sheet(f"workloads-{where}", CSV_COLUMNS, cells(state.chosen(everything)))
    context |= state.context(everything)
    rows = rows_of(cast(QuerySet[Workload], context["page"].object_list))
    context |= {"rows": rows, "stoppable": stoppable(actor_of(request), [row.workload for row in rows])}
    return render_part(request, "workloads/list.html", context, part="rows")


def cells(rows: QuerySet[Workload]) -> Iterator[list[object]]:
    for workload in with_attempts(rows).iterator(chunk_size=500):
        attempts = known_attempts(workload)
        row = Row(workload, attempts[-1] if attempts else None)
        yield [
            workload.public_id, workload.name, workload.kind, workload.state, workload.department.slug, workload.pool.slug,
            workload.pool.unit, workload.units, row.own, row.borrowed, workload.author.username if workload.author else "",
            workload.submitted_at, workload.finished_at, workload.attempts_made, workload.exit_code, row.promised_at,
            *(getattr(row.estimate, name, None) for name in ("low", "median", "high")),
        ]  # fmt: skip


def stoppable(actor: Actor, workloads: list[Workload]) -> set[int]:
    """Primary keys of the live workloads that the actor may stop and extend: own ones, and for owners all."""
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
    """Stops or extends the selected workloads; reports how many, and why others were refused."""
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

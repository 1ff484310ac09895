"""A department's workloads. Filters and page are in the address."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST, require_safe

from portal.access import Actor, Right, actor_of, department_for, visible
from portal.errors import Problem
from portal.models import Department
from portal.web.facets import facet, narrow
from portal.web.pages import render_part
from quotas.models import Pool
from workloads import actions
from workloads.lifecycle import LIVE
from workloads.models import TEXTS, Kind, State, Workload
from workloads.pages.rows import rows_of

PAGE = 50
PATHS = {"state": "state", "pool": "pool__slug", "kind": "kind", "author": "author__username"}


@login_required
@require_safe
def listing(request: HttpRequest, department: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department)
    inside = dept.with_teams()
    everything = visible(actor, Workload.objects.filter(department__in=inside))
    matches = searched(request, everything)
    page = Paginator(narrow(request, matches, PATHS).defer(*TEXTS).order_by("-public_id"), PAGE).get_page(
        request.GET.get("page")
    )
    rows = rows_of(cast(QuerySet[Workload], page.object_list))
    states = {value: str(label) for value, label in State.choices}
    context = {
        "department": dept,
        "page": page,
        "rows": rows,
        "may_submit": actor.may(Right.SUBMIT, dept),
        "stoppable": stoppable(actor, dept, [row.workload for row in rows]),
        "any": everything.exists(),
        "some_unseen": not actor.seen.issuperset(inside),
        "narrowed": any(request.GET.get(name) for name in [*PATHS, "q"]),
        "facets": [
            facet(request, matches, PATHS, "state", _("State"), states),
            facet(request, matches, PATHS, "pool", _("Pool"), dict(Pool.objects.values_list("slug", "name"))),
            facet(request, matches, PATHS, "kind", _("Kind"), {value: str(label) for value, label in Kind.choices}),
            facet(request, matches, PATHS, "author", _("By")),
        ],
    }
    return render_part(request, "workloads/list.html", context, part="rows")


def searched(request: HttpRequest, rows: QuerySet[Workload]) -> QuerySet[Workload]:
    words = request.GET.get("q", "").strip()[:100]
    return rows.filter(Q(name__icontains=words) | Q(public_id__startswith=words.lower())) if words else rows


def stoppable(actor: Actor, department: Department, workloads: list[Workload]) -> set[int]:
    """Keys of the live workloads that the actor may stop: own work, or for owners anybody's."""
    steer = actor.may(Right.STEER, department)
    own = actor.may(Right.SUBMIT, department)
    return {
        each.pk
        for each in workloads
        if each.state in LIVE and not each.cancel_requested_at and (steer or (own and each.author == actor.user))
    }


@login_required
@require_POST
def stop_several(request: HttpRequest, department: str) -> HttpResponse:
    """Stops the selected workloads; says how many, and why others were refused."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.SUBMIT)
    chosen = request.POST.getlist("workload")[:200]
    stopped = 0
    inside = Workload.objects.filter(department__in=dept.with_teams(), public_id__in=chosen)
    for workload in visible(actor, inside).select_related("department", "author", "pool"):
        try:
            actions.cancel(actor=actor, workload=workload)
            stopped += 1
        except Problem as problem:
            messages.error(request, f"{workload.name}: {problem.detail}")
    if stopped:
        done = ngettext("%(n)s workload is stopping.", "%(n)s workloads are stopping.", stopped)
        messages.success(request, done % {"n": stopped})
    back = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}, require_https=request.is_secure()):
        return redirect(back)
    return redirect("workloads:list", dept.slug)

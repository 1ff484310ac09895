"""Recalling guaranteed units with a preview of the victims, and withdrawing a recall."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.access import NotVisible, Right, actor_of, department_for
from portal.errors import Problem
from portal.infra import confirm
from portal.models import Department
from portal.text.words import amount
from portal.web.forms import blame
from portal.web.once import once
from quotas.amounts import written
from quotas.board.usage import PoolUsage, department_usage
from quotas.forms.quotas import RecallForm
from quotas.models import Claim
from quotas.previews.recall import preview_recall
from quotas.rules import recalls


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def recall(request: HttpRequest, department: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    rows = promised(dept)
    form = RecallForm(request.POST or None, pools=[row.pool for row in rows], initial=_first(request, rows))
    if request.method == "POST" and form.is_valid():
        pool, units = form.cleaned_data["pool"], form.cleaned_data["units"]
        try:
            preview = preview_recall(actor=actor, department=dept, pool=pool, units=units)
            confirm.require(
                preview.breaks, request.POST.get(confirm.FIELD, ""), facts={"pool": pool.slug, "units": units},
                asks=_("Recall %(units)s of %(pool)s?") % {"units": amount(units, pool), "pool": pool.name},
                action=_("Recall"), also=[preview.sentence, *preview.lines],
            )  # fmt: skip
            recalls.create_recall(actor=actor, department=dept, pool=pool, units=units, until=form.until)
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(request, _("Recall of %(units)s started.") % {"units": amount(units, pool)})
            return redirect("quotas:department", dept.slug)
    context = {"department": dept, "form": form, "rows": rows}
    return render(request, "quotas/recall.html", context, status=422 if form.errors else 200)


@login_required
@require_safe
def recall_preview(request: HttpRequest, department: str) -> HttpResponse:
    """The panel beside the form: who would be recalled, and when the units are back."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    form = RecallForm(request.GET, pools=[row.pool for row in promised(dept)])
    context = {"department": dept, "form": form}
    if form.is_valid():
        pool, units = form.cleaned_data["pool"], form.cleaned_data["units"]
        context |= {"pool": pool, "units": units}
        try:
            preview = preview_recall(actor=actor, department=dept, pool=pool, units=units)
            mark = confirm.mark_of(preview.breaks, {"pool": pool.slug, "units": units})
            context |= {"preview": preview, "confirmed": mark, "form_id": "recall"}
        except Problem as problem:
            context["problem"] = problem
    return render(request, "quotas/preview.html", context)


@login_required
@require_POST
def withdraw(request: HttpRequest, department: str, recall: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    claim = Claim.objects.filter(department=dept, public_id=recall, pods=0).select_related("pool", "department").first()
    if claim is None:
        raise NotVisible
    recalls.withdraw_recall(actor=actor, claim=claim)
    messages.success(
        request, _("The recall was withdrawn; %(units)s released.") % {"units": amount(claim.units, claim.pool)}
    )
    return redirect("quotas:department", dept.slug)


def promised(department: Department) -> list[PoolUsage]:
    """Use of the pools in which the department itself has a guarantee."""
    return [row for row in department_usage(department) if row.quota is not None and row.quota.guaranteed]


def _first(request: HttpRequest, rows: list[PoolUsage]) -> dict[str, object]:
    """Initial values: the URL's pool, else the one in which most is lent; what is lent there, else one card."""
    if not rows:
        return {}
    wanted = [row for row in rows if row.pool.slug == request.GET.get("pool")]
    row = (wanted or sorted(rows, key=lambda row: -row.lent))[0]
    first = row.lent or min(row.pool.units_per_card, row.guaranteed)
    return {"pool": row.pool.slug, "units": written(first, row.pool), "hours": "24"}

"""A part of the members page: the cap of each user in each pool."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from portal.access import Actor, Right, actor_of, department_for
from portal.errors import Problem
from portal.infra import confirm, versions
from portal.models import Department
from portal.web import conflicts
from portal.web.forms import blame
from quotas.forms.quotas import CapForm
from quotas.models import Pool, UserCap
from quotas.previews.quota import preview_cap
from quotas.rules import quotas
from quotas.views.quotas import Rule, rule_of, rules_of


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def caps(request: HttpRequest, department: str) -> HttpResponse:
    """The part with all caps of a department."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER if request.method == "POST" else Right.SEE)
    return _caps(request, actor, dept, None)


@login_required
@require_POST
def set_cap(request: HttpRequest, department: str, pool: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    rule = rule_of(dept, pool)
    units = UserCap.objects.filter(department=dept, pool=rule.pool).values_list("units", flat=True).first()
    form = CapForm(request.POST, prefix=pool, pool=rule.pool, initial=_initial(units))
    if form.is_valid():
        try:
            versions.check({"units": units}, form.cleaned_data[versions.FIELD])
            foreseen = preview_cap(actor=actor, department=dept, pool=rule.pool, units=form.cleaned_data["units"])
            given = request.POST.get(confirm.FIELD, "")
            confirm.require(foreseen.breaks, given, action=_("Set anyway"))
            quotas.set_user_cap(actor=actor, department=dept, pool=rule.pool, **form.cleaned_data)
        except confirm.Unconfirmed as problem:
            form.asked = problem
        except Problem as problem:
            blame(form, problem)
    return _caps(request, actor, dept, (rule.pool, form))


def _initial(units: int | None) -> dict[str, Any]:
    return {"units": units, versions.FIELD: versions.mark({"units": units})}


def _asked(request: HttpRequest, rule: Rule) -> dict[str, str]:
    """Values of the URL with which to fill in the form."""
    name = f"{rule.pool.slug}-units"
    return {"units": request.GET[name]} if name in request.GET else {}


def _caps(
    request: HttpRequest, actor: Actor, department: Department, sent: tuple[Pool, CapForm] | None
) -> HttpResponse:
    units = dict(UserCap.objects.filter(department=department).values_list("pool_id", "units"))
    bad = sent if sent is not None and (sent[1].errors or sent[1].asked) else None
    rows = [
        (
            rule.pool,
            bad[1]
            if bad and bad[0] == rule.pool
            else CapForm(
                prefix=rule.pool.slug, pool=rule.pool, initial=_initial(units.get(rule.pool.pk)) | _asked(request, rule)
            ),
            units.get(rule.pool.pk),
        )
        for rule in rules_of(department)
        if rule.quota or rule.pool.pk in units
    ]
    context = {
        "department": department,
        "rows": rows,
        "saved": sent[0] if sent and not bad else None,
        "may_steer": actor.may(Right.STEER, department),
    }
    status = 200 if bad is None else 409 if bad[1].asked else conflicts.status_of(bad[1])
    return render(request, "quotas/caps.html", context, status=status)

"""Preemption policies: an overview, and a form for one of them beside a preview of its effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from portal.access import Actor, operator_of
from portal.errors import Problem
from portal.infra import confirm
from portal.infra.versions import check_fresh
from portal.models import Department
from portal.web import conflicts
from portal.web.forms import blame
from quotas.engine import types as e
from quotas.engine.snapshot_json import policy_from_json
from quotas.forms.policies import PolicyForm
from quotas.models import Pool, Quota
from quotas.previews.policy import preview_policy
from quotas.rules.policies import Scope, set_policy
from quotas.wording import policy_sentences


@dataclass(frozen=True, slots=True)
class Line:
    """One scope and its policy in words; empty: the policy of the next wider scope applies."""

    department: Department | None
    pool: Pool | None
    words: tuple[str, ...]

    @property
    def url(self) -> str:
        return url_of(Scope(self.department, self.pool))


def url_of(scope: Scope) -> str:
    match scope.department, scope.pool:
        case None, Pool() as pool:
            return reverse("quotas:pool_policy", args=[pool.slug])
        case Department() as department, Pool() as pool:
            return reverse("quotas:quota_policy", args=[department.slug, pool.slug])
        case department, _pool:
            return reverse("quotas:department_policy", args=[department.slug if department else ""])


@login_required
@require_safe
def policies(request: HttpRequest) -> HttpResponse:
    operator_of(request)
    quotas = Quota.objects.exclude(policy={}).select_related("department", "pool")
    context = {
        "default": policy_sentences(e.Policy()),
        "pools": [Line(None, pool, _words(pool)) for pool in Pool.objects.all()],
        "departments": [Line(row, None, _words(row)) for row in Department.objects.all()],
        "quotas": [Line(row.department, row.pool, _words(row)) for row in quotas],
    }
    return render(request, "quotas/policies.html", context)


def _words(row: Pool | Department | Quota) -> tuple[str, ...]:
    return policy_sentences(policy_from_json(row.policy)) if row.policy else ()


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def pool(request: HttpRequest, pool: str) -> HttpResponse:
    actor = operator_of(request)
    return _policy(request, actor, Scope(None, _pool(pool)))


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def department(request: HttpRequest, department: str) -> HttpResponse:
    actor = operator_of(request)
    return _policy(request, actor, Scope(get_object_or_404(Department, slug=department), None))


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def quota(request: HttpRequest, department: str, pool: str) -> HttpResponse:
    actor = operator_of(request)
    return _policy(request, actor, Scope(get_object_or_404(Department, slug=department), _pool(pool)))


def _pool(slug: str) -> Pool:
    return get_object_or_404(Pool.objects.select_related("group__cluster"), slug=slug)


def _policy(request: HttpRequest, actor: Actor, scope: Scope) -> HttpResponse:
    """The page of one scope; with `?preview=1` and the form's values, the panel beside it."""
    row = scope.carrier()
    present, source = scope.effective()
    initial = PolicyForm.initial_of(present, own=bool(row.policy), version=row.version)
    previewing = request.method != "POST" and "preview" in request.GET
    form = PolicyForm(request.POST or (request.GET if previewing else None), initial=initial)
    if previewing:
        return _preview(request, actor, scope, form)
    if request.method == "POST" and form.is_valid():
        version = form.cleaned_data["version"]
        try:
            check_fresh(row.version, version)
            confirm.require(
                preview_policy(actor=actor, scope=scope, policy=form.policy()).breaks,
                request.POST.get(confirm.FIELD, ""), asks=_("Set this policy?"), action=_("Set anyway"),
            )  # fmt: skip
            set_policy(actor=actor, scope=scope, policy=form.policy(), expected_version=version)
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(request, _("The policy was saved."))
            return redirect("quotas:policies")
    only = Pool.objects.filter(quotas__department=scope.department) if scope.department and not scope.pool else ()
    context = {"scope": scope, "form": form, "source": source, "present": policy_sentences(present), "pools": only}
    return render(request, "quotas/policy.html", context, status=conflicts.status_of(form))


def _preview(request: HttpRequest, actor: Actor, scope: Scope, form: PolicyForm) -> HttpResponse:
    context: dict[str, Any] = {"form": form}
    if form.is_valid():
        context["preview"] = preview_policy(actor=actor, scope=scope, policy=form.policy())
    return render(request, "quotas/preview.html", context)

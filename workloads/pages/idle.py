"""Idle policies: the form for a pool or a department, beside what it would have stopped last week; and exemptions."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.forms.boundfield import BoundField
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.access import Actor, NotVisible, Right, actor_of, department_for, operator_of
from portal.errors import Problem
from portal.infra.versions import check_fresh
from portal.models import Department
from portal.web import conflicts
from portal.web.forms import blame
from portal.web.once import once
from quotas.models import Pool
from workloads.idle import exemptions, policies
from workloads.idle.names import action_name, kinds_name, policy_sentences
from workloads.idle.rule import DEFAULT, LIMITS, Action, Rule, combined
from workloads.measurement.idle_week import last_week
from workloads.models import IdleExemption, Kind
from workloads.pages.idle_exemptions import ExemptionForm, effect_of, listed
from workloads.pages.rows import workload_for

UNSET = ""
KINDS = (Kind.NOTEBOOK, Kind.JOB, Kind.DISTRIBUTED, Kind.SERVICE)
NUMBERS = {
    "below": gettext_lazy("Idle below GPU activity of (%)"),
    "minutes": gettext_lazy("For so long (min)"),
    "countdown": gettext_lazy("Warning before the stop (min)"),
    "keep": gettext_lazy("“Keep it” gives (min)"),
}


class IdleForm(forms.Form):
    """A rule for each kind: fields named `<kind>_<field of the rule>`."""

    version = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for kind in KINDS:
            choices = [(UNSET, _("not set here")), *((each.value, action_name(each)) for each in Action)]
            self.fields[f"{kind}_action"] = forms.ChoiceField(label=_("When idle"), choices=choices, required=False)
            for name, label in NUMBERS.items():
                least, most = LIMITS[name]
                self.fields[f"{kind}_{name}"] = forms.IntegerField(
                    label=label, min_value=least, max_value=most, required=False
                )
            for name in ("action", *NUMBERS):  # a summary of errors names the kind, too
                field = self.fields[f"{kind}_{name}"]
                field.widget.attrs["aria-label"] = f"{kinds_name(kind.value)}{_(': ')}{field.label}"

    def clean(self) -> dict[str, Any]:
        for kind in KINDS:
            for name in NUMBERS if self.cleaned_data.get(f"{kind}_action") else ():
                field = f"{kind}_{name}"
                if field in self.cleaned_data and self.cleaned_data[field] is None:
                    self.add_error(field, _("Enter a number."))
        return self.cleaned_data

    def rules(self) -> dict[str, Rule]:
        """The rules of a valid form."""
        data = self.cleaned_data
        return {
            kind.value: Rule(
                action=Action(data[f"{kind}_action"]), **{name: data[f"{kind}_{name}"] for name in NUMBERS}
            )
            for kind in KINDS
            if data[f"{kind}_action"]
        }

    @staticmethod
    def initial_of(rules: policies.Rules, wider: policies.Rules, version: int) -> dict[str, Any]:
        """The rules that are set; for other kinds the numbers of the wider rule, so that choosing an action is enough."""
        values: dict[str, Any] = {"version": version}
        for kind in KINDS:
            rule = rules.get(kind.value)
            values[f"{kind}_action"] = rule.action.value if rule else UNSET
            values |= {f"{kind}_{name}": getattr(rule or wider.get(kind.value) or DEFAULT, name) for name in NUMBERS}
        return values

    def parts(self, wider: policies.Rules) -> list[Part]:
        return [
            Part(
                kinds_name(kind.value),
                self[f"{kind}_action"],
                [self[f"{kind}_{name}"] for name in NUMBERS],
                policy_sentences(kind.value, wider.get(kind.value)),
            )
            for kind in KINDS
        ]


@dataclass(frozen=True, slots=True)
class Part:
    """The fields of one kind, and the sentences of the rule that applies if they are left empty."""

    title: str
    action: BoundField
    numbers: list[BoundField]
    wider: list[str]


def _pool(slug: str) -> Pool:
    return get_object_or_404(Pool.objects.select_related("group__cluster"), slug=slug)


def _address(pool: Pool, department: Department | None) -> str:
    if department is None:
        return reverse("workloads:pool_idle_edit", args=[pool.slug])
    return reverse("workloads:department_idle", args=[department.slug, pool.slug])


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def pool_policy(request: HttpRequest, pool: str) -> HttpResponse:
    return _policy(request, operator_of(request), _pool(pool), None)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def department_policy(request: HttpRequest, department: str, pool: str) -> HttpResponse:
    actor = actor_of(request)
    return _policy(request, actor, _pool(pool), department_for(actor, department, Right.STEER))


def _policy(request: HttpRequest, actor: Actor, pool: Pool, department: Department | None) -> HttpResponse:
    """The page of one policy; with `?preview=1` and the form's values, only the panel beside the form."""
    row = policies.row_of(pool, department)
    wider = _wider(pool, department)
    initial = IdleForm.initial_of(policies.rules_of(row.rules), wider, row.version)
    previewing = request.method != "POST" and "preview" in request.GET
    form = IdleForm(request.POST or (request.GET if previewing else None), initial=initial)
    if previewing:
        return _preview(request, actor, pool, department, form)
    if request.method == "POST" and form.is_valid():
        try:
            check_fresh(row.version, form.cleaned_data["version"])
            policies.set_policy(
                actor=actor, pool=pool, department=department, rules=form.rules(),
                expected_version=form.cleaned_data["version"],
            )  # fmt: skip
        except Problem as problem:
            problem.field = problem.field.removeprefix("rules.").replace(".", "_")
            blame(form, problem)
        else:
            messages.success(request, _("The idle policy was saved."))
            return redirect(request.get_full_path())
    return _page(request, actor, pool, department, form, ExemptionForm(actor=actor, pool=pool, department=department))


def _page(
    request: HttpRequest,
    actor: Actor,
    pool: Pool,
    department: Department | None,
    form: IdleForm,
    exempt_form: ExemptionForm,
) -> HttpResponse:
    """The policy's form beside its preview, and the exemptions from it."""
    at_present, past = listed(actor, pool, department)
    context = {
        "pool": pool, "department": department, "form": form, "parts": form.parts(_wider(pool, department)),
        "here": _address(pool, department), "exempt_form": exempt_form, "exemptions": at_present, "past": past,
    }  # fmt: skip
    status = conflicts.status_of(form, exempt_form)
    return render(request, "workloads/idle_policy.html", context, status=status)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def pool_exempt(request: HttpRequest, pool: str) -> HttpResponse:
    return _exempt(request, operator_of(request), _pool(pool), None)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def department_exempt(request: HttpRequest, department: str, pool: str) -> HttpResponse:
    actor = actor_of(request)
    where = department_for(actor, department, Right.STEER)
    return _exempt(request, actor, _pool(pool), where)


def _exempt(request: HttpRequest, actor: Actor, pool: Pool, department: Department | None) -> HttpResponse:
    """POST exempts, and shows the policy's page again if that is refused; GET returns the panel with what would change."""
    form = ExemptionForm(request.POST or request.GET, actor=actor, pool=pool, department=department)
    if request.method != "POST":
        form.full_clean()
        wrong = [(bound.label, error) for bound in form if bound.data for error in bound.errors]
        effect = effect_of(pool, *form.covered()) if "what" in form.cleaned_data else None
        context = {"wrong": wrong, "effect": effect, "pool": pool}
        return render(request, "workloads/_exemption_preview.html", context)
    if form.is_valid():
        where, workload = form.covered()
        try:
            exemptions.exempt(
                actor=actor, department=where, workload=workload, why=form.cleaned_data["why"], until=form.end()
            )
        except Problem as problem:
            problem.field = "what" if problem.field == "workload" else problem.field
            blame(form, problem)
        else:
            name = workload.name if workload else where.name
            messages.success(request, _("%(name)s is exempt from the idle policy.") % {"name": name})
            return redirect(_address(pool, department))
    row = policies.row_of(pool, department)
    initial = IdleForm.initial_of(policies.rules_of(row.rules), _wider(pool, department), row.version)
    return _page(request, actor, pool, department, IdleForm(initial=initial), form)


def _wider(pool: Pool, department: Department | None) -> dict[str, Rule]:
    """Kind → the rule that applies to a department without its own policy."""
    if department is None:
        return {}
    every = policies.Policies()
    rules = {kind.value: every.wider(pool.pk, department.pk, kind.value) for kind in KINDS}
    return {kind: rule for kind, rule in rules.items() if rule is not None}


def _preview(
    request: HttpRequest, actor: Actor, pool: Pool, department: Department | None, form: IdleForm
) -> HttpResponse:
    context: dict[str, Any] = {"form": form, "pool": pool}
    if form.is_valid():
        try:
            policies.check_rules(pool, department, form.rules())
        except Problem as problem:
            form.add_error(None, problem.detail)
    if form.is_valid():
        rules = form.rules()
        wider = _wider(pool, department)
        both = {kind.value: [each[kind.value] for each in (rules, wider) if kind.value in each] for kind in KINDS}
        rules = {kind: rule for kind, of_kind in both.items() if (rule := combined(of_kind)) is not None}
        week = last_week(pool, department.with_teams() if department else None, rules, now=timezone.now())
        context |= {
            "week": week,
            "rows": [each for each in week.stops if each.attempt.workload.department_id in actor.seen][:20],
            "sentences": [text for kind in KINDS for text in policy_sentences(kind.value, rules.get(kind.value))],
        }
    return render(request, "workloads/_idle_preview.html", context)


@login_required
@require_safe
def pool_part(request: HttpRequest, pool: str) -> HttpResponse:
    """The part of the pool's page about idle work."""
    actor, row = actor_of(request), _pool(pool)
    rules = policies.Policies().own(row.pk, None)
    exempt = exemptions.Exempt.at(timezone.now())
    memberships = [each for each in exempt.tree.values() if each.pk in actor.roles]
    owned = [each for each in actor.owned if not actor.is_operator and row.quotas.filter(department=each).exists()]
    context = {
        "pool": row,
        "sentences": [text for kind in KINDS for text in policy_sentences(kind.value, rules.get(kind.value))],
        "operator": actor.is_operator,
        "owned": owned[:5],
        "exempt": [(each.name, until) for each in memberships if (until := exempt.of_department(each.pk)) is not None],
    }
    return render(request, "workloads/_pool_idle.html", context)


class ExemptForm(forms.Form):
    why = forms.CharField(
        label=gettext_lazy("Reason"), max_length=500, widget=forms.Textarea(attrs={"rows": 2}),
        help_text=gettext_lazy("Shown to everybody who can see the workload."),
    )  # fmt: skip
    days = forms.IntegerField(
        label=gettext_lazy("For how many days"), min_value=1, max_value=exemptions.LONGEST.days, initial=7
    )


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def exempt(request: HttpRequest, department: str, workload: str) -> HttpResponse:
    """The form that exempts one workload."""
    actor = actor_of(request)
    where, row = workload_for(actor, department, workload, Right.STEER)
    form = ExemptForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        until = timezone.now() + dt.timedelta(days=form.cleaned_data["days"])
        try:
            exemptions.exempt(
                actor=actor, department=where, workload=row, why=form.cleaned_data["why"], until=until
            )  # fmt: skip
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(request, _("%(name)s is exempt from the idle policy.") % {"name": row.name})
            return redirect("workloads:detail", where.slug, row.public_id)
    context = {"department": where, "workload": row, "form": form}
    return render(request, "workloads/idle_exempt.html", context, status=conflicts.status_of(form))


@login_required
@require_POST
def end_exemption(request: HttpRequest, department: str, exemption: str) -> HttpResponse:
    actor = actor_of(request)
    where = department_for(actor, department, Right.STEER)
    rows = IdleExemption.objects.filter(department=where, public_id=exemption).select_related("workload", "department")
    row = rows.first()
    if row is None:
        raise NotVisible
    try:
        exemptions.end(actor=actor, row=row)
    except exemptions.Ended as problem:
        messages.info(request, problem.detail)
    else:
        messages.success(request, _("The exemption has ended."))
    back = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}, require_https=request.is_secure()):
        return redirect(back)
    if row.workload is not None:
        return redirect("workloads:detail", where.slug, row.workload.public_id)
    return redirect("quotas:quotas", where.slug)

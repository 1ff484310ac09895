"""Budgets of GPU-hours: those of a department and its people, and bars for other pages."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.access import Actor, NotVisible, Right, actor_of, department_for
from portal.errors import Problem
from portal.infra import confirm
from portal.infra.versions import check_fresh
from portal.models import Department
from portal.text.numbers import natural
from portal.text.zones import zone_of
from portal.web import conflicts
from portal.web.forms import blame, only_missing
from portal.web.once import once
from quotas.budgets import actions
from quotas.budgets.actions import binding_budgets, budget_for, may_set, visible_budgets
from quotas.budgets.forms import BudgetForm, LimitsForm
from quotas.budgets.states import BudgetState, Stage, states_of
from quotas.models import Budget
from quotas.previews.budgets import preview_budget

SHOWN = 20
"""The most bars on another page: those with the largest used share."""


@login_required
@require_safe
def budgets(request: HttpRequest, department: str) -> HttpResponse:
    """All budgets that restrict the department's work and that the reader may see."""
    actor = actor_of(request)
    dept = department_for(actor, department)
    states = states_of(actor, binding_budgets(actor, dept))
    groups = [
        (_("Of the department"), [each for each in states if each.budget.person is None]),
        (_("Of people"), [each for each in states if each.budget.person is not None]),
    ]
    context = {
        "department": dept, "groups": [(title, rows) for title, rows in groups if rows], "zone": zone_of(""),
        "may_add": actor.may(Right.STEER, dept),
    }  # fmt: skip
    return render(request, "quotas/budgets.html", context)


@login_required
@require_safe
def bars(request: HttpRequest) -> HttpResponse:
    """A part of other pages. `department`: the budgets that restrict its work; `all`: all that the reader may see. With neither:
    the reader's own, and those of their departments that are nearly used up."""
    actor = actor_of(request)
    slug = request.GET.get("department", "")
    if slug:
        states = states_of(actor, binding_budgets(actor, department_for(actor, slug)))
    elif request.GET.get("all"):
        states = states_of(actor, visible_budgets(actor))
    else:
        concerning = Q(person=actor.user) | Q(person=None, department__in=list(actor.roles))
        states = [
            each for each in states_of(actor, visible_budgets(actor).filter(concerning)) if _concerns(actor, each)
        ]
    running = sorted((each for each in states if each.spent), key=lambda each: -each.share)
    context = {"states": running[:SHOWN], "left_out": max(0, len(running) - SHOWN), "zone": zone_of("")}
    return render(request, "quotas/_budget_bars.html", context)


def _concerns(actor: Actor, state: BudgetState) -> bool:
    return state.budget.person == actor.user or state.stage in (Stage.NEAR, Stage.USED_UP)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def new(request: HttpRequest, department: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    form = _new_form(actor, dept, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        asked: dict[str, Any] = {
            "actor": actor, "department": dept, "person": form.cleaned_data["person"], "pool": form.cleaned_data["pool"],
            "limits": form.limits(),
        }  # fmt: skip
        try:
            actions.check_new(**asked)
            _confirm(request, actor, dept, form.budget(dept), None)
            actions.create_budget(**asked)
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(request, _("The budget was set."))
            return redirect("quotas:budgets", dept.slug)
    return _page(request, dept, form, None)


def _new_form(actor: Actor, department: Department, data: Any) -> BudgetForm:
    return BudgetForm(data, department=department, whole=may_set(actor, department, None))


@login_required
@require_safe
def preview(request: HttpRequest, department: str) -> HttpResponse:
    """The panel beside the form of a new budget: which claims it would keep waiting now."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    form = _new_form(actor, dept, request.GET)
    context: dict[str, Any] = {"form": form, "missing": form.errors and only_missing(form)}
    if form.is_valid():
        try:
            actions.check_new(
                actor=actor, department=dept, person=form.cleaned_data["person"], pool=form.cleaned_data["pool"],
                limits=form.limits(),
            )  # fmt: skip
            budget = form.budget(dept)
            context["preview"] = preview_budget(actor=actor, department=dept, budget=budget, instead_of=None)
        except Problem as problem:
            context["problem"] = problem
    return render(request, "quotas/preview.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HttpRequest, department: str, budget: str) -> HttpResponse:
    actor, dept, row = _budget(request, department, budget)
    form = LimitsForm.of(row, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        version = form.cleaned_data["version"]
        try:
            check_fresh(row.version, version)
            actions.check_changed(row, form.limits())
            _confirm(request, actor, dept, form.limits().instead_of(row), row)
            actions.change_budget(actor=actor, budget=row, limits=form.limits(), expected_version=version)
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(request, _("The budget was saved."))
            return redirect("quotas:budgets", dept.slug)
    return _page(request, dept, form, row)


@login_required
@require_safe
def edit_preview(request: HttpRequest, department: str, budget: str) -> HttpResponse:
    actor, dept, row = _budget(request, department, budget)
    form = LimitsForm.of(row, request.GET)
    context: dict[str, Any] = {"form": form, "missing": form.errors and only_missing(form)}
    if form.is_valid():
        try:
            actions.check_changed(row, form.limits())
            changed = form.limits().instead_of(row)
            context["preview"] = preview_budget(actor=actor, department=dept, budget=changed, instead_of=row)
        except Problem as problem:
            context["problem"] = problem
    return render(request, "quotas/preview.html", context)


@login_required
@require_POST
def remove(request: HttpRequest, department: str, budget: str) -> HttpResponse:
    actor, dept, row = _budget(request, department, budget)
    version = natural(request.POST.get("version", ""))
    check_fresh(row.version, version)
    _confirm(request, actor, dept, None, row)
    actions.remove_budget(actor=actor, budget=row, expected_version=version)
    messages.success(request, _("The budget was removed."))
    return redirect("quotas:budgets", dept.slug)


def _budget(request: HttpRequest, department: str, budget: str) -> tuple[Actor, Department, Budget]:
    """A budget of this department that the reader may set. Raises NotVisible, Forbidden."""
    actor = actor_of(request)
    dept = department_for(actor, department)
    row = budget_for(actor, budget)
    if row.department_id != dept.pk:
        raise NotVisible
    actions.require_setter(actor, dept, row.person)
    return actor, dept, row


def _confirm(
    request: HttpRequest, actor: Actor, department: Department, budget: Budget | None, instead_of: Budget | None
) -> None:
    foreseen = preview_budget(actor=actor, department=department, budget=budget, instead_of=instead_of)
    if budget is None:
        asks, action = _("Remove this budget of %(who)s?"), _("Remove anyway")
    elif instead_of is None:
        asks, action = _("Set this budget for %(who)s?"), _("Set anyway")
    else:
        asks, action = _("Change the budget of %(who)s?"), _("Change anyway")
    concerned = budget or instead_of
    person = concerned.person if concerned else None
    who = person.label if person else department.name
    confirm.require(foreseen.breaks, request.POST.get(confirm.FIELD, ""), asks=asks % {"who": who}, action=action)


def _page(request: HttpRequest, department: Department, form: LimitsForm, row: Budget | None) -> HttpResponse:
    state = states_of(actor_of(request), [row])[0] if row is not None else None
    context = {"department": department, "form": form, "row": row, "state": state, "zone": zone_of("")}
    return render(request, "quotas/budget_edit.html", context, status=conflicts.status_of(form))

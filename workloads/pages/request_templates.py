"""Pages of request templates: saving one beside the form, the list, renaming and deleting."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from portal.access import Forbidden, NotVisible, Right, actor_of, department_for
from portal.errors import Problem
from portal.names import NameInput
from portal.web import conflicts
from portal.web.forms import blame
from portal.web.once import once
from quotas.engine.mig_profiles import profile_of
from quotas.models import Pool
from workloads.models import RequestTemplate
from workloads.requests import request_templates as templates
from workloads.requests.as_api_call import as_json
from workloads.requests.form import WorkloadForm
from workloads.requests.request_templates import LONGEST


@dataclass(frozen=True, slots=True)
class TemplateCard:
    """A template as the card that also shows presets. `pool` is None if the template's pool does not exist any more."""

    template: RequestTemplate
    kind: str
    pool: Pool | None
    pods: int
    units_per_pod: int
    profile: str
    max_runtime: int | None


def cards_of(rows: Iterable[RequestTemplate]) -> list[TemplateCard]:
    rows = list(rows)
    pools = (
        {pool.slug: pool for pool in Pool.objects.filter(slug__in={row.body["pool"] for row in rows})} if rows else {}
    )
    return [_card(row, pools.get(row.body["pool"])) for row in rows]


def _card(row: RequestTemplate, pool: Pool | None) -> TemplateCard:
    body, profile = row.body, row.body.get("profile", "")
    instance = profile_of(pool.mig, profile) if pool is not None and pool.mig and profile else None
    units = instance.size if instance else body.get("units_per_pod", 0)
    return TemplateCard(row, body["kind"], pool, body.get("pods", 1), units, profile, body.get("max_runtime"))


class TemplateNameForm(forms.Form):
    template_title = NameInput(label=gettext_lazy("Name"), max_length=LONGEST)
    seen = conflicts.SeenField()


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def request_templates(request: HttpRequest, department: str) -> HttpResponse:
    """Lists the templates. POST saves the request form's content as a new one and returns the content of the dialog."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.SUBMIT)
    if request.method == "POST":
        return _save(request, department)
    rows = templates.templates_of(actor, dept)
    context = {"department": dept, "cards": cards_of(rows), "may_share": actor.may(Right.STEER, dept)}
    return render(request, "workloads/request_templates.html", context)


def _save(request: HttpRequest, department: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department, Right.SUBMIT)
    naming, filled = TemplateNameForm(request.POST), request.POST.copy()
    shared = bool(filled.get("template_shared"))
    if not filled.get("name", "").strip():  # a template may be kept before its workloads have a name
        filled["name"] = filled.get("template_title", "")
    form, saved = WorkloadForm(filled, actor=actor, department=dept), None
    form.submitting = False
    if naming.is_valid() & form.is_valid():
        name = naming.cleaned_data["template_title"]
        try:
            saved = templates.save_template(
                actor=actor, department=dept, name=name, request=form.asked(), shared=shared
            )
        except (Forbidden, NotVisible):
            raise
        except Problem as problem:
            _blame(naming, form, problem)
    if saved and not request.htmx:  # type: ignore[attr-defined]  # a form without scripts
        return redirect("workloads:templates", dept.slug)
    context = {
        "department": dept, "naming": naming, "form": form, "saved": saved, "shared": shared,
        "may_share": actor.may(Right.STEER, dept),
    }  # fmt: skip
    return render(request, "workloads/_save_template.html", context, status=200 if saved else 422)


def _blame(naming: TemplateNameForm, form: WorkloadForm, problem: Problem) -> None:
    """Adds an error about the template's name to its field, any other to the request form."""
    if isinstance(problem, templates.NameTaken | templates.TooMany):
        naming.add_error("template_title", problem.detail)
    else:
        form.blame(problem)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def request_template(request: HttpRequest, department: str, template: str) -> HttpResponse:
    """Shows one template; POST renames it."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.SUBMIT)
    row = templates.template_for(actor, dept, template)
    if request.method == "POST":
        templates.require_change(actor, row)  # before the name is validated
    form = TemplateNameForm(request.POST or None, initial={"template_title": row.name, "seen": templates.mark_of(row)})
    if request.method == "POST" and form.is_valid():
        try:
            name, seen = form.cleaned_data["template_title"], form.cleaned_data["seen"]
            templates.rename_template(actor=actor, template=row, name=name, seen=seen)
        except (Forbidden, NotVisible):
            raise
        except Problem as problem:
            row.refresh_from_db()
            form.initial["template_title"] = row.name
            problem.field = "template_title" if problem.field == "name" else problem.field
            blame(form, problem)
        else:
            messages.success(request, _("%(name)s was saved.") % {"name": row.name})
            return redirect("workloads:templates", dept.slug)
    [card] = cards_of([row])
    context: dict[str, Any] = {
        "department": dept, "card": card, "form": form, "may_change": templates.may_change(actor, row),
        "body": as_json(row.body),
    }  # fmt: skip
    return render(request, "workloads/request_template.html", context, status=conflicts.status_of(form))


@login_required
@require_POST
def delete_request_template(request: HttpRequest, department: str, template: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department, Right.SUBMIT)
    row = templates.template_for(actor, dept, template)
    templates.delete_template(actor=actor, template=row)
    messages.success(request, _("%(name)s was deleted.") % {"name": row.name})
    return redirect("workloads:templates", dept.slug)

"""Requesting a workload: presets, form, and the preview beside it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from portal.access import Actor, Forbidden, NotVisible, Right, actor_of, department_for
from portal.errors import Problem
from portal.models import Department
from portal.templatetags.portal import subwidgets
from portal.text.numbers import natural
from portal.web.once import once
from quotas.models import Node
from workloads import actions
from workloads.estimates.ask import BEING_MADE, start_of
from workloads.estimates.words import in_a_list, start_lines
from workloads.models import ASKED_HERE, Kind, Preset, RequestTemplate, Workload
from workloads.pages.files import store_all
from workloads.pages.folds import settings_inside, to_open
from workloads.pages.request_templates import cards_of
from workloads.requests import as_api_call, previews
from workloads.requests.form import WorkloadForm, first_values, pools_of, secret_names
from workloads.requests.kinds import SHARED_VOLUMES
from workloads.requests.kinds import offers as offers_volume
from workloads.requests.offered_amounts import offered_amounts
from workloads.requests.remedies import remedy_for
from workloads.requests.request import WorkloadRequest
from workloads.requests.request_templates import templates_of
from workloads.requests.validation import WITH_COMMAND
from workloads.requests.verdict import Step, verdict_of
from workloads.requests.what_you_get import offer_of, offers

PREFILLED = (
    "name", "kind", "pods", "template", "pool", "units_per_pod", "cores_per_pod", "profile", "image", "command", "own_only",
)  # fmt: skip


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def new(request: HttpRequest, department: str) -> HttpResponse:
    """`?template=`, `?preset=`, `?from=` (a workload to repeat) and single fields fill the form."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.SUBMIT)
    if request.method == "POST":
        form = WorkloadForm(request.POST, actor=actor, department=dept)
        if request.POST.get("check"):  # without scripts, a button requests the panel
            form.submitting = False
            return page(request, dept, form, **answer(actor, dept, form))
        workload = submitted(request, actor, dept, form)
        if workload is not None:
            return redirect("workloads:detail", dept.slug, workload.public_id)
        return page(request, dept, form, status=422)
    preset = Preset.objects.filter(active=True, slug=request.GET.get("preset", "")).first()
    origin = Workload.objects.filter(
        department=dept, kind__in=ASKED_HERE, public_id=request.GET.get("from", "")
    ).first()
    query = {name: request.GET[name] for name in PREFILLED if name in request.GET}
    if origin is not None and origin.secret_env:
        names = ", ".join(secret_names(origin)) or _("their names can no longer be read")
        messages.info(request, _("Secret values are not copied: enter them again (%(names)s).") % {"names": names})
    template = templates_of(actor, dept).filter(public_id=request.GET.get("template", "")).first()
    initial = first_values(preset, origin, pools_of(dept), query, template)
    form = WorkloadForm(initial=initial, actor=actor, department=dept)
    return page(request, dept, form, template=template, lacking=lacking_of(template, form))


def lacking_of(template: RequestTemplate | None, form: WorkloadForm) -> list[str]:
    """Labels of the template's values that are no longer offered, so that the form begins with other ones."""
    if template is None:
        return []
    return [str(form.fields[name].label) for name in ("pool", "image") if form[name].value() != template.body[name]]


def page(
    request: HttpRequest, department: Department, form: WorkloadForm, status: int = 200, **more: Any
) -> HttpResponse:
    actor = actor_of(request)
    pools = list(pools_of(department))
    chosen = next((pool for pool in pools if pool.slug == form["pool"].value()), None)
    context = {
        "steps": [Step(each) for each in offered_amounts(chosen)] if chosen else [],
        **more,
        "checked": "verdict" in more,
        "department": department,
        "form": form,
        "pools": pools,
        "offers": offers(pools),
        "presets": presets_of(department),
        "chosen": form["preset"].value() if not more.get("template") else "",
        "templates": cards_of(templates_of(actor, department)),
        "may_share": actor.may(Right.STEER, department),
        "inside": settings_inside(form),
        "kinds": subwidgets(form["kind"], "form-selectgroup-input"),
        "lost_files": [file.name for file in request.FILES.getlist("files")],
        "offers_rdma": any(pool.group.cluster.options.get("rdma_resource") for pool in pools),
        "offers_volumes": [
            name for name in SHARED_VOLUMES if any(offers_volume(pool.group.cluster, name) for pool in pools)
        ],
        "open": to_open(form),
    }
    return render(request, "workloads/new.html", context, status=status)


def presets_of(department: Department) -> QuerySet[Preset]:
    """The active presets of pools that the department may use."""
    return Preset.objects.filter(active=True, pool__in=pools_of(department)).select_related("pool", "image")


def submitted(request: HttpRequest, actor: Actor, department: Department, form: WorkloadForm) -> Workload | None:
    """Submits a valid form: the new workload, or None with the errors in the form. Raises Forbidden, NotVisible."""
    if not form.is_valid():
        form.check_all()
        return None
    try:
        workload = actions.submit(
            actor=actor, department=department, request=form.asked(), before=lambda row: keep_files(request, row)
        )
    except (Forbidden, NotVisible):
        raise
    except Problem as problem:
        form.blame(problem)
    else:
        return workload
    return None


def keep_files(request: HttpRequest, workload: Workload) -> None:
    """Stores the form's files in the working directory before anything can start."""
    if request.FILES:
        store_all(request, workload, "")


LATER = {"name": "unnamed", "command": "true"}  # fields without effect on quota may still be empty; their placeholders


@login_required
@require_POST
def verdict(request: HttpRequest, department: str) -> HttpResponse:
    """The panel for the form's present content. An incomplete form is no error: the panel lists what is missing."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.SUBMIT)
    filled = request.POST.copy()
    missing = [name for name in LATER if not filled.get(name, "").strip()]
    filled.update({name: LATER[name] for name in missing})
    form = WorkloadForm(filled, actor=actor, department=dept)
    form.submitting = False
    context = {"department": dept, "form": form, "panel": True, **answer(actor, dept, form)}
    context["inside"] = settings_inside(form)
    if filled.get("kind") in set(Kind.values) - WITH_COMMAND:
        missing = [name for name in missing if name != "command"]
    if not all(form.cleaned_data.get("secret_env", {"": "-"}).values()):
        missing.append("secret_env")
    if missing:  # the request cannot be submitted yet
        context |= {"missing": [form.fields[name].label for name in missing], "preview": None, "json": None}
    return render(request, "workloads/verdict.html", context)


def answer(actor: Actor, department: Department, form: WorkloadForm) -> dict[str, Any]:
    """The panel's context for this form."""
    context: dict[str, Any] = {"verdict": None}
    if form.is_valid():
        asked = form.asked()
        try:
            amounts = offered_amounts(asked.pool, asked)
            verdict = verdict_of(actor=actor, department=department, request=asked, amounts=amounts)
            estimate = start_of(actor, department, asked, verdict)
            context |= {"verdict": verdict, "steps": verdict.steps, "start": start_lines(estimate) if estimate else []}
            context["expected"] = in_a_list(estimate) if estimate and estimate.low else ""
            context["ask_again"] = estimate is not None and estimate.why == BEING_MADE
        except (Forbidden, NotVisible):
            raise
        except Problem as problem:
            form.blame(problem)
        context["too_old"] = nodes_too_old(asked)
        context["given"] = offer_of(asked)
        if not form.errors:
            context["preview"] = previews.preview_of(asked, department.slug)
        body, verdict = as_api_call.body_of(asked), context["verdict"]
        context |= {
            "json": as_api_call.as_json(body),
            "yaml": as_api_call.as_yaml(body),
            "curl": as_api_call.as_curl(department.slug, body),
            "asked": asked,
            "units": asked.pods * asked.units_per_pod,
            "remedy": remedy_for({reason.code for reason in verdict.facts.reasons}) if verdict else None,
        }
    return context


DRIVER_LABELS = (
    "nvidia.com/cuda.driver-version.major",
    "nvidia.com/cuda.driver.major",
)  # new and old GPU feature discovery


def nodes_too_old(asked: WorkloadRequest) -> list[tuple[str, int]]:
    """(node, driver version) of the pool's nodes whose driver is older than the image requires. Unknown versions are left out."""
    if asked.image.min_driver is None:
        return []
    nodes = Node.objects.filter(cards__pool=asked.pool, present=True).distinct().values_list("name", "labels")
    drivers = [(name, next((labels[key] for key in DRIVER_LABELS if key in labels), "")) for name, labels in nodes]
    versions = [(name, natural(text)) for name, text in drivers]
    return [(name, driver) for name, driver in versions if driver is not None and driver < asked.image.min_driver]

"""The buttons of a workload's page: each carries out one action and returns to the page."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.text import slugify
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from portal.access import Actor, Forbidden, NotVisible, Right, actor_of
from portal.errors import Problem
from portal.infra import versions
from portal.text.words import duration
from portal.web.once import once
from quotas.forms.durations import SECONDS, parts_of
from quotas.wording import clock_of
from workloads import actions
from workloads.idle import spells
from workloads.models import Workload
from workloads.pages.rows import ends_at, workload_for
from workloads.requests import previews

View = Callable[..., HttpResponse]


def button(done: Callable[[Actor, Workload, HttpRequest], tuple[Workload, str]]) -> View:
    """Wraps an action: POST only; refusals are shown as messages on the page the person came from."""

    @login_required
    @require_POST
    @once
    def view(request: HttpRequest, department: str, workload: str) -> HttpResponse:
        actor = actor_of(request)
        _department, row = workload_for(actor, department, workload, Right.SUBMIT)
        try:
            row, text = done(actor, row, request)
            messages.success(request, text)
        except (Forbidden, NotVisible, versions.Conflict):
            raise
        except Problem as problem:
            messages.error(request, problem.detail)
        return redirect("workloads:detail", row.department.slug, row.public_id)

    return view


@button
def stop(actor: Actor, workload: Workload, request: HttpRequest) -> tuple[Workload, str]:
    return actions.cancel(actor=actor, workload=workload), _("%(name)s is stopping.") % {"name": workload.name}


@button
def rerun(actor: Actor, workload: Workload, request: HttpRequest) -> tuple[Workload, str]:
    """Submits it again and shows the new workload."""
    return actions.rerun(actor=actor, workload=workload), _("Submitted again.")


@button
def extend(actor: Actor, workload: Workload, request: HttpRequest) -> tuple[Workload, str]:
    try:
        seconds = parts_of(request.POST.get("by", ""), SECONDS)
    except ValueError:
        seconds = 0
    row = actions.extend(actor=actor, workload=workload, seconds=seconds)
    end = ends_at(row, row.attempts.order_by("number").last())
    if end is None:  # it is not running: only the length is known
        return row, _("Maximum runtime extended to %(time)s.") % {"time": duration(row.max_runtime)}
    return row, _("Extended to %(end)s.") % {"end": clock_of(end)}


@button
def keep(actor: Actor, workload: Workload, request: HttpRequest) -> tuple[Workload, str]:
    until = spells.keep(actor=actor, workload=workload)
    text = _("Kept until %(until)s. If it is still idle then, it is stopped.")
    return workload, text % {"until": clock_of(until)}


@button
def leave(actor: Actor, workload: Workload, request: HttpRequest) -> tuple[Workload, str]:
    row = actions.leave_now(actor=actor, workload=workload)
    return row, _("Thank you. The capacity is being released, and the workload is queued again with the same ID.")


@button
def share(actor: Actor, workload: Workload, request: HttpRequest) -> tuple[Workload, str]:
    shared = request.POST.get("shared") == "1"
    row = actions.set_shared(actor=actor, workload=workload, shared=shared, seen=request.POST.get(versions.FIELD, ""))
    return row, _("Other members of the department can open it now.") if shared else _("Only you can open it now.")


@login_required
@require_safe
def export(request: HttpRequest, department: str, workload: str, kind: str) -> HttpResponse:
    """The manifest for a cluster that runs another operator, as a file."""
    _department, row = workload_for(actor_of(request), department, workload)
    text = previews.export_of(actions.request_of(row), kind)
    name = f"{slugify(row.name) or row.public_id}-{kind.lower()}.yaml"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text, content_type="application/yaml", headers=headers)

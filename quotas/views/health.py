"""The health of a node: quarantines in force with the claims that have to leave, the form for a new one, and the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.access import operator_of
from portal.errors import Problem
from portal.infra import confirm, versions
from portal.web import conflicts
from portal.web.forms import blame
from portal.web.once import once
from quotas.health import quarantines
from quotas.health.forms import QuarantineForm
from quotas.health.previews import preview_quarantine
from quotas.health.signs import AWAY
from quotas.models import Claim, Node, Quarantine

ON_A_PAGE = 50


@dataclass(frozen=True, slots=True)
class InForce:
    """A quarantine in force, with the claims still there: those that have to leave, and those whose author was informed."""

    row: Quarantine
    leaving: list[Claim]
    informed: list[Claim]


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def health(request: HttpRequest, node: int) -> HttpResponse:
    """The page; POST begins a quarantine, once its consequences are confirmed."""
    actor = operator_of(request)
    row = get_object_or_404(Node.objects.select_related("cluster"), pk=node)
    form = QuarantineForm(request.POST or None, node=row)
    seen, present = request.POST.get(versions.FIELD, ""), quarantines.in_force(row)
    if request.method == "POST" and seen not in ("", versions.mark(present)):
        blame(form, versions.Conflict(present))  # reported before errors of fields: the form is outdated
    elif request.method == "POST" and form.is_valid():
        asked = {"node": row, "card": form.cleaned_data["card"], "why": form.cleaned_data["why"]}
        try:
            quarantines.check(**asked, until=form.until)
            place = quarantines.place(row, asked["card"])
            foreseen = preview_quarantine(actor=actor, node=row, card=asked["card"])
            confirm.require(
                foreseen.breaks, request.POST.get(confirm.FIELD, ""), facts=place, action=_("Quarantine"),
                asks=_("Quarantine %(place)s?") % {"place": place}, also=[foreseen.sentence, *foreseen.lines],
            )  # fmt: skip
            quarantines.quarantine(actor=actor, **asked, until=form.until, seen=seen)
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(request, _("%(place)s is quarantined.") % {"place": place})
            return redirect("quotas:node_health", row.pk)
    past = row.quarantines.exclude(ended_at=None).select_related("node", "began_by", "ended_by")
    context: dict[str, Any] = {
        "node": row,
        "form": form,
        "seen": versions.mark(present),
        "in_force": [_in_force(each) for each in quarantines.of_nodes([row]).get(row.pk, [])],
        "away": AWAY,
        "unhealthy": row.cards.filter(healthy=False),
        "history": Paginator(past, ON_A_PAGE).get_page(request.GET.get("page")),
    }
    return render(request, "quotas/node_health.html", context, status=conflicts.status_of(form))


def _in_force(row: Quarantine) -> InForce:
    claims = quarantines.still_there(row)
    leaving = [claim for claim in claims if row.deadlines[claim.public_id]]
    return InForce(row, leaving, [claim for claim in claims if not row.deadlines[claim.public_id]])


@login_required
@require_safe
def preview(request: HttpRequest, node: int) -> HttpResponse:
    """The panel beside the form."""
    actor = operator_of(request)
    row = get_object_or_404(Node.objects.select_related("cluster"), pk=node)
    form = QuarantineForm(request.GET, node=row)
    del form.fields["why"]  # the preview does not depend on the reason
    context: dict[str, Any] = {"form": form}
    if form.is_valid():
        card = form.cleaned_data["card"]
        foreseen = preview_quarantine(actor=actor, node=row, card=card)
        mark = confirm.mark_of(foreseen.breaks, quarantines.place(row, card))
        context |= {"preview": foreseen, "confirmed": mark, "form_id": "quarantine"}
    return render(request, "quotas/preview.html", context)


@login_required
@require_POST
def end(request: HttpRequest, node: int, quarantine: str) -> HttpResponse:
    """Puts the place back into service."""
    actor = operator_of(request)
    row = get_object_or_404(Quarantine.objects.select_related("node"), node=node, public_id=quarantine)
    quarantines.put_back(actor=actor, row=row)
    messages.success(request, _("The quarantine of %(place)s has ended.") % {"place": row.place})
    return redirect("quotas:node_health", node)

"""The home page: the reader's workloads that run, wait or are being recalled. The parts with workloads and pools are in their
apps."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.access import actor_of
from portal.models import Membership, Role


@login_required
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """The home page; for somebody without a department it lists quota owners to ask."""
    actor = actor_of(request)
    context = {
        "departments": actor.departments_seen,
        "submit": next(iter(actor.submits_in), None),
        "contacts": _contacts() if not actor.departments_seen else [],
    }
    return render(request, "portal/home.html", context)


def _contacts() -> list[Membership]:
    """Quota owners, who can invite, by department."""
    rows = Membership.objects.filter(role=Role.OWNER, user__is_active=True, user__service_of=None)
    return list(rows.select_related("user", "department").order_by("department__name", "user__username")[:20])

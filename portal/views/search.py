"""The Ctrl-K search for departments and actions. Workloads and pools are searched by workloads.pages.home."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.access import actor_of
from portal.web.navigation import Shell, address, visible_departments


@dataclass(frozen=True)
class Found:
    label: str
    url: str
    icon: str
    note: str = ""


@login_required
@require_safe
def search(request: HttpRequest) -> HttpResponse:
    words = request.GET.get("q", "").strip()[:100]
    shell = Shell(request)
    actions = [Found(place.label, place.url, place.icon) for place in shell.places] + [
        Found(_("Profile"), reverse("portal:profile"), "user"),
        Found(_("API tokens"), address("portal:tokens", {}), "key"),
    ]
    matches = [each for each in actions if each.url and words.casefold() in each.label.casefold()]
    departments = [
        Found(each.name, url, "building", each.slug)
        for each in visible_departments(actor_of(request), words)[:8]
        if words and (url := address("quotas:department", {"department": each.slug}))
    ]
    return render(request, "portal/search.html", {"actions": matches, "departments": departments})

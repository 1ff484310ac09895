"""Asking again before something that is hard to take back: a page that says what it brings with it, and sends the same
form once more with the mark of what was read. Whoever confirms something that has changed meanwhile is asked anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from portal.infra import versions
from portal.web.pages import back_here

FIELD = "confirmed"


def mark_of(facts: Any) -> str:
    """What a form sends whose page has said all of it already."""
    return versions.mark({"facts": facts})


def unless_confirmed(
    request: HttpRequest, *, title: str, consequences: Sequence[str], action: str, facts: Any
) -> HttpResponse | None:
    """The page that asks; None when this very thing was confirmed. `facts` are what the consequences rest on, as JSON may
    say them: in any language they give the same mark."""
    mark = mark_of(facts)
    if request.POST.get(FIELD) == mark:
        return None
    again = [
        (name, value)
        for name, values in request.POST.lists()
        if name not in (FIELD, "csrfmiddlewaretoken")
        for value in values
    ]
    context = {
        "title": title,
        "consequences": consequences,
        "action": action,
        "again": again,
        "mark": mark,
        "cancel": back_here(request),
        "changed": FIELD in request.POST,
    }
    return render(request, "portal/confirm.html", context, status=409)

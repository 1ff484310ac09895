"""The page that asks for confirmation of a destructive change."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from portal.infra.confirm import FIELD, Unconfirmed
from portal.web.pages import back_here


def page(request: HttpRequest, asked: Unconfirmed) -> HttpResponse:
    """The page, with the form that was sent as hidden fields."""
    again = [
        (name, value)
        for name, values in request.POST.lists()
        if name not in (FIELD, "csrfmiddlewaretoken")
        for value in values
    ]
    context = {
        "title": asked.asks,
        "consequences": [each["detail"] for each in asked.numbers["breaks"]],
        "more": asked.numbers["more"],
        "also": asked.also,
        "action": asked.action,
        "again": again,
        "mark": asked.numbers["confirm"],
        "cancel": back_here(request),
        "changed": asked.numbers["changed"],
    }
    return render(request, "portal/confirm.html", context, status=asked.status)

"""`/tour/`: moving between the steps of a guided tour, and closing it."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from portal.web import tours
from portal.web.navigation import Shell
from portal.web.pages import back_here


@login_required
@require_POST
def tour(request: HttpRequest) -> HttpResponse:
    """Goes to `step` of `tour`; "start" is its first, an empty one closes the tour for good and stays on the page."""
    address = tours.go(Shell(request), request.POST.get("tour", ""), request.POST.get("step", ""))
    if address:
        return redirect(address)
    messages.success(request, _("The tour is closed. You can start it again under Help."))
    back = back_here(request)
    return redirect(back if back != request.path else "portal:home")

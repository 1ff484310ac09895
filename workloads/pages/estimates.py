"""How well estimates of starts have held, for operators."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from portal.access import operator_of
from workloads.estimates.keep import COMPARED, calibration


@login_required
@require_safe
def estimates(request: HttpRequest) -> HttpResponse:
    operator_of(request)
    context = {"rows": calibration(now=timezone.now()), "days": COMPARED.days}
    return render(request, "workloads/operator_estimates.html", context)

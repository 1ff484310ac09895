"""The operator's page that compares estimated starts with actual ones."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from portal.access import operator_of
from workloads.estimates.keep import COMPARED, outcomes
from workloads.estimates.outcomes import calibration_of
from workloads.estimates.plot import plot_of


@login_required
@require_safe
def estimates(request: HttpRequest) -> HttpResponse:
    operator_of(request)
    by_pool = outcomes(now=timezone.now())
    rows = {pool: calibration_of(of_pool) for pool, of_pool in by_pool.items()}
    plots = [(pool, rows[pool], plot_of(of_pool)) for pool, of_pool in by_pool.items()]
    context = {"rows": rows, "plots": plots, "days": COMPARED.days}
    return render(request, "workloads/operator_estimates.html", context)

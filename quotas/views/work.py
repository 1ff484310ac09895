"""A part of the members page: the workloads that one person has running or waiting in a department."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.access import Right, actor_of, department_for
from quotas.models import LIVE_CLAIMS, Claim


@login_required
@require_safe
def work(request: HttpRequest, department: str, username: str) -> HttpResponse:
    dept = department_for(actor_of(request), department, Right.STEER)
    claims = Claim.objects.filter(department=dept, user__username=username, state__in=LIVE_CLAIMS, pods__gt=0)
    context = {
        "department": dept,
        "username": username,
        "claims": claims.select_related("pool").order_by("submitted_at"),
    }
    return render(request, "quotas/work.html", context)

"""The workloads part of the home page, what changes around every page, and the Ctrl-K search for workloads and pools."""

from __future__ import annotations

import datetime as dt

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import ngettext
from django.views.decorators.http import require_safe

from portal.access import actor_of, submit_departments
from portal.models import Department, InboxItem
from portal.notify.notices import sentence
from portal.views.search import Found
from portal.web.navigation import address
from quotas.board.usage import PoolUsage, department_usage
from quotas.models import Pool
from workloads.lifecycle import FINAL, State
from workloads.models import Attempt
from workloads.pages.rows import Row, rows_of, seen

RECENT = dt.timedelta(days=7)


@login_required
@require_safe
def own_workloads(request: HttpRequest) -> HttpResponse:
    """Recalled workloads first, then waiting and running ones, then those that ended lately; and free capacity of the
    pools that the reader may use."""
    actor = actor_of(request)
    own = seen(actor).filter(author=actor.user)
    live = rows_of(own.exclude(state__in=FINAL).order_by("-public_id")[:100])
    ended = own.filter(state__in=FINAL, finished_at__gt=timezone.now() - RECENT)
    context = {
        "recalled": sorted((row for row in live if row.workload.state == State.RECALLED), key=due),
        "live": sorted(live, key=lambda row: ORDER.get(State(row.workload.state), 9)),
        "ended": rows_of(ended.order_by("-finished_at")[:6]),
        "free": free_now(list(submit_departments(actor)[:6])),
        "first": not own.exists(),
        "submit": submit_departments(actor).first(),
    }
    return render(request, "workloads/mine.html", context)


ORDER = {State.RECALLED: 0, State.STOPPING: 1, State.QUEUED: 2, State.ADMITTED: 3, State.STARTING: 4, State.RUNNING: 5}


def due(row: Row) -> float:
    return row.reclaim_at.timestamp() if row.reclaim_at else 0.0


def free_now(departments: list[Department]) -> list[tuple[Department, list[PoolUsage]]]:
    return [(department, department_usage(department)) for department in departments]


@login_required
@require_safe
def frame(request: HttpRequest) -> JsonResponse:
    """What changes around every page (static/frame.js): unread notices, the newest of them, and the reader's next
    recall."""
    actor = actor_of(request)
    unread = InboxItem.objects.filter(user=actor.user, read_at=None)
    count, newest = unread.count(), unread.order_by("-pk").first()
    leaving = Attempt.objects.filter(
        workload__in=seen(actor).filter(author=actor.user, state=State.RECALLED), finished_at=None, ready_at=None
    ).exclude(reclaim_at=None)
    next_one = leaving.select_related("workload__department").order_by("reclaim_at").first()
    answer = {
        "now": timezone.now(),
        "unread": count,
        "unread_label": ngettext("%(n)s unread", "%(n)s unread", count) % {"n": count},
        "newest": newest and {
            "id": newest.pk, "text": sentence(newest.kind, newest.data), "url": reverse("portal:inbox_item", args=[newest.pk]),
        },
        "goes_back": next_one and {
            "at": next_one.reclaim_at, "name": next_one.workload.name,
            "url": reverse("workloads:detail", args=[next_one.workload.department.slug, next_one.workload.public_id]),
        },
    }  # fmt: skip
    return JsonResponse(answer, headers={"Cache-Control": "no-store"})


@login_required
@require_safe
def search(request: HttpRequest) -> HttpResponse:
    words = request.GET.get("q", "").strip()[:100]
    workloads, pools = [], []
    if words:
        matching = seen(actor_of(request)).filter(Q(name__icontains=words) | Q(public_id__startswith=words.lower()))
        workloads = [
            Found(each.name, reverse("workloads:detail", args=[each.department.slug, each.public_id]), "stack-2",
                  f"{each.get_state_display()} · {each.department.name}")
            for each in matching.select_related("department").order_by("-public_id")[:8]
        ]  # fmt: skip
        pools = [
            Found(each.name, url, "cpu", each.slug)
            for each in Pool.objects.filter(Q(name__icontains=words) | Q(slug__icontains=words))[:6]
            if (url := address("quotas:pool", {"pool": each.slug}) or address("quotas:pools", {}))
        ]
    return render(request, "workloads/search.html", {"workloads": workloads, "pools": pools})

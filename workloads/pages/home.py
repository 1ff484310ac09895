"""The home page's workloads, the data that every page polls, and the Ctrl-K search for workloads and pools."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.decorators import login_required
from django.db.models import Case, Count, Exists, OuterRef, Q, QuerySet, When
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import ngettext
from django.views.decorators.http import require_safe

from portal.access import Actor, actor_of
from portal.models import Department, InboxItem, Role
from portal.notify.notices import sentence
from portal.views.search import Found
from portal.web.navigation import Shell, address
from quotas.board.card_map import largest_now
from quotas.board.usage import PoolUsage, usages
from quotas.board.usage_now import read
from quotas.models import Pool
from quotas.requests import actions as quota_requests
from workloads.lifecycle import FINAL, State
from workloads.models import Attempt, IdleSpell, Workload
from workloads.pages.detail import may_keep_idle
from workloads.pages.new import presets_of
from workloads.pages.rows import Row, rows_of, seen

RECENT = dt.timedelta(days=7)
SHOWN = 100  # live workloads
MOST, PRESETS = 6, 4  # departments whose capacity the page shows, and presets to start from


@dataclass(frozen=True, slots=True)
class Available:
    """A department's pools and how much it may start in each now. Free units of a pool may be spread over nodes, so each pool
    comes with the largest amount that one pod can get."""

    department: Department
    pools: list[tuple[PoolUsage, int]]  # (use of the pool, largest amount for one pod, in units)
    is_owned: bool
    may_submit: bool


@dataclass(frozen=True, slots=True)
class Warned:
    """A workload that will be stopped at `stops_at` for being idle. One that was kept counts only after it is reminded again."""

    row: Row
    stops_at: dt.datetime
    may_keep: bool


@login_required
@require_safe
def own_workloads(request: HttpRequest) -> HttpResponse:
    """The reader's own workloads: recalled ones and those about to be stopped for being idle, then waiting and running ones,
    then those that ended lately; and free capacity of the pools that the reader may use. Owned departments come first."""
    actor = actor_of(request)
    own = seen(actor).filter(author=actor.user)
    all_live = own.exclude(state__in=FINAL)
    ended = own.filter(state__in=FINAL, finished_at__gt=timezone.now() - RECENT)
    count = Counter(dict((all_live | ended).order_by().values_list("state").annotate(Count("pk"))))
    number = count.total() - sum(count[state] for state in FINAL)  # of live ones
    listed = urgent_first(all_live)[:SHOWN], ended.order_by("-finished_at")[:6]
    live_ids, ended_ids = ([*rows.values_list("pk", flat=True)] for rows in listed)
    rows = {row.workload.pk: row for row in rows_of(own.filter(pk__in=[*live_ids, *ended_ids]))}  # read once for both
    live, lately = ([rows[pk] for pk in ids if pk in rows] for ids in (live_ids, ended_ids))
    recalled = sorted((row for row in live if row.workload.state == State.RECALLED), key=due)
    warned = sorted(
        (
            Warned(row, row.idle.stops_at, may_keep_idle(actor, row.workload))
            for row in live
            if row.idle and row.idle.stops_at and (row.idle.kept_at is None or row.idle.reminded_at)
        ),
        key=lambda each: each.stops_at,
    )
    available, submit = available_to(request, actor), next(iter(actor.submits_in), None)
    context = {
        "recalled": recalled,
        "warned": warned,
        "running": count[State.RUNNING],
        "waiting": count[State.QUEUED],
        "starting": count[State.ADMITTED] + count[State.STARTING],
        "stopping": count[State.STOPPING],
        "live": live,
        "more": number - len(live),
        "places": _by_department(all_live) if number > len(live) else (),
        "ended": lately,
        "failed": count[State.FAILED],
        "owned": [each for each in available if each.is_owned],
        "others": [each for each in available if not each.is_owned],
        "to_decide": quota_requests.to_decide(actor).count(),
        "first": not (live or lately or own.exists()),
        "submit": submit,
        "presets": presets_of(submit)[:PRESETS] if submit else [],
    }
    return render(request, "workloads/mine.html", context)


def available_to(request: HttpRequest, actor: Actor) -> list[Available]:
    """The departments that the reader owns, then those that they may submit in. An operator may submit in all, so only those
    that the operator belongs to count, or else the one visited last."""
    owned = [each for each in actor.departments_seen if actor.roles_given.get(each.pk) is Role.OWNER]
    able: Sequence[Department] = actor.submits_in
    if actor.is_operator:
        last = Shell(request).department
        able = [each for each in able if each.pk in actor.roles_given or (not actor.roles_given and each == last)]
    live = read()
    largest = largest_now(live)
    departments = [*owned, *(each for each in able if each not in owned)][:MOST]
    return [
        Available(each, [(row, min(row.free_now, largest.get(row.pool.pk, 0))) for row in usages(live, each.pk)],
                  each in owned, each in able)
        for each in departments
    ]  # fmt: skip


ORDER = (State.STOPPING, State.QUEUED, State.ADMITTED, State.STARTING, State.RUNNING)


def urgent_first(live: QuerySet[Workload]) -> QuerySet[Workload]:
    """Orders recalled and warned workloads first: the page shows only the first SHOWN, and these must be among them."""
    warned = IdleSpell.objects.filter(attempt__workload=OuterRef("pk"), ended_at=None).exclude(stops_at=None)
    first = (When(state=State.RECALLED, then=-2), When(warned=True, then=-1))
    others = (When(state=state, then=number) for number, state in enumerate(ORDER))
    place = Case(*first, *others, default=len(ORDER))
    return live.alias(warned=Exists(warned), place=place).order_by("place", "-public_id")


def _by_department(live: QuerySet[Workload]) -> list[tuple[Department, int]]:
    """(department, number of these workloads in it), by name."""
    count = dict(live.order_by().values_list("department").annotate(Count("pk")))
    return [(each, count[each.pk]) for each in Department.objects.filter(pk__in=count).order_by("name")]


def due(row: Row) -> float:
    return row.reclaim_at.timestamp() if row.reclaim_at else 0.0


@login_required
@require_safe
def frame(request: HttpRequest) -> JsonResponse:
    """What every page polls (static/frame.js): the number of unread notices, the newest one, and the reader's next recall."""
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

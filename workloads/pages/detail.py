"""The page of one workload: is it running, and if not, why not and what can be done?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.access import Actor, NotVisible, Right, actor_of, department_for, visible
from portal.infra import versions
from portal.models import Department, Event
from portal.text.numbers import natural
from portal.text.words import duration
from portal.web.navigation import address
from portal.web.pages import render_part, wants_part
from quotas.models import ClusterKind, Decision, LedgerEntry
from quotas.views.decisions import concerning
from workloads.actions import request_of, sharing_values
from workloads.idle import exemptions, spells
from workloads.idle.names import idle_sentences
from workloads.idle.policies import Policies
from workloads.lifecycle import LIVE, State
from workloads.measurement.history import low_use
from workloads.models import Attempt, Kind, Workload
from workloads.notebooks.access import origin_of
from workloads.pages.attempt_timeline import Phase, timeline_of
from workloads.pages.files import file_of, folder_of
from workloads.pages.rows import ends_at, workload_for
from workloads.pages.usage import use_of
from workloads.requests import as_api_call, previews
from workloads.requests.remedies import remedy_for
from workloads.runtime.gangs import first_failed
from workloads.status.attempts import idle_spell
from workloads.status.ranks import ranks_of
from workloads.status.status_line import place_text, reason_word, situation_of
from workloads.status.submitted_token import token_shown_to

PANEL = "log-panel"  # id of the part with the tabs
TABS = ("log", "usage", "files", "events", "spec")
TABS_OF_EXTERNAL = ("log", "usage", "events")  # the portal has neither its files nor its specification


@login_required
@require_safe
def detail(request: HttpRequest, department: str, workload: str) -> HttpResponse:
    actor = actor_of(request)
    dept, row = workload_for(actor, department, workload)
    attempts = list(row.attempts.select_related("claim", "cluster").order_by("number"))
    last = attempts[-1] if attempts else None
    calls = calls_on(actor, attempts)
    tabs = TABS_OF_EXTERNAL if row.kind == Kind.EXTERNAL else TABS
    tab = request.GET.get("tab", "log")
    tab = tab if tab in tabs else "log"
    context = {
        "department": dept,
        "workload": row,
        "attempts": [
            (each, steps_of(each), reason_word(each.reason), calls.get(each.claim_id)) for each in reversed(attempts)
        ],
        "timeline": timeline_of([(each.number, steps_of(each)) for each in attempts]),
        "call": last and calls.get(last.claim_id),
        "attempt": last,
        "claim": last.claim if last else None,
        "situation": situation_of(actor, row, last),
        "remedy": remedy_for({reason["code"] for reason in last.claim.reasons})
        if last and row.state in (State.QUEUED, State.REJECTED)
        else None,
        "ends_at": ends_at(row, last),
        "cost": cost_of(row),
        "token": token_shown_to(actor, row),
        "places": places_of(last),
        "ranks": ranks_of(last) if last else [],
        "service": service_of(row, last),
        "log_ranks": range(row.pods) if row.pods > 1 else (),
        "log_rank": log_rank(row, shown_attempt(attempts, request.GET.get("attempt", "")), request.GET.get("rank", "")),
        "log_attempt": shown_attempt(attempts, request.GET.get("attempt", "")),
        "tabs": [(name, name == tab) for name in tabs],
        "tab": tab,
        **rights(actor, dept, row),
        **idle_of(actor, row),
        "low": low_use([(row, last)], now=timezone.now()).get(row.pk),
        **tab_of(request, actor, row, tab),
    }
    return render_part(request, "workloads/detail.html", context, part="panel" if wants_part(request, PANEL) else "now")


def calls_on(actor: Actor, attempts: list[Attempt]) -> dict[int, Decision]:
    """Claim id → the last decision that preempted it, if the reader may see that decision."""
    preempted = Decision.victims.through.objects.filter(claim__in=[each.claim_id for each in attempts])
    rows = concerning(actor, actor.seen).filter(pk__in=preempted.values("decision")).select_related("department")
    by_id = rows.in_bulk()
    pairs = preempted.filter(decision__in=by_id).order_by("decision").values_list("claim", "decision")
    return {claim: by_id[decision] for claim, decision in pairs}


@login_required
@require_safe
def by_id(request: HttpRequest, workload: str) -> HttpResponse:
    """Redirects to a workload's page by the id alone, for links without the department, such as those on a notebook's host."""
    row = visible(actor_of(request), Workload.objects.filter(public_id=workload).select_related("department")).first()
    if row is None:
        raise NotVisible
    return redirect("workloads:detail", row.department.slug, row.public_id)


@login_required
@require_safe
def latest(request: HttpRequest, department: str) -> HttpResponse:
    """Redirects to the reader's newest workload in the department, else to anybody's newest, else to the list."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.SEE)
    rows = Workload.objects.filter(department=dept).exclude(kind=Kind.EXTERNAL).order_by("-submitted_at", "-pk")
    row = rows.filter(author=actor.user).first() or rows.first()
    if row is None:
        return redirect("workloads:list", dept.slug)
    query = f"?{request.GET.urlencode()}" if request.GET else ""
    return redirect(reverse("workloads:detail", args=[dept.slug, row.public_id]) + query)


def shown_attempt(attempts: list[Attempt], number: str) -> Attempt | None:
    """The attempt whose log is shown: the requested one, else the newest."""
    numbered = [each for each in attempts if str(each.number) == number]
    return numbered[0] if numbered else attempts[-1] if attempts else None


def log_rank(workload: Workload, attempt: Attempt | None, asked: str) -> int:
    """The rank whose log is shown: the requested one, else the one that failed first."""
    number = natural(asked, workload.pods - 1)
    if number is not None:
        return number
    failed = first_failed(attempt.ranks) if attempt is not None and workload.kind == Kind.DISTRIBUTED else None
    return failed["rank"] if failed else 0


def rights(actor: Actor, department: Department, workload: Workload) -> dict[str, Any]:
    own = workload.author is not None and workload.author == actor.user
    submit = actor.may(Right.SUBMIT, department)
    steer = actor.may(Right.STEER, department) or (own and submit)
    live = workload.state in LIVE
    running = workload.state in (State.RUNNING, State.RECALLED)
    notebook = workload.kind == Kind.NOTEBOOK and running
    return {
        "own": own,
        "may_submit": submit,
        "may_steer": steer,
        "may_stop": steer and live and workload.cancel_requested_at is None,
        "may_extend": steer and live and workload.max_runtime is not None,
        "may_clone": submit and workload.kind != Kind.EXTERNAL,
        "may_rerun": submit and not live and workload.kind != Kind.EXTERNAL and (own or not workload.secret_env),
        "may_share": own and submit and workload.kind == Kind.NOTEBOOK,
        "sharing_seen": versions.mark(sharing_values(workload)),
        "notebook_url": address("workloads:notebook", {"department": department.slug, "workload": workload.public_id})
        if notebook and (own or (workload.shared and submit))
        else "",
    }


def idle_of(actor: Actor, workload: Workload) -> dict[str, Any]:
    """What happens to it when it is idle, and what the reader may do about that."""
    if workload.is_final:
        return {}
    rule = Policies().effective(workload.pool_id, workload.department_id, workload.kind)
    exemption = exemptions.of_workload(workload, timezone.now())
    return {
        "idle_policy": idle_sentences(workload.kind, rule, exemption),
        "exemption": exemption,
        "may_exempt": actor.may(Right.STEER, workload.department),
        "may_keep": may_keep_idle(actor, workload),
    }


def may_keep_idle(actor: Actor, workload: Workload) -> bool:
    """Whether it is about to be stopped for being idle and the reader may postpone that."""
    right = actor.right_over(workload.author)
    return spells.may_keep(idle_spell(workload)) and actor.may(right, workload.department)


def service_of(workload: Workload, attempt: Attempt | None) -> dict[str, Any] | None:
    """A service's addresses (`public`, `origin` through the portal, `inside` the cluster) and whether it responds;
    None for other kinds."""
    if workload.kind != Kind.SERVICE:
        return None
    rank: dict[str, Any] = next(iter(attempt.ranks), {}) if attempt else {}
    pods = attempt is not None and attempt.cluster.kind == ClusterKind.KUBERNETES
    live = workload.state in (State.RUNNING, State.RECALLED)
    public = previews.address_of(workload)
    return {
        "public": public if live else "",
        "origin": "" if public else f"{origin_of(workload.public_id)}/",
        "inside": previews.inner_address(workload, attempt) if live and attempt and pods else "",
        "ready": live and rank.get("ready") is True,
        "restarts": rank.get("restarts", 0),
        "live": live,
    }


def steps_of(attempt: Attempt) -> list[Phase]:
    """The phases queued → starting → running → being recalled → stopping, each with its duration."""
    marks = [
        ("queued", _("queued"), attempt.queued_at),
        ("starting", _("starting"), attempt.admitted_at),
        ("running", _("running"), attempt.started_at),
        ("recalled", _("being recalled"), attempt.recalled_at),
        ("stopping", _("stopping"), attempt.stopping_at),
    ]
    known = [(code, label, at) for code, label, at in marks if at is not None]
    ends = [at for _code, _label, at in known[1:]] + [attempt.finished_at]
    return [Phase(code, label, at, end) for (code, label, at), end in zip(known, ends, strict=True)]


@dataclass(frozen=True)
class Cost:
    """In GPU-hours: units in use ÷ units of a card × hours."""

    own: float
    borrowed: float

    @property
    def total(self) -> float:
        return self.own + self.borrowed


def cost_of(workload: Workload) -> Cost:
    """Its GPU-hours up to now, own and borrowed, from the ledger."""
    now, own, borrowed = timezone.now(), 0.0, 0.0
    rows = LedgerEntry.objects.filter(claim__workload=workload.public_id)
    for is_own, units, began, ended in rows.values_list("own", "units", "started_at", "ended_at"):
        hours = workload.pool.gpu_hours(units * ((ended or now) - began).total_seconds())
        own, borrowed = (own + hours, borrowed) if is_own else (own, borrowed + hours)
    return Cost(own, borrowed)


def places_of(attempt: Attempt | None) -> list[str]:
    """Where its pods are, or were last. The cluster's report takes precedence over the plan."""
    if attempt is None:
        return []
    if attempt.node and attempt.cards and attempt.workload.pods == 1:
        return [place_text(attempt.node, attempt.cards)]
    planned = attempt.placement or attempt.claim.placement or []
    return [place_text(each["node"], each.get("cards", [])) for each in planned]


def event_details(event: Event) -> list[str]:
    """Further facts of an event that are useful to a person."""
    data = event.data
    texts = [_("attempt %(number)s") % {"number": data["attempt"]}] if data.get("attempt") else []
    texts += [REASONS_OF_EVENTS[data["event"]]()] if data.get("event") in REASONS_OF_EVENTS else []
    texts += [word] if (word := reason_word(str(data.get("reason") or ""))) else []
    texts += [_("at most %(time)s") % {"time": duration(data["max_runtime"])}] if data.get("max_runtime") else []
    return texts


REASONS_OF_EVENTS: dict[str, Callable[[], str]] = {
    "gone_recalled": lambda: _("released its capacity"),
    "gone_unstarted": lambda: _("recalled before it ran"),
    "gone_cancelled": lambda: _("stop requested"),
    "gone_expired": lambda: _("reached its maximum runtime"),
    "gone_exhausted": lambda: _("it was recalled more often than this pool allows"),
    "gone_idle": lambda: _("it was idle"),
    "idle": lambda: _("it was idle"),
    "gone_stuck": lambda: _("the cluster could not start it"),
    "cancel": lambda: _("stop requested"),
    "expire": lambda: _("reached its maximum runtime"),
    "stuck": lambda: _("the cluster could not start it"),
    "lost": lambda: _("its node or pod was lost"),
    "retry": lambda: _("Failed and restarting"),
    "withdraw": lambda: _("the recall was withdrawn"),
    "refused": lambda: _("rejected by the cluster"),
}


def tab_of(request: HttpRequest, actor: Actor, workload: Workload, tab: str) -> dict[str, Any]:
    """The context of the open tab."""
    if request.htmx and not wants_part(request, PANEL):  # type: ignore[attr-defined]  # the part above the tabs
        return {}
    if tab == "usage":
        return use_of(request, actor, workload, workload.attempts.select_related("cluster").order_by("-number").first())
    if tab == "files" and request.GET.get("view"):
        return file_of(workload, request.GET["view"])
    if tab == "files":
        return folder_of(workload, request.GET.get("path", ""), request.GET.get("after", ""))
    if tab == "events":
        decisions = Decision.objects.filter(claim__workload=workload.public_id).select_related("claim", "pool")
        events = Event.objects.filter(workload=workload.public_id).order_by("-tx", "-id")
        newest_events = list(events[:200])
        for event in newest_events:
            event.details = event_details(event)  # type: ignore[attr-defined]
        return {"events": newest_events, "decisions": decisions[:50]}
    if tab == "spec":
        body = as_api_call.body_of(request_of(workload))
        newest = (
            workload.attempts.select_related("workload__pool", "workload__image", "cluster").order_by("-number").first()
        )
        manifest = as_api_call.manifest_of(newest) if newest else ""
        exports = previews.export_names(request_of(workload))
        return {
            "json": as_api_call.as_json(body),
            "yaml": as_api_call.as_yaml(body),
            "manifest": manifest,
            "exports": exports,
        }
    return {}

"""Requesting more quota, and deciding requests."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import pgettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.access import Actor, Right, actor_of, department_for, visible
from portal.errors import N_, Invalid, Problem
from portal.infra import confirm
from portal.infra.versions import check_fresh
from portal.models import Department
from portal.web import conflicts
from portal.web.facets import Filter, department_filter
from portal.web.forms import blame
from portal.web.lists import Column, ListState
from portal.web.once import once
from quotas.amounts import written
from quotas.board import usage_now
from quotas.forms.days import last_moment
from quotas.models import Pool, Quota, QuotaRequest, RequestState, Wanted
from quotas.requests import actions as quota_requests
from quotas.requests.forms import FIELDS, CommentForm, DecisionForm, RequestForm, first_total
from quotas.requests.previews import preview_of_grant
from quotas.requests.record import DAYS, record_of
from quotas.rules.quotas import giver_of, may_promise

CSV_COLUMNS = (
    "id", "department", "pool", "unit", "wanted", "state", "before", "requested", "granted", "starts_at", "ends_at", "author",
    "why", "created_at", "decided_by", "decided_at", "note",
)  # fmt: skip


def request_rows() -> QuerySet[QuotaRequest]:
    return QuotaRequest.objects.select_related("department", "pool", "author", "decided_by")


@login_required
@require_safe
def requests(request: HttpRequest) -> HttpResponseBase:
    """Requests that the reader may decide, then all others of departments that they may see. A search is in all of them: its
    matches are one list."""
    actor = actor_of(request)
    rows = visible(actor, request_rows())
    state = list_of(request, rows)
    if state.is_sheet:
        return state.sheet(
            "quota-requests", CSV_COLUMNS, (cells(row) for row in state.chosen(rows).iterator(chunk_size=500))
        )
    to_decide = QuotaRequest.objects.none() if state.is_narrowed else quota_requests.to_decide(actor)
    waiting = list(request_rows().filter(pk__in=to_decide).order_by("created_at"))
    return render(request, "quotas/requests.html", {"waiting": waiting, **state.context(rows, above=waiting)})


def list_of(request: HttpRequest, rows: QuerySet[QuotaRequest]) -> ListState:
    columns = [
        Column("department", _("Department"), ("department__name",), fixed=True),
        Column("state", _("State"), ("state",)),
        Column("pool", _("Pool"), ("pool__name",)),
        Column("wanted", _("What"), ("wanted",)),
        Column("before", _("Before"), ("before",), number=True, gaps=True),
        Column("requested", _("Requested"), ("units",), number=True, gaps=True),
        Column("until", pgettext("of a term", "Until"), ("ends_at",), gaps=True),
        Column("author", _("Requested by"), ("author__username",), gaps=True),
        Column("time", _("Time"), ("created_at",)),
        Column("decided", _("Decided"), ("decided_at",), gaps=True, extra=True),
    ]
    filters = [
        Filter("state", _("State"), "state", {str(key): str(label) for key, label in RequestState.choices}),
        department_filter(rows),
        Filter("pool", _("Pool"), "pool__slug", dict(Pool.objects.values_list("slug", "name"))),
    ]
    searched = (
        "department__name", "pool__name", "author__username", "author__first_name", "author__last_name", "why", "note",
        "^public_id",
    )  # fmt: skip
    return ListState(request.GET, columns, searched=searched, moment="created_at", filters=filters, shown_as="-time")


def cells(row: QuotaRequest) -> list[object]:
    author, decider = (each.username if each else "" for each in (row.author, row.decided_by))
    return [
        row.public_id, row.department.slug, row.pool.slug, row.pool.unit, row.wanted, row.state, row.before, row.units,
        row.granted, row.starts_at, row.ends_at, author, row.why, row.created_at, decider, row.decided_at, row.note,
    ]  # fmt: skip


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def new(request: HttpRequest, department: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department, Right.SUBMIT)
    form = RequestForm(request.POST or None, initial=_first(request, dept), department=dept)
    if request.method == "POST" and form.is_valid():
        try:
            made = quota_requests.ask_for_quota(actor=actor, department=dept, **form.asked())
        except Problem as problem:
            _blame(form, problem)
        else:
            messages.success(request, _("The request was sent to its approvers."))
            return redirect("quotas:request", dept.slug, made.public_id)
    by_pool = {quota.pool_id: quota for quota in Quota.objects.filter(department=dept)}
    rows = [(pool, by_pool.get(pool.pk)) for pool in Pool.objects.all()]
    context = {"department": dept, "form": form, "rows": rows, "deciders": _deciders(dept)}
    return render(request, "quotas/request_new.html", context, status=422 if form.errors else 200)


def _deciders(department: Department) -> list[str]:
    return [user.label for user in quota_requests.deciders_of(department)]


def _first(request: HttpRequest, department: Department) -> dict[str, Any]:
    """Initial values from the URL: pool, what is wanted, and amount. Without an amount, it is the present value plus `more`, the
    units of a workload, or plus one card."""
    pool = Pool.objects.filter(slug=request.GET.get("pool", "")).first() or Pool.objects.first()
    if pool is None:
        return {}
    wanted = Wanted.BORROW_LIMIT if request.GET.get("wanted") == Wanted.BORROW_LIMIT else Wanted.GUARANTEED
    if units := request.GET.get("units", ""):
        return {"pool": pool.slug, "wanted": wanted, "units": units}
    now = quota_requests.present_value(department, pool, wanted)
    more = request.GET.get("more", "")
    first = None if now is None else first_total(pool, now, int(more) if more.isdecimal() and len(more) < 10 else 0)
    return {"pool": pool.slug, "wanted": wanted, "units": "" if first is None else written(first, pool)}


def _blame(form: Any, problem: Problem) -> None:
    problem.field = FIELDS.get(problem.field, problem.field)
    blame(form, problem)


@login_required
@require_http_methods(["GET", "HEAD"])
def detail(request: HttpRequest, department: str, quota_request: str) -> HttpResponse:
    actor, row = _actor_and_row(request, department, quota_request)
    return _page(request, actor, row)


def _actor_and_row(request: HttpRequest, department: str, quota_request: str) -> tuple[Actor, QuotaRequest]:
    """The actor and the request of this URL. Raises NotVisible."""
    actor = actor_of(request)
    return actor, quota_requests.request_for(actor, quota_request, department_for(actor, department))


def _page(request: HttpRequest, actor: Actor, row: QuotaRequest, form: Any = None, comment: Any = None) -> HttpResponse:
    """The request's page. `form`, `comment`: the refused form of a decision or comment, if any."""
    dept, own = row.department, row.author_id is not None and actor.user is not None and row.author_id == actor.user.pk
    may_decide, steer = may_promise(actor, dept), actor.may(Right.STEER, dept)
    if form is None and row.is_open and may_decide:
        form = DecisionForm.of(None, row)
    submits = actor.may(Right.SUBMIT, dept)
    renewing = row.renewals.filter(state__in=quota_requests.NOT_BEGUN).first()
    context = {
        "department": dept, "row": row, "form": form, "may_decide": may_decide,
        "comments": row.comments.select_related("author"),
        "comment_form": comment or (CommentForm() if submits or may_decide else None),
        "may_withdraw": row.state in quota_requests.NOT_BEGUN and (steer or (own and submits)),
        "may_renew": row.state == RequestState.GRANTED and row.ends_at is not None and submits and renewing is None,
        "renewing": renewing, "deciders": _deciders(dept) if row.is_open else [],
        "now_has": quota_requests.present_value(dept, row.pool, row.wanted),
    }  # fmt: skip
    if form is not None:
        giver = giver_of(actor, dept)
        left = (
            quota_requests.present_value(giver, row.pool, Wanted.GUARANTEED)
            if giver
            else quota_requests.open_units(row.pool)
        )
        present = usage_now.read([row.pool], claims=False).present(row.pool.pk)
        context |= {"giver": giver, "left": left, "present": present, "record": record_of(dept, row.pool), "days": DAYS}
    status = conflicts.status_of(*(each for each in (form, comment) if each is not None))
    return render(request, "quotas/request.html", context, status=status)


@login_required
@require_POST
def decide(request: HttpRequest, department: str, quota_request: str) -> HttpResponse:
    """Approve or deny. What approving breaks must be confirmed, as when the quota is edited."""
    actor, row = _actor_and_row(request, department, quota_request)
    quota_requests.require_decider(actor, row)
    form = DecisionForm.of(request.POST, row)
    if form.is_valid():
        data, approves = form.cleaned_data, request.POST.get("decision") == "approve"
        seen = {"actor": actor, "request": row, "note": data["note"], "expected_version": data["version"]}
        try:
            if row.is_open:
                check_fresh(row.version, data["version"])
            if not approves and request.POST.get("decision") != "deny":
                raise Invalid(N_("Choose Approve or Deny."), field="decision")
            if approves:
                _confirm(request, actor, row, data["units"])
                quota_requests.approve(**seen, units=data["units"], ends_at=last_moment(data["ends_on"]))
            else:
                quota_requests.deny(**seen)
        except Problem as problem:
            _blame(form, problem)
            row = quota_requests.request_for(actor, quota_request)
        else:
            messages.success(request, _("Approved.") if approves else _("Denied."))
            return redirect("quotas:request", row.department.slug, row.public_id)
    return _page(request, actor, row, form)


def _confirm(request: HttpRequest, actor: Actor, row: QuotaRequest, units: int | None) -> None:
    preview = preview_of_grant(actor, row, units) if row.is_open else None
    if preview is not None:
        confirm.require(
            preview.breaks, request.POST.get(confirm.FIELD, ""),
            asks=_("Approve the request of %(department)s for %(pool)s?")
            % {"department": row.department.name, "pool": row.pool.name},
            action=_("Approve anyway"),
        )  # fmt: skip


@login_required
@require_safe
def preview(request: HttpRequest, department: str, quota_request: str) -> HttpResponse:
    """The panel beside the decision: who is affected, before anything is saved."""
    actor, row = _actor_and_row(request, department, quota_request)
    quota_requests.require_decider(actor, row)
    form = DecisionForm.of(request.GET, row)
    context: dict[str, Any] = {"department": row.department, "pool": row.pool, "form": form}
    if form.is_valid():
        try:
            context["preview"] = preview_of_grant(actor, row, form.cleaned_data["units"])
        except Problem as problem:
            context["problem"] = problem
    return render(request, "quotas/preview.html", context)


@login_required
@require_POST
@once
def say(request: HttpRequest, department: str, quota_request: str) -> HttpResponse:
    actor, row = _actor_and_row(request, department, quota_request)
    quota_requests.require_voice(actor, row)
    form = CommentForm(request.POST)
    if form.is_valid():
        try:
            quota_requests.comment(actor=actor, request=row, text=form.cleaned_data["text"])
        except Problem as problem:
            if problem.field != "text":
                raise
            blame(form, problem)
        else:
            return redirect("quotas:request", row.department.slug, row.public_id)
    return _page(request, actor, row, comment=form)


@login_required
@require_POST
def withdraw(request: HttpRequest, department: str, quota_request: str) -> HttpResponse:
    actor, row = _actor_and_row(request, department, quota_request)
    quota_requests.withdraw(actor=actor, request=row)
    messages.success(request, _("The request was withdrawn."))
    return redirect("quotas:request", row.department.slug, row.public_id)


@login_required
@require_POST
@once
def renew(request: HttpRequest, department: str, quota_request: str) -> HttpResponse:
    actor, row = _actor_and_row(request, department, quota_request)
    made = quota_requests.renew(actor=actor, request=row)
    messages.success(request, _("The renewal was requested."))
    return redirect("quotas:request", made.department.slug, made.public_id)

"""The operator's overview: processes, scheduled jobs, people and departments; capacity is a part in quotas."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.db.models import Case, Count, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_safe

from portal.access import Actor, operator_of
from portal.accounts import departments as department_actions
from portal.accounts import users as user_actions
from portal.background.jobs import last_runs, ticked
from portal.celery import TIMETABLE
from portal.errors import Problem
from portal.infra import confirm, versions
from portal.models import Department, Heartbeat, JobRun, Membership, User
from portal.names import LineInput, NameInput
from portal.sign_in import identities, second_factor
from portal.web import conflicts, one_time_secrets
from portal.web.code_names import event_label
from portal.web.facets import Filter, department_filter
from portal.web.forms import blame
from portal.web.lists import Column, ListState
from portal.web.once import once
from portal.web.pages import render_part

SILENT_AFTER = dt.timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    every: int  # s
    last: JobRun | None
    next_at: dt.datetime | None  # None: beat has never run

    @property
    def took(self) -> dt.timedelta | None:
        return self.last.finished_at - self.last.started_at if self.last and self.last.finished_at else None

    @property
    def overdue(self) -> bool:
        """Whether several ticks have passed without a run: no beat is running, or all workers are busy."""
        return self.next_at is None or timezone.now() > self.next_at + dt.timedelta(seconds=2 * self.every + 15)


@login_required
@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    operator_of(request)
    silent = timezone.now() - SILENT_AFTER
    context = {
        "jobs": jobs(),
        "heartbeats": [(beat, beat.at < silent) for beat in Heartbeat.objects.order_by("name")],
    }
    return render_part(request, "portal/operator.html", context, part="processes")


def jobs() -> list[Job]:
    """Last and next run of each scheduled job, in the order of the names that are shown. A job that never ran is due one
    interval after the first run of any job."""
    runs = last_runs()
    since = ticked(runs)
    scheduled = []
    for name, every in TIMETABLE.items():
        next_at = since[name] + dt.timedelta(seconds=every) if name in since else None
        scheduled.append(Job(name, every, runs[name], next_at))
    return sorted(scheduled, key=lambda job: event_label(job.name))


class UserForm(forms.Form):
    username = LineInput(label=gettext_lazy("Login name"), max_length=150)
    email = forms.EmailField(label=gettext_lazy("E-mail"), required=False)
    operator = forms.BooleanField(label=gettext_lazy("operator"), required=False)


@sensitive_variables("password")
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def users(request: HttpRequest) -> HttpResponseBase:
    actor = operator_of(request)
    form = UserForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            made, password = user_actions.create_user(actor=actor, **form.cleaned_data)
        except Problem as problem:
            blame(form, problem)
        else:
            return one_time_secrets.redirect_with(request, request.path, made=made.username, password=password)
    rows = _people()
    state = _list_of_people(request, rows)
    if state.is_sheet and request.method != "POST":
        return state.sheet("users", PEOPLE_CSV, (_cells(row) for row in state.chosen(rows).iterator(chunk_size=500)))
    context = {"form": form, **_made(request), **state.context(rows)}
    response = render(request, "portal/operator_users.html", context, status=422 if form.errors else 200)
    response["Cache-Control"] = "no-store"
    return response


PEOPLE_CSV = ("username", "name", "email", "operator", "active", "departments", "last_login", "created_at")


def _people() -> QuerySet[User]:
    """All accounts of people, with their `standing`."""
    standing = Case(
        When(is_active=False, then=Value("locked")),
        When(is_operator=True, then=Value("operator")),
        default=Value("user"),
    )
    return User.objects.filter(service_of=None).annotate(standing=standing).prefetch_related("memberships__department")


def _list_of_people(request: HttpRequest, rows: QuerySet[User]) -> ListState:
    columns = [
        Column("user", _("User"), ("username",), fixed=True),
        Column("email", _("E-mail"), ("email",)),
        Column("departments", _("Departments")),
        Column("login", _("Last login"), ("last_login",), gaps=True),
        Column("created", _("Created"), ("date_joined",), extra=True),
    ]
    standings = {"locked": _("locked"), "operator": _("operator"), "user": _("user")}
    filters = [
        Filter("standing", _("Account"), "standing", standings),
        department_filter(rows, "memberships__department"),
    ]
    searched = ("username", "email", "first_name", "last_name")
    return ListState(
        request.GET,
        columns,
        searched=searched,
        moment="date_joined",
        filters=filters,
        default=("username",),
        shown_as="user",
    )


def _cells(row: User) -> list[object]:
    roles = " ".join(f"{each.department.slug}:{each.role}" for each in row.memberships.all())
    return [row.username, row.label, row.email, row.is_operator, row.is_active, roles, row.last_login, row.date_joined]


def _made(request: HttpRequest) -> dict[str, Any]:
    """The account that just got a password, and that password; {} if there is none."""
    facts = one_time_secrets.revealed(request)
    return {"made": get_object_or_404(User, username=facts["made"]), "password": facts["password"]} if facts else {}


@sensitive_variables("password", "context")
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def user(request: HttpRequest, username: str) -> HttpResponse:
    """One account, and its changes: lock, unlock, grant or remove the operator role, new password."""
    actor = operator_of(request)
    row = get_object_or_404(User, username=username, service_of=None)
    context: dict[str, Any] = {}
    if request.method == "POST":
        try:
            user_actions.check_seen(row, request.POST.get(versions.FIELD, ""))
            _require_confirmed(request, row)
            password = _change(actor, row, request.POST.get("change", ""), request.POST.get(versions.FIELD, ""))
        except confirm.Unconfirmed:
            raise
        except Problem as problem:
            context["refusal"] = problem
        else:
            if not password:
                messages.success(request, _("%(name)s was saved.") % {"name": row.label})
                return redirect("portal:operator_user", username)
            if request.user == row:  # otherwise the new password would not be shown
                update_session_auth_hash(request, User.objects.get(pk=row.pk))
            return one_time_secrets.redirect_with(request, request.path, made=row.username, password=password)
    context |= _made(request) | {
        "person": row,
        "seen": user_actions.mark_of(row),
        "memberships": row.memberships.select_related("department"),
        "tokens": row.tokens.filter(revoked_at=None, expires_at__gt=timezone.now()).count(),
        "second_factor": second_factor.has_one(row),
        "linked": [(each, identities.label_of(each.provider)) for each in identities.accounts_of(row)],
        "providers": settings.IDENTITY_PROVIDERS,
    }
    status = context["refusal"].status if "refusal" in context else 200
    response = render(request, "portal/operator_user.html", context, status=status)
    response["Cache-Control"] = "no-store"
    return response


def _require_confirmed(request: HttpRequest, row: User) -> None:
    """Requires a confirmation for locking an account and for granting the operator role. Raises Unconfirmed."""
    tokens = row.tokens.filter(revoked_at=None, expires_at__gt=timezone.now()).count()
    roles = [
        f"{each.department.name}: {each.get_role_display()}" for each in row.memberships.select_related("department")
    ]
    name = {"name": row.label}
    match request.POST.get("change", ""):
        case "lock" if row.is_active:
            title, action = _("Lock %(name)s?") % name, _("Lock")
            text = ngettext(
                "All sessions end at once and %(n)s token is revoked: pipelines that use it stop working.",
                "All sessions end at once and %(n)s tokens are revoked: pipelines that use them stop working.", tokens,
            )  # fmt: skip
            lines = [
                text % {"n": tokens},
                _("Running workloads continue. Nobody can log in as %(name)s until the account is unlocked.") % name,
            ]
            lines += [_("Member of %(departments)s.") % {"departments": ", ".join(roles)}] if roles else []
        case "operator" if not row.is_operator:
            title, action = _("Grant the operator role to %(name)s?") % name, _("Grant operator role")
            lines = [
                _("%(name)s will be able to see the workloads, logs and files of all departments.") % name,
                _(
                    "%(name)s will be able to change quotas, policies, clusters and accounts, and to grant the "
                    "operator role."
                )
                % name,
            ]
        case _other:
            return
    breaks = [confirm.Break("person", line, (row.pk, tokens, len(roles))) for line in lines]
    confirm.require(breaks, request.POST.get(confirm.FIELD, ""), asks=title, action=action)


@sensitive_variables()
def _change(actor: Actor, row: User, change: str, seen: str) -> str:
    """Carries out the change; returns the new password, or "" for any other change."""
    match change:
        case "password":
            return user_actions.reset_password(actor=actor, user=row)
        case "lock" | "unlock":
            user_actions.set_active(actor=actor, user=row, active=change == "unlock", seen=seen)
        case "sessions":
            user_actions.end_sessions(actor=actor, user=row)
        case "second_factor":
            second_factor.remove(actor=actor, user=row)
        case "operator" | "no_operator":
            user_actions.set_operator(actor=actor, user=row, operator=change == "operator", seen=seen)
    return ""


class DepartmentForm(forms.Form):
    slug = LineInput(
        label=gettext_lazy("Short name"),
        max_length=40,
        help_text=gettext_lazy("Used in addresses. Cannot be changed later."),
    )
    name = NameInput(label=gettext_lazy("Name"), max_length=100)
    parent = forms.ModelChoiceField(
        label=gettext_lazy("Parent department"),
        queryset=Department.objects.all(),
        required=False,
        empty_label=gettext_lazy("none"),
    )
    weight = forms.IntegerField(
        label=gettext_lazy("Weight"),
        min_value=1,
        max_value=1_000_000,
        initial=1,
        help_text=gettext_lazy("Share of borrowed capacity relative to other departments."),
    )


class DepartmentChangeForm(DepartmentForm):
    slug = None  # type: ignore[assignment]
    unrestricted = forms.BooleanField(
        label=gettext_lazy("May lock memory (RDMA)"),
        required=False,
        help_text=gettext_lazy(
            "Workloads that request it run as root with the capability IPC_LOCK, in a second namespace "
            "without the Pod Security Standard “restricted”."
        ),
    )
    version = forms.IntegerField(widget=forms.HiddenInput)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def departments(request: HttpRequest) -> HttpResponse:
    actor = operator_of(request)
    below = Department.objects.filter(slug=request.GET.get("below", "")).first()
    form = DepartmentForm(request.POST or None, initial={"parent": below, "weight": 1})
    if request.method == "POST" and form.is_valid():
        try:
            made = department_actions.create_department(actor=actor, **form.cleaned_data)
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(
                request, _("%(name)s was created. Next, set its quota and add a quota owner.") % {"name": made.name}
            )
            return redirect("portal:operator_departments")
    context = {"tree": tree(), "form": form}
    return render(request, "portal/operator_departments.html", context, status=422 if form.errors else 200)


def tree() -> list[tuple[Department, int, int]]:
    """(department, depth, members), each below its parent."""
    children: dict[int | None, list[Department]] = {}
    for row in Department.objects.select_related("parent").order_by("slug"):
        children.setdefault(row.parent_id, []).append(row)
    counts = Membership.objects.values_list("department").annotate(n=Count("pk"))
    members: dict[int, int] = dict(counts)
    lines: list[tuple[Department, int, int]] = []
    stack = [(row, 0) for row in reversed(children.get(None, []))]
    while stack:
        row, depth = stack.pop()
        lines.append((row, depth, members.get(row.pk, 0)))
        stack += [(child, depth + 1) for child in reversed(children.get(row.pk, []))]
    return lines


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def department(request: HttpRequest, department: str) -> HttpResponse:
    actor = operator_of(request)
    row = get_object_or_404(Department, slug=department)
    initial = {"name": row.name, "parent": row.parent_id, "weight": row.weight, "version": row.version,
               "unrestricted": row.unrestricted}  # fmt: skip
    form = DepartmentChangeForm(request.POST or None, initial=initial)
    if request.method == "POST" and form.is_valid():
        data = dict(form.cleaned_data)
        version = data.pop("version")
        try:
            department_actions.require_confirmed(
                actor=actor, department=row, given=request.POST.get(confirm.FIELD, ""), expected_version=version,
                parent=data["parent"], weight=data["weight"],
            )  # fmt: skip
            department_actions.change_department(actor=actor, department=row, expected_version=version, **data)
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(request, _("%(name)s was saved.") % {"name": data["name"]})
            return redirect("portal:operator_departments")
    context = {"department": row, "form": form}
    return render(request, "portal/operator_department.html", context, status=conflicts.status_of(form))

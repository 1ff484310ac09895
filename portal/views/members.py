"""A department's members: invitations, roles, removal. The parts with caps and workloads are in quotas."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.mail import send_mail
from django.db.models import Case, Count, Q, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.access import Actor, NotVisible, Right, actor_of, department_for
from portal.accounts import departments, members, tokens
from portal.errors import Problem
from portal.infra import confirm, versions
from portal.models import ApiToken, Department, Invitation, Membership, Role
from portal.names import LineInput, printable
from portal.text.numbers import natural
from portal.web import one_time_secrets
from portal.web.facets import Filter
from portal.web.forms import blame
from portal.web.lists import Column, ListState
from portal.web.once import once


class AddForm(forms.Form):
    username = LineInput(label=gettext_lazy("Login name"), max_length=150)
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=Role.choices, initial=Role.MEMBER)


class InviteForm(forms.Form):
    email = forms.EmailField(
        label=gettext_lazy("E-mail"),
        required=False,
        help_text=gettext_lazy("Leave empty to pass the link on yourself."),
    )
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=Role.choices, initial=Role.MEMBER)


class ServiceForm(forms.Form):
    name = forms.SlugField(
        label=gettext_lazy("Name"), max_length=60, help_text=gettext_lazy("For pipelines, not for people.")
    )
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=Role.choices[:2], initial=Role.MEMBER)


@login_required
@require_safe
def members_page(request: HttpRequest, department: str) -> HttpResponseBase:
    actor = actor_of(request)
    dept = department_for(actor, department)
    state, members = _list_of(request), _rows(dept)
    if state.is_sheet:
        cells = (_cells(row) for row in state.chosen(members).iterator(chunk_size=500))
        return state.sheet(f"members-{dept.slug}", CSV_COLUMNS, cells)
    made = one_time_secrets.revealed(request)
    if made:
        made["invitation"] = Invitation.objects.filter(pk=made["invitation"], department=dept, accepted_at=None).first()
    response = _page(request, actor, dept, **made if made.get("invitation") else {})
    if made:
        response["Cache-Control"] = "no-store"
    return response


def _page(request: HttpRequest, actor: Actor, department: Department, status: int = 200, **more: Any) -> HttpResponse:
    may_steer = actor.may(Right.STEER, department)
    context = _list_of(request).context(_rows(department))
    context |= {
        "department": department,
        "rows": [(row, versions.mark({"role": row.role})) for row in context["page"]],
        "above": _owners_above(department),
        "may_steer": may_steer,
        "roles": Role.choices,
        "here": reverse("portal:members", args=[department.slug]) if request.method == "POST" else "",
        "add": AddForm(prefix="add"),
        "invite": InviteForm(prefix="invite"),
        "service": ServiceForm(prefix="service"),
        "invitations": _invitations(department, timezone.now()) if may_steer else [],
    }
    return render(request, "portal/members.html", context | more, status=status)


CSV_COLUMNS = ("username", "name", "kind", "role", "active", "member_since", "last_login", "active_tokens")


def _rows(department: Department) -> QuerySet[Membership]:
    """The memberships, with the number of active `tokens`, and `kind`."""
    live = Q(
        user__tokens__department=department, user__tokens__revoked_at=None, user__tokens__expires_at__gt=timezone.now()
    )
    kind = Case(When(user__service_of=None, then=Value("person")), default=Value("service"))
    rows = Membership.objects.filter(department=department).select_related("user")
    return rows.annotate(tokens=Count("user__tokens", filter=live), kind=kind)


PEOPLE_FIRST = ("kind", "user__username")


def _list_of(request: HttpRequest) -> ListState:
    columns = [
        Column("user", _("User"), PEOPLE_FIRST, fixed=True),
        Column("role", _("Role"), ("role",)),
        Column("since", _("Member since"), ("created_at",)),
        Column("login", _("Last login"), ("user__last_login",), gaps=True),
        Column("tokens", _("Active tokens"), ("tokens",), number=True),
    ]
    filters = [
        Filter("role", _("Role"), "role", {value: str(label) for value, label in Role.choices}),
        Filter("kind", _("Kind"), "kind", {"person": _("person"), "service": _("service account")}),
    ]
    searched = ("user__username", "user__first_name", "user__last_name")
    return ListState(
        request.GET,
        columns,
        searched=searched,
        moment="created_at",
        filters=filters,
        default=PEOPLE_FIRST,
        shown_as="user",
    )


def _cells(row: Membership) -> list[object]:
    user = row.user
    return [
        user.username, user.label, row.kind, row.role, user.is_active, row.created_at,  # type: ignore[attr-defined] # of _rows
        None if user.service_of_id else user.last_login, row.tokens,  # type: ignore[attr-defined]
    ]  # fmt: skip


def _invitations(department: Department, now: dt.datetime) -> list[Invitation]:
    """Invitations whose link still works."""
    rows = Invitation.objects.filter(department=department, accepted_at=None, expires_at__gt=now)
    return [row for row in rows.select_related("created_by", "department") if members.is_still_valid(row)]


def _owners_above(department: Department) -> list[Membership]:
    """Owners of the departments above this one, who are also owners here."""
    above, parent = [], department.parent
    while parent is not None:
        above.append(parent.pk)
        parent = parent.parent
    rows = Membership.objects.filter(department__in=above, role=Role.OWNER, user__is_active=True)
    return list(rows.select_related("user", "department"))


@login_required
@require_POST
@once
def add(request: HttpRequest, department: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    form = AddForm(request.POST, prefix="add")
    if form.is_valid():
        try:
            added = members.add_member(actor=actor, department=dept, **form.cleaned_data)
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(
                request,
                _("%(name)s was added to %(department)s.") % {"name": added.user.label, "department": dept.name},
            )
            return redirect("portal:members", dept.slug)
    return _page(request, actor, dept, 422, add=form)


@login_required
@require_POST
@once
def invite(request: HttpRequest, department: str) -> HttpResponse:
    """Creates an invitation. Its link is shown once, on the next page."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    form = InviteForm(request.POST, prefix="invite")
    if not form.is_valid():
        return _page(request, actor, dept, 422, invite=form)
    try:
        invitation, secret = members.invite(actor=actor, department=dept, **form.cleaned_data)
    except Problem as problem:
        blame(form, problem)
        return _page(request, actor, dept, 422, invite=form)
    link = settings.BASE_URL + reverse("portal:invite", args=[secret])
    facts = {"link": link, "invitation": invitation.pk, "mailed": _mail(actor, invitation, link)}
    return one_time_secrets.redirect_with(request, reverse("portal:members", args=[dept.slug]), **facts)


def _mail(actor: Actor, invitation: Invitation, link: str) -> bool | None:
    """Mails the link; True if that succeeded. None: no address was given; False: the mail server did not accept it."""
    if not invitation.email or actor.user is None:
        return None
    facts = {"department": invitation.department.name, "person": actor.user.label, "link": link}
    subject = printable(_("Invitation to %(department)s") % facts)
    text = _(
        "%(person)s invites you to %(department)s on the GPU quota portal. The link can be used once "
        "and is valid for 7 days:\n\n%(link)s\n"
    )
    try:
        return bool(send_mail(subject, text % facts, None, [invitation.email]))
    except (OSError, ValueError):  # refused, unknown host, timed out (SMTPException is an OSError); not a valid header
        return False


@login_required
@require_POST
def withdraw_invitation(request: HttpRequest, department: str, invitation: int) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    row = get_object_or_404(Invitation, pk=invitation, department=dept)
    members.withdraw_invitation(actor=actor, invitation=row)
    messages.success(request, _("The invitation was withdrawn. Its link no longer works."))
    return redirect("portal:members", dept.slug)


@login_required
@require_POST
def change_role(request: HttpRequest, department: str, username: str) -> HttpResponse:
    actor = actor_of(request)
    row = membership_for(actor, department, username)
    try:
        seen = request.POST.get(versions.FIELD, "")
        members.change_role(actor=actor, membership=row, role=request.POST.get("role", ""), seen=seen)
    except Problem as problem:
        return _page(request, actor, row.department, problem.status, refusal=problem)
    messages.success(request, _("The role of %(name)s was changed.") % {"name": row.user.label})
    return redirect("portal:members", row.department.slug)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def remove(request: HttpRequest, department: str, username: str) -> HttpResponse:
    """Shows a page with the consequences, then removes the member."""
    actor = actor_of(request)
    row = membership_for(actor, department, username)
    refusal = None
    if request.method == "POST":
        try:
            if row.user.service_of_id == row.department_id:
                tokens.remove_service_account(actor=actor, account=row.user)
            else:
                members.remove_member(actor=actor, membership=row, seen=request.POST.get(versions.FIELD, ""))
        except Problem as problem:
            refusal = problem
        else:
            messages.success(request, _("%(name)s was removed.") % {"name": row.user.label})
            return redirect("portal:members", row.department.slug)
    now = timezone.now()
    dependent = Q(holder=row.user) | Q(made_by=row.user, holder__service_of=row.department)
    live = ApiToken.objects.filter(dependent, department=row.department, revoked_at=None, expires_at__gt=now)
    live = live.select_related("holder").order_by("holder__username", "name")
    row.refresh_from_db()
    context = {
        "department": row.department, "row": row, "tokens": live, "refusal": refusal,
        "seen": versions.mark({"role": row.role}),
    }  # fmt: skip
    return render(request, "portal/member_remove.html", context, status=refusal.status if refusal else 200)


def membership_for(actor: Actor, department: str, username: str) -> Membership:
    dept = department_for(actor, department, Right.STEER)
    row = (
        Membership.objects.filter(department=dept, user__username=username).select_related("user", "department").first()
    )
    if row is None:
        raise NotVisible
    return row


@login_required
@require_POST
@once
def add_service_account(request: HttpRequest, department: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    form = ServiceForm(request.POST, prefix="service")
    if form.is_valid():
        try:
            made = tokens.create_service_account(actor=actor, department=dept, **form.cleaned_data)
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(request, _("%(name)s was created. Next, create a token for it.") % {"name": made.username})
            return redirect("portal:member_tokens", dept.slug, made.username)
    return _page(request, actor, dept, 422, service=form)


@login_required
@require_POST
def pause(request: HttpRequest, department: str) -> HttpResponse:
    """Pauses or resumes the whole department."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    version, paused = natural(request.POST.get("version", "")), bool(request.POST.get("paused"))
    if paused:
        given = request.POST.get(confirm.FIELD, "")
        departments.require_confirmed(actor=actor, department=dept, given=given, expected_version=version)
    departments.set_paused(actor=actor, department=dept, paused=paused, expected_version=version)
    messages.success(request, _("Paused. No new workloads start.") if request.POST.get("paused") else _("Resumed."))
    return redirect("quotas:department", dept.slug)

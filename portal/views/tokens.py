"""API tokens: create (shown once), list, revoke. The reader's own, and for owners those of the department's service
accounts and members."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Case, Min, Q, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from portal.access import Actor, NotVisible, Right, actor_of
from portal.accounts.bearer_tokens import may_be_used
from portal.accounts.tokens import MOST_GPU_HOURS, checked_addresses, checked_scopes, create_token, revoke_token
from portal.errors import Problem
from portal.models import ApiToken, Department, Membership, TokenPeriod
from portal.names import LineInput, NameInput
from portal.views.members import membership_for
from portal.web import one_time_secrets
from portal.web.facets import Filter, department_filter
from portal.web.lists import Column, ListState
from portal.web.once import once

SCOPES = [
    (Right.SEE.value, gettext_lazy("read: view boards, workloads and logs")),
    (Right.SUBMIT.value, gettext_lazy("submit: submit and manage own workloads")),
    (Right.STEER.value, gettext_lazy("quota: manage members, caps and recalls; stop any workload")),
    (Right.MAKE_TOKENS.value, gettext_lazy("tokens: create tokens with at most its own scopes, and revoke them")),
    (Right.OPERATE.value, gettext_lazy("admin: everything an operator may do")),
]
LIVES = [
    (7, gettext_lazy("7 days")),
    (30, gettext_lazy("30 days")),
    (90, gettext_lazy("90 days")),
    (365, gettext_lazy("1 year")),
]


def words_of(text: str) -> list[str]:
    return text.replace(",", " ").split()


class TokenForm(forms.Form):
    name = NameInput(
        label=gettext_lazy("Name"), max_length=80, help_text=gettext_lazy("What it is used for, for example nightly-ci")
    )
    department = forms.ModelChoiceField(
        Department.objects.none(), label=gettext_lazy("Department"), to_field_name="slug", empty_label=None
    )
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Scopes"), choices=SCOPES, widget=forms.CheckboxSelectMultiple, initial=["read", "submit"]
    )
    days = forms.TypedChoiceField(label=gettext_lazy("Valid for"), choices=LIVES, coerce=int, initial=90)
    addresses = LineInput(
        label=gettext_lazy("Allowed addresses"),
        required=False,
        help_text=gettext_lazy("Networks such as 10.0.0.0/8, separated by commas. Leave empty to allow any address."),
    )

    gpu_hours = forms.IntegerField(
        label=gettext_lazy("GPU-hour limit"),
        required=False,
        min_value=1,
        max_value=MOST_GPU_HOURS,
        help_text=gettext_lazy(
            "What its workloads may use; part of a card counts in proportion. Then it can submit nothing more. "
            "Leave empty for no limit."
        ),
    )
    gpu_hours_per = forms.ChoiceField(
        label=gettext_lazy("GPU-hours count"), choices=TokenPeriod.choices, initial=TokenPeriod.MONTH, required=False
    )

    def __init__(self, *args: Any, actor: Actor, row: Membership | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.actor, self.row = actor, row
        cast("forms.ModelChoiceField[Department]", self.fields["department"]).queryset = actor.departments
        if actor.is_operator:
            self.fields["department"].required = False
            cast("forms.ModelChoiceField[Department]", self.fields["department"]).empty_label = _(
                "the whole installation"
            )
            self.fields["department"].initial = actor.departments.first()
        else:
            self.offer(SCOPES[:-1])

    def clean(self) -> dict[str, Any]:
        """Runs the action's checks too, so that all errors are shown at once."""
        data = super().clean() or {}
        department = self.row.department if self.row else data.get("department")
        holder = self.row.user if self.row else self.actor.user
        if "addresses" in data:
            self.try_out("addresses", lambda: checked_addresses(self.actor, words_of(data["addresses"])))
        known = "department" in data or self.row is not None
        if data.get("scopes") and known and holder is not None:
            self.try_out("scopes", lambda: checked_scopes(self.actor, department, holder, data["scopes"]))
        return data

    def try_out(self, field: str, check: Callable[[], object]) -> None:
        try:
            check()
        except Problem as problem:
            self.add_error(field, problem.detail)

    def offer(self, scopes: list[tuple[str, Any]]) -> None:
        cast(forms.MultipleChoiceField, self.fields["scopes"]).choices = scopes


class AccountTokenForm(TokenForm):
    """For a service account: the department is given, and scopes are limited to its role's rights."""

    def __init__(self, *args: Any, actor: Actor, row: Membership, **kwargs: Any) -> None:
        super().__init__(*args, actor=actor, row=row, **kwargs)
        del self.fields["department"]
        rights = Actor(row.user).rights_in(row.department)
        self.offer([(scope, label) for scope, label in SCOPES if Right(scope) in rights])


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def tokens(request: HttpRequest) -> HttpResponseBase:
    actor = actor_of(request)
    form = TokenForm(request.POST or None, actor=actor)
    if request.method == "POST" and (secret := token_from_form(actor, form)):
        return one_time_secrets.redirect_with(request, request.path, secret=secret)
    own = ApiToken.objects.filter(holder=actor.user)
    return token_page(request, "portal/tokens.html", own, form=form)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def member_tokens(request: HttpRequest, department: str, username: str) -> HttpResponseBase:
    """A member's tokens in this department, for its owners, who can create new ones for a service account."""
    actor = actor_of(request)
    row = membership_for(actor, department, username)
    tokens_here = ApiToken.objects.filter(holder=row.user, department=row.department)
    context: dict[str, Any] = {"row": row, "department": row.department, "form": None}
    if row.user.service_of_id != row.department_id:
        if request.method == "POST":
            raise NotVisible
        return token_page(request, "portal/member_tokens.html", tokens_here, **context)
    form = AccountTokenForm(request.POST or None, actor=actor, row=row)
    if request.method == "POST" and (secret := token_from_form(actor, form, row)):
        return one_time_secrets.redirect_with(request, request.path, secret=secret)
    context["form"] = form
    return token_page(request, "portal/member_tokens.html", tokens_here, **context)


def token_page(request: HttpRequest, template: str, tokens: QuerySet[ApiToken], **context: Any) -> HttpResponseBase:
    """The page with these tokens and a just created one; never cached."""
    rows = with_status(tokens.select_related("department", "holder", "made_by", "parent"))
    state = _list_of(request, rows, departments=template == "portal/tokens.html")
    if state.is_sheet and request.method != "POST":
        return state.sheet("tokens", CSV_COLUMNS, _cells(state.chosen(rows)))
    context |= state.context(rows)
    context["secret"] = one_time_secrets.revealed(request).get("secret", "")
    context["portal_url"] = settings.BASE_URL
    status = 422 if request.method == "POST" else 200
    response = render(request, template, context, status=status)
    response["Cache-Control"] = "no-store"
    return response


CSV_COLUMNS = (
    "prefix", "name", "holder", "department", "state", "scopes", "addresses", "gpu_hours", "gpu_hours_per", "made_by",
    "created_at", "expires_at", "last_used_at", "revoked_at",
)  # fmt: skip


def with_status(rows: QuerySet[ApiToken]) -> QuerySet[ApiToken]:
    """The rows with their `status`: active, revoked or expired, by the token itself and its parent (ApiToken.is_live); invalid
    if the right it was created under has ended (may_be_used), which is checked once for each holder, creator and department."""
    now = timezone.now()
    revoked = Q(revoked_at__isnull=False) | Q(parent__revoked_at__isnull=False)
    expired = Q(expires_at__lte=now) | Q(parent__expires_at__lte=now)
    live = rows.exclude(revoked | expired)
    firsts = live.order_by().values("holder", "made_by", "department").annotate(first=Min("pk")).values("first")
    unbacked = [each for each in live.filter(pk__in=firsts) if not may_be_used(each)]
    invalid = Q(pk__in=[])
    for each in unbacked:
        invalid |= Q(holder=each.holder_id, made_by=each.made_by_id, department=each.department_id)
    status = Case(
        When(revoked, then=Value("revoked")),
        When(expired, then=Value("expired")),
        When(invalid, then=Value("invalid")),
        default=Value("active"),
    )
    return rows.annotate(status=status)


def _list_of(request: HttpRequest, rows: QuerySet[ApiToken], *, departments: bool) -> ListState:
    every = [
        Column("name", _("Name"), ("name",), fixed=True),
        Column("department", _("Department"), ("department__name",), gaps=True),
        Column("state", _("State"), ("status",)),
        Column("scopes", _("Scopes")),
        Column("expires", _("Expires"), ("expires_at",)),
        Column("used", _("Last used"), ("last_used_at",), gaps=True),
        Column("created", _("Created"), ("created_at",), extra=True),
    ]
    states = {"active": _("active"), "revoked": _("revoked"), "expired": _("expired"), "invalid": _("invalid")}
    filters = [Filter("state", _("State"), "status", states), *([department_filter(rows)] if departments else [])]
    return ListState(
        request.GET,
        [each for each in every if departments or each.name != "department"],
        searched=("name", "^prefix", "department__name"),
        moment="created_at",
        filters=filters,
        default=("status", "expires_at", "-pk"),  # the active ones first, and of these the next to expire
        shown_as="state",
    )


def _cells(rows: QuerySet[ApiToken]) -> Iterator[list[object]]:
    for row in rows.iterator(chunk_size=500):
        yield [
            row.prefix, row.name, row.holder.username, row.department.slug if row.department else "",
            row.status,  # type: ignore[attr-defined] # of with_status
            " ".join(row.scopes), " ".join(row.addresses), row.gpu_hours, row.gpu_hours_per if row.gpu_hours else "",
            row.made_by.username if row.made_by else "", row.created_at, row.expires_at, row.last_used_at, row.revoked_at,
        ]  # fmt: skip


def token_from_form(actor: Actor, form: TokenForm, row: Membership | None = None) -> str:
    """Creates the token, the actor's own or that of the service account in `row`; returns its text, or "" with errors
    in the form."""
    if not form.is_valid():
        return ""
    data = form.cleaned_data
    try:
        _token, secret = create_token(
            actor=actor,
            department=row.department if row else data["department"],
            holder=row.user if row else None,
            name=data["name"],
            scopes=data["scopes"],
            expires_at=timezone.now() + dt.timedelta(days=data["days"]),
            addresses=words_of(data["addresses"]),
            gpu_hours=data["gpu_hours"],
            gpu_hours_per=data["gpu_hours_per"] or TokenPeriod.MONTH,
        )
    except Problem as problem:
        form.add_error(problem.field if problem.field in form.fields else None, problem.detail)
        return ""
    return secret


@login_required
@require_POST
def revoke(request: HttpRequest, prefix: str) -> HttpResponse:
    actor = actor_of(request)
    token = ApiToken.objects.filter(prefix=prefix).select_related("holder", "department").first()
    own = token is not None and token.holder == actor.user
    if token is None or not (own or actor.may(Right.STEER, token.department)):
        raise NotVisible
    revoke_token(actor=actor, token=token)
    messages.success(request, _("%(name)s was revoked and can no longer be used.") % {"name": token.name})
    if own:
        return redirect("portal:tokens")
    if token.department is None:
        return redirect("portal:operator_user", token.holder.username)
    member = Membership.objects.filter(user=token.holder, department=token.department).exists()
    if member:
        return redirect("portal:member_tokens", token.department.slug, token.holder.username)
    return redirect("portal:members", token.department.slug)

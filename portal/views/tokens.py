"""A person's own API tokens: make one (shown once), see what lives, end it."""

from __future__ import annotations

import datetime as dt
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from portal.access import Actor, NotVisible, Right, actor_of
from portal.actions.tokens import create_token, revoke_token
from portal.errors import Problem
from portal.models import ApiToken, Department
from portal.names import LineInput, NameInput

SCOPES = [
    (Right.SEE.value, gettext_lazy("read: see boards, workloads and logs")),
    (Right.SUBMIT.value, gettext_lazy("submit: start and steer own workloads")),
    (Right.STEER.value, gettext_lazy("quota: members, caps, recalls, stop anyone's")),
    (Right.OPERATE.value, gettext_lazy("admin: what operators may")),
]
LIVES = [
    (7, gettext_lazy("7 days")),
    (30, gettext_lazy("30 days")),
    (90, gettext_lazy("90 days")),
    (365, gettext_lazy("1 year")),
]


class TokenForm(forms.Form):
    name = NameInput(label=gettext_lazy("Name"), max_length=80, help_text=gettext_lazy("What uses it: nightly-ci"))
    department = forms.ModelChoiceField(
        Department.objects.none(), label=gettext_lazy("Department"), to_field_name="slug", empty_label=None
    )
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("It may"), choices=SCOPES, widget=forms.CheckboxSelectMultiple, initial=["read", "submit"]
    )
    days = forms.TypedChoiceField(label=gettext_lazy("It ends after"), choices=LIVES, coerce=int, initial=90)
    addresses = LineInput(
        label=gettext_lazy("Only from these addresses"),
        required=False,
        help_text=gettext_lazy("Networks like 10.0.0.0/8, separated by commas; empty: from anywhere"),
    )

    def __init__(self, *args: Any, actor: Actor, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cast("forms.ModelChoiceField[Department]", self.fields["department"]).queryset = actor.departments
        if not actor.is_operator:
            cast(forms.MultipleChoiceField, self.fields["scopes"]).choices = SCOPES[:3]


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def tokens(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    form = TokenForm(request.POST or None, actor=actor)
    secret, status = "", 200
    if request.method == "POST":
        secret = made(actor, form)
        status = 200 if secret else 422
        form = TokenForm(actor=actor) if secret else form
    now = timezone.now()
    mine = ApiToken.objects.filter(holder=actor.user).select_related("department").order_by("-created_at")
    live = [token for token in mine if token.is_live(now)]
    context = {
        "form": form,
        "secret": secret,
        "live": live,
        "ended": [token for token in mine if token not in live][:20],
    }
    response = render(request, "portal/tokens.html", context, status=status)
    response["Cache-Control"] = "no-store"
    return response


def made(actor: Actor, form: TokenForm) -> str:
    """The new token's text; "" when the form is wrong, which then says why."""
    if not form.is_valid():
        return ""
    data = form.cleaned_data
    try:
        _token, secret = create_token(
            actor=actor,
            department=data["department"],
            name=data["name"],
            scopes=data["scopes"],
            expires_at=timezone.now() + dt.timedelta(days=data["days"]),
            addresses=[text for text in data["addresses"].replace(",", " ").split() if text],
        )
    except Problem as problem:
        form.add_error(problem.field if problem.field in form.fields else None, problem.detail)
        return ""
    return secret


@login_required
@require_POST
def revoke(request: HttpRequest, prefix: str) -> HttpResponse:
    actor = actor_of(request)
    token = ApiToken.objects.filter(holder=actor.user, prefix=prefix).first()
    if token is None:
        raise NotVisible
    revoke_token(actor=actor, token=token)
    messages.success(request, _("%(name)s is revoked: nothing can use it any more.") % {"name": token.name})
    return redirect("portal:tokens")

"""Whether a second factor is required, and removing it for somebody who has lost it."""

from __future__ import annotations

from collections.abc import Callable

from allauth.account.internal.flows.login import AUTHENTICATION_METHODS_SESSION_KEY
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from portal import audit
from portal.access import Actor, Forbidden
from portal.accounts import sessions
from portal.errors import N_
from portal.infra.locks import durable
from portal.models import User
from portal.web.problems import plain, wants_json

GetResponse = Callable[[HttpRequest], HttpResponse]
OPEN = ("/profile/second-factor/", "/profile/confirm/", "/logout/", "/login/", "/session/", "/preferences/", "/static/")
"""Paths that an operator without the required second factor can still reach."""


class SecondFactorMissing(Forbidden):
    code = "second_factor_missing"
    message = N_("Operators must use a second factor here. Set it up on your profile to continue.")


def has_one(user: User) -> bool:
    return bool(Authenticator.objects.filter(user=user).exclude(type=Authenticator.Type.RECOVERY_CODES).exists())


def is_required(request: HttpRequest) -> bool:
    """Whether this person needs one: operators who have logged in by password do. Providers require their own."""
    user = request.user
    if not settings.SECOND_FACTOR_FOR_OPERATORS or not isinstance(user, User) or not user.is_operator:
        return False
    records = request.session.get(AUTHENTICATION_METHODS_SESSION_KEY) or []
    return not any(each.get("method") == "socialaccount" for each in records)


def required(get_response: GetResponse) -> GetResponse:
    """Middleware: redirects operators without the required second factor to the page where they set it up. Does not apply to
    tokens."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if request.path.startswith(OPEN) or not is_required(request) or has_one(request.user):  # type: ignore[arg-type]
            return get_response(request)
        if wants_json(request):
            return plain(SecondFactorMissing(), request)
        return redirect(reverse("mfa_index"))

    return middleware


def remove(*, actor: Actor, user: User) -> int:
    """Removes the second factor of somebody who has lost it, and ends their sessions. For operators. Returns how many
    authenticators there were. Raises NotVisible."""
    actor.require_operator()
    with durable():
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        removed, _rows = Authenticator.objects.filter(user=user).delete()
        if removed:
            sessions.end_all(user)
            audit.record(actor, "user.second_factor_removed", f"user {user.username}")
    return int(removed)

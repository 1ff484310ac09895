"""What allauth asks the installation: who may sign in, how tries are counted, where people go, what is sent."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.contrib.auth import authenticate
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal import audit
from portal.access import Actor
from portal.accounts.client_address import parsed
from portal.errors import N_, Problem
from portal.infra.locks import durable
from portal.models import User
from portal.sign_in.guesses import Guess

TOO_MANY = "too_many_login_attempts"


class AccountLocked(Problem):
    status = 403
    code = "account_locked"
    message = N_("The account %(username)s is locked. An operator can unlock it.")


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no types
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Accounts come from operators, invitations and identity providers."""
        return False

    def authenticate(self, request: HttpRequest, **credentials: Any) -> AbstractBaseUser | None:
        """The person with this user name and password. Raises ValidationError after too many failures."""
        name = str(credentials.get("username") or "")
        guess = Guess(request, name)
        if not guess.allowed():
            raise ValidationError(too_many(guess.wait()), code=TOO_MANY)
        user = authenticate(request, username=name, password=credentials.get("password"))
        if user is not None:
            guess.succeeded()
        return user

    def get_client_ip(self, request: HttpRequest) -> str:
        """As portal.web.middleware.client_address has set it: X-Forwarded-For counts only from our proxies."""
        text = str(request.META.get("REMOTE_ADDR", ""))
        return str(parsed(text) or text)

    def is_safe_url(self, url: str) -> bool:
        """Only this very host: not other names of the installation, some of which serve what users made."""
        request = self.request
        return url_has_allowed_host_and_scheme(
            url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
        )

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        """Without an address that was asked for, an operator's first page is the overview."""
        return reverse("portal:operator" if getattr(request.user, "is_operator", False) else "portal:home")

    def is_ajax(self, request: HttpRequest) -> bool:
        """Pages are pages, whatever a request's headers say."""
        return False

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Pages say themselves what was done."""

    def respond_user_inactive(self, request: HttpRequest, user: AbstractBaseUser) -> HttpResponse:
        problem = AccountLocked(username=user.get_username())
        return render(request, "problem.html", {"problem": problem}, status=problem.status)

    def set_password(self, user: AbstractBaseUser, password: str) -> None:
        """A new password by the link that was mailed; all sessions of the person end with the old one."""
        with durable():
            row = User.objects.select_for_update(no_key=True).get(pk=user.pk)
            row.set_password(password)
            row.save(update_fields=["password"])
            audit.record(Actor(row), "user.password_reset", f"user {row.username}")


def too_many(seconds: int) -> str:
    minutes = max(1, -(-seconds // 60))
    text = ngettext(
        "Too many failed attempts. Try again in %(n)s minute.",
        "Too many failed attempts. Try again in %(n)s minutes.", minutes,
    )  # fmt: skip
    return text % {"n": minutes}


def wrong_password() -> str:
    return _("Wrong login name or password.")

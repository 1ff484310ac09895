"""Adapters that allauth calls: who may sign in, how attempts are counted, where people are redirected, what is mailed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import structlog
from allauth.account.adapter import DefaultAccountAdapter
from allauth.core import context
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialApp
from allauth.socialaccount.providers.base import AuthError
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import authenticate
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal import audit
from portal.access import Actor, NotVisible, actor_of
from portal.accounts.client_address import parsed
from portal.errors import N_, Problem
from portal.infra import crypt
from portal.infra.locks import durable
from portal.infra.providers.identity_providers import OpenIdConnect
from portal.infra.providers.saml import Saml
from portal.infra.providers.workplaces import Workplace
from portal.models import User
from portal.sign_in import directory_login, group_rules, identities
from portal.sign_in.claims import groups_of, said_at
from portal.sign_in.guesses import Guess

TOO_MANY, PASSWORDS_OFF, DIRECTORY_DOWN = "too_many_login_attempts", "passwords_off", "directory_away"
SECOND_FACTOR_ACTIONS = {
    "webauthn_added": "user.passkey_added",
    "webauthn_removed": "user.passkey_removed",
    "totp_activated": "user.second_factor_added",
    "totp_deactivated": "user.second_factor_removed",
    "recovery_codes_generated": "user.recovery_codes_made",
}
log = structlog.get_logger(__name__)


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
        user = self._user_with(request, name, str(credentials.get("password") or ""))
        if user is not None:
            guess.succeeded()
        return user

    def _user_with(self, request: HttpRequest, name: str, password: str) -> AbstractBaseUser | None:
        """The person with this password: the portal's own are tried first, then each directory. Raises ValidationError."""
        user = authenticate(request, username=name, password=password)
        if user is not None and may_use_password(user):
            return user
        try:
            person = directory_login.authenticate(name, password)
        except directory_login.DirectoryDown as down:
            raise ValidationError(down.detail, code=DIRECTORY_DOWN) from down
        if person is None and user is not None:
            raise ValidationError(passwords_off(), code=PASSWORDS_OFF)
        return person

    def reauthenticate(self, user: AbstractBaseUser, password: str) -> bool:
        """Whether the password is this person's, here or in a directory. Counted like a login attempt."""
        if not isinstance(user, User):
            return False
        guess = Guess(context.request, user.username)
        if not guess.allowed():
            raise ValidationError(too_many(guess.wait()), code=TOO_MANY)
        right = may_use_password(user) and user.check_password(password)
        try:
            right = right or directory_login.confirms(user, password)
        except directory_login.DirectoryDown as down:
            raise ValidationError(down.detail, code=DIRECTORY_DOWN) from down
        if right:
            guess.succeeded()
        return right

    def pre_login(self, request: HttpRequest, user: AbstractBaseUser, **kwargs: Any) -> HttpResponse | None:
        """Applies the person's groups as the provider reports them, before the session begins."""
        response: HttpResponse | None = super().pre_login(request, user, **kwargs)
        login = (kwargs.get("signal_kwargs") or {}).get("sociallogin")
        if response is None and login is not None:
            take_groups(login.account, login.account.extra_data)
            user.refresh_from_db(fields=["sessions_ended"])  # losing a group ended the sessions before this one
        return response

    def get_signup_redirect_url(self, request: HttpRequest) -> str:
        return self.get_login_redirect_url(request)

    def get_client_ip(self, request: HttpRequest) -> str:
        """As portal.web.middleware.client_address has set it: X-Forwarded-For counts only from our proxies."""
        text = str(request.META.get("REMOTE_ADDR", ""))
        return str(parsed(text) or text)

    def is_safe_url(self, url: str) -> bool:
        """Allows only this host, not the installation's other names, some of which serve users' content."""
        request = self.request
        return url_has_allowed_host_and_scheme(
            url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
        )

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        """The first page if no other was requested: for operators the overview."""
        return reverse("portal:operator" if getattr(request.user, "is_operator", False) else "portal:home")

    def is_ajax(self, request: HttpRequest) -> bool:
        """Always False: allauth answers with pages, whatever the request's headers are."""
        return False

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Drops allauth's messages: our pages have their own."""

    def respond_user_inactive(self, request: HttpRequest, user: AbstractBaseUser) -> HttpResponse:
        problem = AccountLocked(username=user.get_username())
        return render(request, "problem.html", {"problem": problem}, status=problem.status)

    def send_notification_mail(self, template_prefix: str, user: Any, *args: Any, **kwargs: Any) -> None:
        """Writes to the audit log what allauth would send by mail."""
        action = SECOND_FACTOR_ACTIONS.get(template_prefix.rpartition("/")[2])
        if action is not None:
            with transaction.atomic():
                audit.record(Actor(user), action, f"user {user.username}")

    def set_password(self, user: AbstractBaseUser, password: str) -> None:
        """Sets a new password by a mailed link; all sessions of the person end."""
        with durable():
            row = User.objects.select_for_update(no_key=True).get(pk=user.pk)
            row.set_password(password)
            row.save(update_fields=["password"])
            audit.record(Actor(row), "user.password_reset", f"user {row.username}")


class ProviderFailed(Problem):
    status = 502
    code = "provider_failed"
    message = N_("%(provider)s did not confirm who you are. Try again, or choose another way to log in.")


class ProviderBegan(Problem):
    status = 403
    code = "provider_began"
    message = N_(
        "A login that starts at %(provider)s is not accepted: it cannot be verified. Log in with the button for "
        "%(provider)s on the login page."
    )


class ProviderCancelled(Problem):
    status = 403
    code = "provider_cancelled"
    message = N_("The login at %(provider)s was cancelled.")


class ProviderAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Everybody whom a configured provider confirms gets an account; group rules and owners give it roles."""
        return True

    def list_apps(self, request: HttpRequest, provider: str | None = None, client_id: str | None = None) -> list[Any]:
        """The providers of the settings only; rows in the database do not count."""
        rows = [
            SocialApp(provider=each.protocol, **each.as_app())
            for each in settings.IDENTITY_PROVIDERS
            if isinstance(each, OpenIdConnect | Workplace | Saml) and provider in {None, each.protocol, each.key}
        ]
        return [row for row in rows if client_id in {None, row.client_id}]

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Links the account at the provider to the signed-in person, if that was asked for."""
        if sociallogin.state.get("process") != "connect":
            return
        actor = actor_of(request)
        if actor.user is None:
            raise NotVisible
        try:
            row = identities.link(actor=actor, user=actor.user, account=sociallogin.account)
            take_groups(row, sociallogin.account.extra_data)
            label = {"provider": identities.label_of(row.provider)}
            messages.success(request, _("Your account at %(provider)s is linked.") % label)
        except Problem as problem:
            messages.error(request, problem.detail)
        raise ImmediateHttpResponse(redirect("portal:profile"))

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> User:
        sociallogin.user = identities.create(sociallogin.account)
        return cast(User, sociallogin.user)

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        """Shows the same page for every failure; the log has the reason."""
        label = str(getattr(provider, "name", provider))
        log.warning("provider.failed", provider=label, error=str(error), exception=repr(exception))
        problem = ProviderCancelled if error == AuthError.CANCELLED else ProviderFailed
        raise ImmediateHttpResponse(failed(request, problem(provider=label)))


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Encrypts its secrets as all others are (`manage.py reencrypt` includes them)."""

    def generate_authenticator_name(self, user: Any, type: Any) -> str:
        return _("Passkey %(n)s") % {"n": Authenticator.objects.filter(user=user, type=type).count() + 1}

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        return {"id": context.request.get_host().partition(":")[0], "name": settings.MFA_TOTP_ISSUER}

    def encrypt(self, text: str) -> str:
        return crypt.encrypt(text)

    def decrypt(self, encrypted_text: str) -> str:
        return crypt.decrypt(encrypted_text, N_("A second factor"))


def take_groups(account: SocialAccount, data: Mapping[str, Any]) -> None:
    """Applies the person's groups as the account's provider reports them in `data`."""
    provider = identities.provider_of(account.provider)
    if provider is not None:
        group_rules.signed_in(account, groups_of(provider, data), said_at(data))


def failed(request: HttpRequest, problem: Problem) -> HttpResponse:
    return render(request, "portal/login_failed.html", {"problem": problem}, status=problem.status)


def may_use_password(user: AbstractBaseUser) -> bool:
    return settings.PASSWORD_SIGN_IN or bool(getattr(user, "is_break_glass", False))


def passwords_off() -> str:
    labels = ", ".join(each.label for each in settings.IDENTITY_PROVIDERS)
    return _("Passwords are not used here. Log in with %(providers)s.") % {"providers": labels}


def too_many(seconds: int) -> str:
    minutes = max(1, -(-seconds // 60))
    text = ngettext(
        "Too many failed attempts. Try again in %(n)s minute.",
        "Too many failed attempts. Try again in %(n)s minutes.", minutes,
    )  # fmt: skip
    return text % {"n": minutes}


def wrong_password() -> str:
    return _("Wrong login name or password.")

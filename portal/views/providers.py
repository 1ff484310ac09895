"""Sign-in through an identity provider: redirect, callback, and linked accounts."""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal.access import NotVisible, actor_of, operator_of
from portal.infra.providers.identity_providers import OpenIdConnect
from portal.infra.providers.workplaces import Workplace
from portal.models import User
from portal.sign_in import identities
from portal.sign_in.claims import cleaned
from portal.text.numbers import natural
from portal.views import saml, workplaces
from portal.views.provider_answers import answer


class Adapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]  # allauth has no types
    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        """The URL that is registered at the provider: it has the installation's address, whatever host name the browser
        used."""
        return str(settings.BASE_URL) + reverse("openid_connect_callback", args=[self.provider_id])

    def complete_login(self, request: HttpRequest, app: SocialApp, token: Any, **kwargs: Any) -> Any:
        """Completes the login. Raises ValueError for a subject with unprintable characters: it identifies people, so it must
        not be cleaned."""
        login = super().complete_login(request, app, token, **kwargs)
        if not login.account.uid.isprintable():
            raise ValueError("the subject has characters that cannot be seen")
        login.account.extra_data = cleaned(login.account.extra_data)
        return login


def _adapter(request: HttpRequest, provider_id: str) -> Adapter:
    if not isinstance(identities.provider_of(provider_id), OpenIdConnect):
        raise NotVisible
    return Adapter(request, provider_id)


@never_cache
@require_POST
def begin(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Redirects the browser to the provider. `process`: login, or connect for somebody who is signed in."""
    provider = identities.provider_of(provider_id)
    if provider is None or provider.kind == "ldap":
        raise NotVisible
    if request.POST.get("process", "login") not in {"login", "connect"}:
        raise NotVisible
    if request.POST.get("process") == "connect" and not request.user.is_authenticated:
        return redirect_to_login(reverse("portal:profile"))
    if provider.kind == "saml":
        return saml.begin(request, provider_id)
    if isinstance(provider, Workplace):
        return workplaces.begin(request, provider)
    return answer(request, provider_id, OAuth2LoginView.adapter_view(_adapter(request, provider_id)))


@never_cache
@require_safe
def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    """The URL to which the provider redirects the browser back."""
    provider = identities.provider_of(provider_id)
    if isinstance(provider, Workplace):
        return workplaces.callback(request, provider)
    return answer(request, provider_id, OAuth2CallbackView.adapter_view(_adapter(request, provider_id)))


@login_required
@require_POST
def unlink(request: HttpRequest, account: int) -> HttpResponse:
    """Unlinks an account of the person at a provider."""
    actor = actor_of(request)
    if actor.user is None:
        raise NotVisible
    identities.unlink(actor=actor, user=actor.user, account=account)
    # This session stays valid, even if roles were lost.
    update_session_auth_hash(request, User.objects.get(pk=actor.user.pk))
    messages.success(request, _("The account is no longer linked."))
    return redirect("portal:profile")


@login_required
@require_POST
def operator_accounts(request: HttpRequest, username: str) -> HttpResponse:
    """For operators: links an account at a provider to a person (`provider`, `subject`), or unlinks one (`unlink`)."""
    actor = operator_of(request)
    row = get_object_or_404(User, username=username, service_of=None)
    if "unlink" in request.POST:
        identities.unlink(actor=actor, user=row, account=natural(request.POST["unlink"]) or 0)
        messages.success(request, _("The account is no longer linked."))
    else:
        given = identities.named(request.POST.get("provider", ""), request.POST.get("subject", ""))
        identities.link(actor=actor, user=row, account=given)
        label = {"provider": identities.label_of(given.provider)}
        messages.success(request, _("The account at %(provider)s is linked.") % label)
    return redirect("portal:operator_user", username)

"""Sign-in through Feishu, DingTalk or WeCom: redirect and callback. Their answers become claims, and are handled as all
others."""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.models import SocialToken
from allauth.socialaccount.providers.oauth2.views import OAuth2Adapter, OAuth2CallbackView
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from portal.infra.providers.workplace_client import person_of
from portal.infra.providers.workplaces import Workplace
from portal.sign_in.adapters import ProviderAdapter
from portal.sign_in.claims import cleaned
from portal.sign_in.identities import LONGEST_SUBJECT
from portal.views.provider_answers import answer


def begin(request: HttpRequest, provider: Workplace) -> HttpResponse:
    """Redirects the browser to the service's login page."""

    def view(request: HttpRequest) -> HttpResponse:
        known = ProviderAdapter(request).get_provider(request, provider=provider.key)
        wanted = known.get_redirect_from_request_kwargs(request)
        state = known.stash_redirect_state(request, wanted["process"], wanted.get("next_url"))
        return redirect(provider.login_page(callback_url(provider), state))

    return answer(request, provider.key, view)


def callback(request: HttpRequest, provider: Workplace) -> HttpResponse:
    """The URL to which the service redirects the browser back."""
    if "authCode" in request.GET and "code" not in request.GET:  # DingTalk's name for it
        query = request.GET.copy()
        query["code"] = str(query["authCode"])
        request.GET = query  # type: ignore[assignment]
    return answer(request, provider.key, OAuth2CallbackView.adapter_view(Adapter(request, provider)))


def callback_url(provider: Workplace) -> str:
    return str(settings.BASE_URL) + reverse("openid_connect_callback", args=[provider.key])


class Adapter(OAuth2Adapter):  # type: ignore[misc]  # allauth has no types
    """allauth checks the state and completes the login; the person is requested from the service."""

    def __init__(self, request: HttpRequest, provider: Workplace) -> None:
        self.workplace, self.provider_id = provider, provider.key
        super().__init__(request)

    def get_client(self, request: HttpRequest, app: Any) -> None:
        return None

    def get_access_token_data(self, request: HttpRequest, app: Any, client: Any, pkce_code_verifier: Any = None) -> Any:
        return {"code": request.GET["code"]}

    def parse_token(self, data: Any) -> SocialToken:
        return SocialToken()  # tokens of the service are used at once, and never stored

    def complete_login(self, request: HttpRequest, app: Any, token: SocialToken, **kwargs: Any) -> Any:
        """Completes the login. Raises ValueError for people outside the organisation, and for a subject with unprintable
        characters."""
        claims = person_of(self.workplace, kwargs["response"]["code"], callback_url(self.workplace))
        if not claims["sub"].isprintable() or len(claims["sub"]) > LONGEST_SUBJECT:
            raise ValueError("the subject is too long, or has characters that cannot be seen")
        login = self.get_provider().sociallogin_from_response(request, cleaned({"userinfo": claims}))
        login.email_addresses = []
        return login

"""Passkeys on the profile and at the login page: allauth's flows on our pages."""

from __future__ import annotations

from typing import Any

import redis
from allauth.mfa.webauthn import views
from allauth.mfa.webauthn.internal import auth
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache

from portal.errors import Busy
from portal.views.second_factor import SecurityView

own_page = method_decorator([login_required, never_cache], name="dispatch")


@method_decorator(never_cache, name="dispatch")
class Login(views.LoginWebAuthnView):  # type: ignore[misc]  # allauth has no types
    """Sends the browser the challenge that a passkey has to sign (GET), and logs in the owner of the passkey that has signed it
    (POST)."""

    http_method_names = ["get", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response: HttpResponse = super().dispatch(request, *args, **kwargs)
        except redis.RedisError as error:
            raise Busy from error
        return response

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return JsonResponse({"request_options": auth.begin_authentication(user=None)})

    def form_invalid(self, form: Any) -> HttpResponse:
        for errors in form.errors.values():
            for text in errors:
                messages.error(self.request, text)
        return redirect("account_login")


@own_page
class Add(SecurityView, views.AddWebAuthnView):  # type: ignore[misc]
    template_name = "portal/passkey_add.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Requests a discoverable passkey, which requires a fingerprint, face or PIN."""
        context: dict[str, Any] = super().get_context_data(**kwargs)
        options = auth.begin_registration(self.request.user, True)
        return context | kwargs | {"js_data": {"creation_options": options}}


@own_page
class Rename(SecurityView, views.EditWebAuthnView):  # type: ignore[misc]
    template_name = "portal/passkey_rename.html"
    success_url = reverse_lazy("mfa_index")


@own_page
class Remove(SecurityView, views.RemoveWebAuthnView):  # type: ignore[misc]
    template_name = "portal/passkey_remove.html"
    success_url = reverse_lazy("mfa_index")


@own_page
class Confirm(SecurityView, views.ReauthenticateWebAuthnView):  # type: ignore[misc]
    """Requires a passkey again before sign-in settings are changed, for people without a password."""

    template_name = "portal/passkey_confirm.html"

    def form_invalid(self, form: Any) -> HttpResponse:
        response: HttpResponse = self.render_to_response(self.get_context_data(form=form), status=422)
        return response

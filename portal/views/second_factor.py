"""A second factor beside the password: an authenticator app (TOTP) and recovery codes. allauth's flows on our pages."""

from __future__ import annotations

from typing import Any

import redis
from allauth.account import views as account_views
from allauth.mfa.base import views as base
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes import views as codes
from allauth.mfa.totp import views as totp
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache

from portal.errors import N_, Busy, Problem
from portal.sign_in import second_factor
from portal.views.login import RefusedWith422


class NoPassword(Problem):
    status = 403
    code = "no_password"
    message = N_("You log in through an identity provider, which asks for a second factor if it has one for you.")


class SecurityView(RefusedWith422):
    """A view of these forms. Refuses with Busy without the cache, which has the codes that were used."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response: HttpResponse = super().dispatch(request, *args, **kwargs)  # type: ignore[misc]
        except redis.RedisError as error:
            raise Busy from error
        except PermissionDenied as error:  # the person has neither a password nor a second factor to confirm with
            raise NoPassword from error
        return response

    def get_form(self, *args: Any, **kwargs: Any) -> Any:
        return named(super().get_form(*args, **kwargs))  # type: ignore[misc]


def named(form: Any) -> Any:
    """The form, with our labels."""
    if "code" in form.fields:
        form.fields["code"].label = gettext_lazy("Code")
        form.fields["code"].max_length = 20
        form.fields["code"].widget.attrs = {
            "autocomplete": "one-time-code", "inputmode": "numeric", "autofocus": True, "maxlength": 20,
        }  # fmt: skip
    if "password" in form.fields:
        form.fields["password"].label = gettext_lazy("Password")
        form.fields["password"].help_text = ""
        form.fields["password"].widget.attrs = {"autocomplete": "current-password", "autofocus": True}
    return form


@method_decorator(never_cache, name="dispatch")
class Authenticate(SecurityView, base.AuthenticateView):  # type: ignore[misc]  # allauth has no types
    """The second factor at login, after the password."""

    template_name = "portal/login_second_factor.html"

    def _build_forms(self) -> Any:
        form = super()._build_forms()
        named(self.auth_form)
        return form

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**kwargs)
        types = Authenticator.objects.filter(user=self.stage.login.user).values_list("type", flat=True)
        return context | {
            "has_passkey": Authenticator.Type.WEBAUTHN in types,
            "has_app": Authenticator.Type.TOTP in types,
        }


own_page = method_decorator([login_required, never_cache], name="dispatch")


@own_page
class Index(base.IndexView):  # type: ignore[misc]
    template_name = "portal/second_factor.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**kwargs)
        return context | {"required": second_factor.is_required(self.request)}


@own_page
class Activate(SecurityView, totp.ActivateTOTPView):  # type: ignore[misc]
    template_name = "portal/second_factor_app.html"


@own_page
class Deactivate(SecurityView, totp.DeactivateTOTPView):  # type: ignore[misc]
    template_name = "portal/second_factor_remove.html"


@own_page
class Codes(SecurityView, codes.ViewRecoveryCodesView):  # type: ignore[misc]
    template_name = "portal/second_factor_codes.html"


@own_page
class NewCodes(SecurityView, codes.GenerateRecoveryCodesView):  # type: ignore[misc]
    template_name = "portal/second_factor_new_codes.html"


@own_page
class Confirm(SecurityView, account_views.ReauthenticateView):  # type: ignore[misc]
    """Requires the password again before sign-in settings are changed."""

    template_name = "portal/confirm_password.html"


@own_page
class ConfirmByCode(SecurityView, base.ReauthenticateView):  # type: ignore[misc]
    template_name = "portal/confirm_password.html"

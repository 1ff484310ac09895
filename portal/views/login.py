"""Login, logout, and forgotten passwords: allauth's flows on our pages. How attempts are counted: portal/sign_in/guesses.py."""

from __future__ import annotations

from typing import Any

import redis
from allauth.account import forms as allauth_forms
from allauth.account import views as allauth_views
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import LogoutView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.middleware.csrf import get_token
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal.errors import Busy
from portal.infra.providers.directories import Directory
from portal.names import LineInput
from portal.sign_in import forgotten, guesses
from portal.sign_in.adapters import DIRECTORY_DOWN, PASSWORDS_OFF, TOO_MANY, wrong_password
from portal.sign_in.directory_login import directories

STATUS = {TOO_MANY: 429, PASSWORDS_OFF: 422, DIRECTORY_DOWN: 503}


class LoginForm(allauth_forms.LoginForm):  # type: ignore[misc]  # allauth has no types
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        widget = forms.TextInput(attrs={"autocomplete": "username", "autofocus": True, "maxlength": 150})
        self.fields["login"] = LineInput(label=gettext_lazy("Login name"), max_length=150, widget=widget)
        password = forms.PasswordInput(attrs={"autocomplete": "current-password"})
        self.fields["password"] = forms.CharField(
            label=gettext_lazy("Password"), max_length=1000, strip=False, widget=password
        )
        self.order_fields(["login", "password"])

    def add_prefix(self, field_name: str) -> str:
        return "username" if field_name == "login" else str(super().add_prefix(field_name))

    def _clean_with_password(self, credentials: dict[str, Any]) -> dict[str, Any]:
        try:
            return super()._clean_with_password(credentials)  # type: ignore[no-any-return]
        except ValidationError as error:
            if error.code in STATUS:
                raise
            raise ValidationError(wrong_password(), code="wrong") from error


class Login(allauth_views.LoginView):  # type: ignore[misc]
    template_name = "portal/login.html"
    form_class = LoginForm

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Answers 401 to requests for a part of a page after the session has ended, so that the part is not replaced by the
        login page: the page stays and requests a login (static/session.js)."""
        htmx: Any = getattr(request, "htmx", None)
        if htmx and not htmx.boosted:
            return HttpResponse(status=401)
        response: HttpResponse = super().get(request, *args, **kwargs)
        return response

    def form_valid(self, form: Any) -> HttpResponse:
        response: HttpResponse = super().form_valid(form)
        guesses.remember(self.request, response, form.cleaned_data["login"])
        return response

    def form_invalid(self, form: Any) -> HttpResponse:
        status = next((each for code, each in STATUS.items() if form.has_error("__all__", code)), 422)
        return HttpResponse(self.render_to_response(self.get_context_data(form=form)).render().content, status=status)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**kwargs)
        more = {
            "next": self.get_next_url() or "",
            "providers": [each for each in settings.IDENTITY_PROVIDERS if not isinstance(each, Directory)],
            "directories": ", ".join(each.label for each in directories()),
            "passwords": settings.PASSWORD_SIGN_IN,
        }
        return context | more


@never_cache
@require_safe
def session(request: HttpRequest) -> JsonResponse:
    """Whether the session is valid, its user, and the current CSRF token, which a login in another tab changes. Pages request
    it before they send a form (static/session.js)."""
    known = request.user.is_authenticated
    answer = {"user": request.user.get_username() if known else "", "csrf": get_token(request)}
    return JsonResponse(answer, status=200 if known else 401)


class Logout(LogoutView):
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = super().post(request, *args, **kwargs)
        response["Clear-Site-Data"] = '"cache"'
        return response


class RefusedWith422:
    """A view that shows a refused form again with 422."""

    def form_invalid(self, form: Any) -> HttpResponse:
        response: HttpResponse = super().form_invalid(form)  # type: ignore[misc]
        response.status_code = 422
        return response


class ForgottenForm(forms.Form):
    email = forms.EmailField(
        label=gettext_lazy("E-mail"), max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "email"})
    )

    def save(self, request: HttpRequest) -> None:
        forgotten.send_links(self.cleaned_data["email"])


@method_decorator(never_cache, name="dispatch")
class Forgotten(RefusedWith422, allauth_views.PasswordResetView):  # type: ignore[misc]
    """The form for an e-mail address. The response is the same whether an account has it or not."""

    template_name = "portal/password_forgotten.html"
    form_class = ForgottenForm
    success_url = reverse_lazy("account_reset_password_done")

    def form_valid(self, form: Any) -> HttpResponse:
        try:
            response: HttpResponse = super().form_valid(form)
        except redis.RedisError as error:  # the rate limit cannot be checked, so nothing is mailed
            raise Busy from error
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**kwargs)
        return context | {"forgotten": forgotten.is_possible()}


class ForgottenSent(allauth_views.PasswordResetDoneView):  # type: ignore[misc]
    template_name = "portal/password_forgotten_sent.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**kwargs)
        return context | {"hours": settings.PASSWORD_RESET_TIMEOUT // 3600}


class TokenForm(allauth_forms.UserTokenForm):  # type: ignore[misc]
    token_generator = forgotten.TOKENS

    def _get_user(self, uidb36: str) -> Any:
        user = super()._get_user(uidb36)
        return user if user is not None and forgotten.may_reset(user) else None


class NewPasswordForm(allauth_forms.ResetPasswordKeyForm):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password1"].label = gettext_lazy("New password")
        self.fields["password1"].help_text = gettext_lazy("At least 10 characters.")
        self.fields["password2"].label = gettext_lazy("New password, again")
        for name in ("password1", "password2"):
            self.fields[name].widget.attrs.pop("placeholder", None)

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = forms.Form.clean(self) or {}
        if data.get("password1") and data.get("password2") and data["password1"] != data["password2"]:
            self.add_error("password2", _("The two passwords differ."))
        return data


@method_decorator(never_cache, name="dispatch")
class NewPassword(RefusedWith422, allauth_views.PasswordResetFromKeyView):  # type: ignore[misc]
    """The page behind the mailed link, which works once and for a limited time."""

    template_name = "portal/password_new.html"
    form_class = NewPasswordForm
    success_url = reverse_lazy("account_login")

    def form_valid(self, form: Any) -> HttpResponse:
        response: HttpResponse = super().form_valid(form)
        messages.success(self.request, _("The password was changed. Log in with the new one."))
        return response

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        status = 410 if context.get("token_fail") else 200
        response: HttpResponse = super().render_to_response(context, status=status, **kwargs)
        return response

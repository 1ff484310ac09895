"""Login and logout. Failed logins are counted by django-axes and portal/accounts/password_guesses.py; past the limit
portal.web.pages.locked_out answers."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import views
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.middleware.csrf import get_token
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal.accounts import password_guesses


class Login(views.LoginView):
    template_name = "portal/login.html"
    redirect_authenticated_user = True

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """A part that asks after the session has ended must not get this page into its place: 401, and the page stays and
        asks to log in again (static/session.js)."""
        htmx: Any = getattr(request, "htmx", None)
        if htmx and not htmx.boosted:
            return HttpResponse(status=401)
        return super().get(request, *args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        response = super().form_valid(form)
        password_guesses.remember(self.request, response, form.get_user().username)
        return response

    def form_invalid(self, form: Any) -> HttpResponse:
        return self.render_to_response(self.get_context_data(form=form), status=422)

    def get_success_url(self) -> str:
        """Where the login was asked for; else an operator's first page is the overview."""
        home = reverse("portal:operator") if getattr(self.request.user, "is_operator", False) else ""
        return self.get_redirect_url() or home or settings.LOGIN_REDIRECT_URL


@never_cache
@require_safe
def session(request: HttpRequest) -> JsonResponse:
    """Whether the session is valid, whose it is, and the current CSRF token: a login in another tab changes it. Pages
    ask before they send a form (static/session.js)."""
    known = request.user.is_authenticated
    answer = {"user": request.user.get_username() if known else "", "csrf": get_token(request)}
    return JsonResponse(answer, status=200 if known else 401)


class Logout(views.LogoutView):
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = super().post(request, *args, **kwargs)
        response["Clear-Site-Data"] = '"cache"'
        return response

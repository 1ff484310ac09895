"""In and out. Failed logins are counted by django-axes (portal.web.locked_out shows when it is enough)."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth import views
from django.http import HttpRequest, HttpResponse


class Login(views.LoginView):
    template_name = "portal/login.html"
    redirect_authenticated_user = True

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """A live part that asks after the session has ended must not get this page into its place: the whole page goes."""
        htmx: Any = getattr(request, "htmx", None)
        if htmx and not htmx.boosted:
            here = urlencode({"next": htmx.current_url_abs_path or "/"})
            return HttpResponse(status=204, headers={"HX-Redirect": f"{settings.LOGIN_URL}?{here}"})
        return super().get(request, *args, **kwargs)

    def form_invalid(self, form: Any) -> HttpResponse:
        return self.render_to_response(self.get_context_data(form=form), status=422)

    def get_success_url(self) -> str:
        return self.get_redirect_url() or settings.LOGIN_REDIRECT_URL


class Logout(views.LogoutView):
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = super().post(request, *args, **kwargs)
        response["Clear-Site-Data"] = '"cache"'
        return response

"""What every page and API answer goes through: request id, the reader's language and zone, problems as answers."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseNotAllowed
from django.shortcuts import render
from django.utils import timezone, translation
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _

from portal.access import NotVisible
from portal.addresses import believe_only_proxies
from portal.errors import N_, Problem
from portal.ids import new_id
from portal.models import User
from portal.problems import NullCharacter, plain, wants_json
from portal.shell import Shell

GetResponse = Callable[[HttpRequest], HttpResponse]
REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{8,40}")


def request_id(get_response: GetResponse) -> GetResponse:
    """Takes the proxy's X-Request-ID or makes one; every log line and audit row of the request carries it."""

    def middleware(request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-ID", "")
        identity = given if REQUEST_ID.fullmatch(given) else new_id()
        with structlog.contextvars.bound_contextvars(request_id=identity):
            response = get_response(request)
        response["X-Request-ID"] = identity
        return response

    return middleware


def client_address(get_response: GetResponse) -> GetResponse:
    """The outermost: everything behind it finds the client in REMOTE_ADDR, and no header that a client made up."""

    def middleware(request: HttpRequest) -> HttpResponse:
        believe_only_proxies(request.META)
        return get_response(request)

    return middleware


def no_null(get_response: GetResponse) -> GetResponse:
    """A null character in an address means nothing anywhere, and PostgreSQL refuses it."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if "\x00" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            problem = NullCharacter()
            if wants_json(request):
                return plain(problem, request)
            return HttpResponseBadRequest(f"{problem.detail}\n", content_type="text/plain; charset=utf-8")
        return get_response(request)

    return middleware


def preferences(get_response: GetResponse) -> GetResponse:
    """The user's own language and zone; else the language cookie, the browser's language, and the zone that the browser
    told (static/portal.js) or the installation's."""

    def middleware(request: HttpRequest) -> HttpResponse:
        user = request.user
        language = user.language if isinstance(user, User) else ""
        with translation.override(language or translation.get_language_from_request(request)):
            with timezone.override(zone_of(user, request.COOKIES.get("zone", ""))):
                response = get_response(request)
            response.headers.setdefault("Content-Language", translation.get_language() or "en")
        response.headers.setdefault("Cache-Control", "private, no-cache")
        return response

    return middleware


def zone_of(user: Any, told: str = "") -> zoneinfo.ZoneInfo:
    """Chosen in the profile; else what the reader's browser told; else the installation's."""
    name = user.time_zone if isinstance(user, User) else ""
    try:
        return zoneinfo.ZoneInfo(name or told or settings.TIME_ZONE)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder
        return zoneinfo.ZoneInfo(settings.TIME_ZONE)


class OnlyForms(Problem):
    """Whoever logs in again after a form was sent too late is led to the form's own address."""

    status = 405
    code = "method_not_allowed"
    message = N_("This address only takes what a form sends. Go back to the page with the form, and send it again.")


def problems(get_response: GetResponse) -> GetResponse:
    """A Problem that a page's view did not turn into its form becomes a page that says what and what next."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if isinstance(response, HttpResponseNotAllowed) and request.method == "GET" and not response.content:
            page = render(request, "problem.html", {"problem": OnlyForms()}, status=405)
            page.headers["Allow"] = response.headers["Allow"]
            return page
        return response

    def process_exception(request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, Problem):
            return None
        if isinstance(exception, NotVisible):
            return render(request, "404.html", status=404)
        status = 409 if exception.code == "stale" else exception.status  # there is no If-Match in a form
        return render(request, "problem.html", {"problem": exception}, status=status)

    middleware.process_exception = process_exception  # type: ignore[attr-defined]
    return middleware


def locked_out(request: HttpRequest, response: Any = None, credentials: dict[str, Any] | None = None) -> HttpResponse:
    """django-axes: too many failed logins."""
    return render(
        request,
        "portal/login.html",
        {"locked": _("Too many failed attempts. Try again in 15 minutes.")},
        status=429,
    )


def favicon(request: HttpRequest) -> HttpResponse:
    """Browsers ask for it by this name wherever a page names none, as on downloads and logs."""
    icon = (settings.BASE_DIR / "static" / "favicon.ico").read_bytes()
    return HttpResponse(icon, content_type="image/x-icon", headers={"Cache-Control": "public, max-age=86400"})


def frame(request: HttpRequest) -> dict[str, Any]:
    """What base.html needs on every page; `csp_nonce` is the name django-htmx looks for."""
    return {
        "VERSION": settings.VERSION,
        "EMBEDDED": settings.EMBEDDED,
        "DEBUG": settings.DEBUG,
        "shell": Shell(request),
        "csp_nonce": getattr(request, "csp_nonce", ""),
        "back_here": back_here(request),
    }


def wants_part(request: HttpRequest, part: str) -> bool:
    """Whether htmx asks for the element with this id, of a page with several live parts."""
    return request.headers.get("HX-Target") == part


def back_here(request: HttpRequest) -> str:
    """Where the switches of language and theme lead back to: this page; where a form's POST is answered by a page, the page
    that the form was on. A view that knows better says `here`."""
    if request.method not in ("POST", "PUT", "PATCH", "DELETE"):
        return request.get_full_path()
    parts = urlsplit(request.headers.get("Referer", ""))
    same = parts.netloc == request.get_host()
    return (f"{parts.path}?{parts.query}" if parts.query else parts.path) if same else request.get_full_path()


def render_part(
    request: HttpRequest, template: str, context: dict[str, Any], *, part: str, status: int = 200
) -> HttpResponse:
    """The page; or, for an htmx request that is no navigation, only its partial `part`. Caches keep them apart."""
    htmx: Any = getattr(request, "htmx", None)
    partial = htmx and not htmx.boosted and not htmx.history_restore_request
    response = render(request, f"{template}#{part}" if partial else template, context, status=status)
    patch_vary_headers(response, ["HX-Request", "HX-Target", "HX-Boosted", "HX-History-Restore-Request"])
    return response

"""Middleware of every request: request id, client address, language and time zone, problems as pages."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import asdict

import structlog
from csp.constants import HEADER
from csp.middleware import CSPMiddleware
from csp.utils import build_policy
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseNotAllowed
from django.http.response import HttpResponseBase
from django.middleware.common import CommonMiddleware
from django.middleware.gzip import GZipMiddleware
from django.shortcuts import render
from django.urls import Resolver404, resolve
from django.utils import timezone, translation

from portal.access import NotVisible
from portal.accounts.client_address import believe_only_proxies
from portal.errors import N_, Problem
from portal.ids import new_id
from portal.infra.confirm import Unconfirmed
from portal.models import User
from portal.text.zones import zone_of
from portal.web import confirm
from portal.web.problems import NullCharacter, plain, wants_json

GetResponse = Callable[[HttpRequest], HttpResponse]
REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{8,40}")


def request_id(get_response: GetResponse) -> GetResponse:
    """Uses the proxy's X-Request-ID or generates one; every log line and audit entry of the request has it."""

    def middleware(request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-ID", "")
        identity = given if REQUEST_ID.fullmatch(given) else new_id()
        with structlog.contextvars.bound_contextvars(request_id=identity):
            response = get_response(request)
        response["X-Request-ID"] = identity
        return response

    return middleware


def client_address(get_response: GetResponse) -> GetResponse:
    """The outermost middleware: sets REMOTE_ADDR to the client's address and drops forged headers."""

    def middleware(request: HttpRequest) -> HttpResponse:
        believe_only_proxies(request.META)
        return get_response(request)

    return middleware


class ContentSecurityPolicy(CSPMiddleware):
    """django-csp has no policy for 404 and 500 under DEBUG, because Django's technical pages would not work with one; the demo
    has its own pages (portal.web.error_pages)."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response = super().process_response(request, response)
        if settings.DEBUG and settings.EMBEDDED and response.status_code in (404, 500):
            parts = self.get_policy_parts(request=request, response=response)
            response.headers.setdefault(HEADER, build_policy(**asdict(parts)))
        return response


class NoSlash(NotVisible):
    message = N_("Not found. The address must end with a slash.")


class Slashes(CommonMiddleware):
    """Redirects to the address with a slash only what is read: a redirected POST becomes a GET, which looks like success."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if (
            response.status_code == 404
            and request.method not in ("GET", "HEAD")
            and self.should_redirect_with_slash(request)
        ):
            return plain(NoSlash(), request) if wants_json(request) else response
        return super().process_response(request, response)


class CompressedPages(GZipMiddleware):
    """Compresses pages and their live parts, which browsers request every few seconds. Not streams, which must arrive piece by
    piece, and not the API, whose strong ETags compression would weaken."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if response.streaming or not response.headers.get("Content-Type", "").startswith("text/html"):
            return response
        return super().process_response(request, response)


def no_null(get_response: GetResponse) -> GetResponse:
    """Refuses null characters in an address: they mean nothing, and PostgreSQL rejects them."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if "\x00" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            problem = NullCharacter()
            if wants_json(request):
                return plain(problem, request)
            return HttpResponseBadRequest(f"{problem.detail}\n", content_type="text/plain; charset=utf-8")
        return get_response(request)

    return middleware


def preferences(get_response: GetResponse) -> GetResponse:
    """Activates language and time zone: the user's own; else the language cookie or the browser's language, and the
    browser's zone (static/portal.js) or the installation's."""

    def middleware(request: HttpRequest) -> HttpResponse:
        user = request.user
        language = user.language if isinstance(user, User) else ""
        with translation.override(language or translation.get_language_from_request(request)):
            with timezone.override(
                zone_of(user.time_zone if isinstance(user, User) else "", request.COOKIES.get("zone", ""))
            ):
                response = get_response(request)
            response.headers.setdefault("Content-Language", translation.get_language() or "en")
        response.headers.setdefault("Cache-Control", "private, no-cache")
        return response

    return middleware


class OnlyForms(Problem):
    """A GET of an address that only accepts POST, as after a login that a form's POST required."""

    status = 405
    code = "method_not_allowed"
    message = N_("This address only accepts form submissions. Return to the page with the form and submit it again.")


def _page_above(path: str) -> str:
    """The closest page above an address, which has the form, as a relative link: it repeats nothing of the address. "" if only
    the home page is above."""
    steps = ""
    while path := path.rstrip("/").rpartition("/")[0]:
        steps += "../"
        with contextlib.suppress(Resolver404):
            resolve(f"{path}/")
            return steps
    return ""


def problems(get_response: GetResponse) -> GetResponse:
    """Shows a Problem that a view did not handle as a page with what is wrong and what to do next."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if isinstance(response, HttpResponseNotAllowed) and request.method == "GET" and not response.content:
            page = render(
                request, "problem.html", {"problem": OnlyForms(), "above": _page_above(request.path)}, status=405
            )
            page.headers["Allow"] = response.headers["Allow"]
            return page
        return response

    def process_exception(request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, Problem):
            return None
        if isinstance(exception, Unconfirmed):
            return confirm.page(request, exception)
        if isinstance(exception, NotVisible):
            return render(request, "404.html", status=404)
        status = 409 if exception.code == "stale" else exception.status  # there is no If-Match in a form
        return render(request, "problem.html", {"problem": exception}, status=status)

    middleware.process_exception = process_exception  # type: ignore[attr-defined]
    return middleware

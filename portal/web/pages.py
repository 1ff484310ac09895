"""How pages are rendered: frame, live parts, and links back."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers

from portal.errors import N_, Problem
from portal.web.navigation import Shell


class TooManyRequests(Problem):
    status = 429
    code = "too_many_requests"
    message = N_("This was requested too often from here. Try again in 15 minutes.")


def too_many_requests(request: HttpRequest) -> HttpResponse:
    """The page for allauth's limits, except that on failed logins: portal/settings.py, ACCOUNT_RATE_LIMITS."""
    return render(request, "problem.html", {"problem": TooManyRequests()}, status=429)


def favicon(request: HttpRequest) -> HttpResponse:
    """The icon that browsers request by this name if a page names none, as for downloads and logs."""
    icon = (settings.BASE_DIR / "static" / "favicon.ico").read_bytes()
    return HttpResponse(icon, content_type="image/x-icon", headers={"Cache-Control": "public, max-age=86400"})


def frame(request: HttpRequest) -> dict[str, Any]:
    """What base.html needs on every page; the name `csp_nonce` is required by django-htmx."""
    return {
        "VERSION": settings.VERSION,
        "EMBEDDED": settings.EMBEDDED,
        "DEBUG": settings.DEBUG,
        "shell": Shell(request),
        "csp_nonce": getattr(request, "csp_nonce", ""),
        "back_here": back_here(request),
    }


def wants_part(request: HttpRequest, part: str) -> bool:
    """Whether htmx requests the element with this id, on a page with several live parts."""
    return request.headers.get("HX-Target") == part


def back_here(request: HttpRequest) -> str:
    """Where changing the language or theme leads back to: this page, or after a form's POST the page with the form.
    A view may override it with `here` in its context."""
    if request.method not in ("POST", "PUT", "PATCH", "DELETE"):
        return request.get_full_path()
    parts = urlsplit(request.headers.get("Referer", ""))
    same = parts.netloc == request.get_host()
    return (f"{parts.path}?{parts.query}" if parts.query else parts.path) if same else request.get_full_path()


def render_part(
    request: HttpRequest, template: str, context: dict[str, Any], *, part: str, status: int = 200
) -> HttpResponse:
    """The page; for an htmx request that is no navigation, only its partial `part`. Vary headers keep both apart in
    caches."""
    htmx: Any = getattr(request, "htmx", None)
    partial = htmx and not htmx.boosted and not htmx.history_restore_request
    response = render(request, f"{template}#{part}" if partial else template, context, status=status)
    patch_vary_headers(response, ["HX-Request", "HX-Target", "HX-Boosted", "HX-History-Restore-Request"])
    return response

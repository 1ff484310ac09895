"""What people see when something is missing, forbidden or broken, in the demo and in an installation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import include, path
from django.views import debug

from portal.urls import urlpatterns as all_patterns
from portal.web import error_pages
from portal.web.problems import bad_request, not_found, server_error
from tests import builders as make

pytestmark = pytest.mark.django_db


def broken(request: HttpRequest) -> HttpResponse:
    raise KeyError("a secret of the code")


def missing(request: HttpRequest) -> HttpResponse:
    raise Http404("a secret of the code")


def denied(request: HttpRequest) -> HttpResponse:
    raise PermissionDenied("a secret of the code")


urlpatterns = [
    path("broken/", broken),
    path("missing/", missing),
    path("denied/", denied),
    path("", include(all_patterns)),
]
handler400, handler404, handler500 = bad_request, not_found, server_error


@pytest.fixture(params=[True, False], ids=["demo", "installation"])
def client(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A browser with a session; the server runs as the demo or as an installation."""
    for name in ("technical_404_response", "technical_500_response"):
        monkeypatch.setattr(debug, name, getattr(debug, name))  # restored afterwards
    with override_settings(DEBUG=request.param, EMBEDDED=request.param, ROOT_URLCONF=__name__):
        error_pages.replace_technical_pages()
        browser = Client(raise_request_exception=False)
        browser.force_login(make.user("alice"))
        yield browser


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/no/such/page/", 404, "Not found, or you do not have access."),
        ("/d/no-such-department/", 404, "Not found, or you do not have access."),
        ("/missing/", 404, "Not found, or you do not have access."),
        ("/denied/", 403, "You do not have permission to do this."),
        ("/broken/", 500, "Something broke on our side"),
    ],
)
def test_every_error_has_a_page_of_the_portal(client: Client, address: str, status: int, words: str) -> None:
    answer = client.get(address)
    text = answer.content.decode()
    assert (answer.status_code, words in text) == (status, True), text[:500]
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    nonces = set(re.findall(r'<script[^>]* nonce="([^"]*)"', text))
    assert all(f"'nonce-{nonce}'" in answer.headers["Content-Security-Policy"] for nonce in nonces)
    for internal in ("a secret of the code", "Traceback", "URLconf", "DEBUG = True", "Exception"):
        assert internal not in text
    if status != 500:
        assert 'lang="zh-hans"' in client.get(address, headers={"Accept-Language": "zh-CN"}).content.decode()


def test_programs_get_a_problem_document_instead(client: Client) -> None:
    answer = client.get("/api/v1/no-such-thing/")
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")


def test_unknown_host_name_gets_400_without_internal_details(client: Client) -> None:
    for address in ("/", "/api/v1/workloads/"):
        answer = client.get(address, headers={"Host": "evil.example"})
        assert answer.status_code == 400
        assert "ALLOWED_HOSTS" not in answer.content.decode()


def test_missing_trailing_slash_is_added(client: Client) -> None:
    answer = client.get("/profile")
    assert (answer.status_code, answer.headers["Location"]) == (301, "/profile/")


def test_icon_is_served_where_browsers_look_for_it() -> None:
    answer = Client().get("/favicon.ico")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/x-icon")
    assert answer.content[:4] == b"\0\0\1\0"
    assert "max-age" in answer.headers["Cache-Control"]

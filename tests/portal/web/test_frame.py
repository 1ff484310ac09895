"""The frame of every page, login and profile, through the real middleware."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client, override_settings
from django.urls import reverse

from portal.models import ApiToken, Department, InboxItem, Membership, Role, User
from tests import builders as make

pytestmark = pytest.mark.django_db
STATIC = Path(settings.BASE_DIR) / "static"


@pytest.fixture
def alice() -> User:
    user = User.objects.create_user("alice", password="correct horse battery")
    department = Department.objects.create(slug="vision", name="Computer vision")
    Membership.objects.create(user=user, department=department, role=Role.MEMBER)
    return user


@pytest.fixture
def page(client: Client, alice: User) -> Client:
    client.force_login(alice)
    return client


def text(response: Any) -> str:
    return str(response.content.decode())


def test_page_requires_a_login_that_leads_back_to_it(client: Client, alice: User) -> None:
    response = client.get("/profile/")
    assert response.headers["Location"] == "/login/?next=/profile/"
    form = {"username": "alice", "password": "correct horse battery", "next": "/profile/"}
    assert client.post("/login/", form).headers["Location"] == "/profile/"


def test_htmx_request_without_a_session_gets_401_and_no_redirect(client: Client) -> None:
    for method in (client.get, client.post):
        response = method("/search/", headers={"HX-Request": "true"}, follow=True)
        assert (response.status_code, response.content) == (401, b"")
        assert "HX-Redirect" not in response.headers


def test_session_endpoint_returns_the_user_and_the_valid_csrf_token(alice: User) -> None:
    client = Client(enforce_csrf_checks=True)
    before = client.get("/session/")
    assert (before.status_code, before.json()["user"]) == (401, "")
    assert "no-store" in before.headers["Cache-Control"]
    stale = before.json()["csrf"]
    form = {"username": "alice", "password": "correct horse battery", "csrfmiddlewaretoken": stale}
    assert client.post("/login/", form).status_code == 302
    save = {"language": "zh-hans", "next": "/"}
    assert client.post("/preferences/", save | {"csrfmiddlewaretoken": stale}).status_code == 403
    now = client.get("/session/")
    assert (now.status_code, now.json()["user"]) == (200, "alice")
    assert client.post("/preferences/", save | {"csrfmiddlewaretoken": now.json()["csrf"]}).status_code == 302


def test_login_never_redirects_to_another_site(client: Client, alice: User) -> None:
    form = {"username": "alice", "password": "correct horse battery", "next": "https://evil.example/"}
    assert client.post("/login/", form).headers["Location"] == "/"


def test_wrong_password_shows_the_form_again_and_too_many_are_blocked(client: Client, alice: User) -> None:
    form = {"username": "alice", "password": "wrong"}
    answers = [client.post("/login/", form).status_code for _i in range(9)]
    assert answers == [422] * 8 + [429]
    locked = client.post("/login/", {"username": "alice", "password": "correct horse battery"})
    assert locked.status_code == 429
    assert "Try again in 15 minutes" in text(locked)


def test_every_script_on_a_page_carries_the_nonce_of_its_policy(page: Client) -> None:
    response = page.get("/")
    nonce = re.search(r"'nonce-([^']+)'", response.headers["Content-Security-Policy"])
    assert nonce
    scripts = re.findall(r"<script[^>]*>", text(response))
    assert scripts
    assert all(f'nonce="{nonce[1]}"' in script for script in scripts)
    assert "unsafe" not in response.headers["Content-Security-Policy"]


def test_no_template_or_script_uses_inline_handlers_styles_or_eval() -> None:
    for path in [*Path(settings.BASE_DIR, "templates").rglob("*.*"), STATIC / "portal.js"]:
        source = path.read_text()
        assert not re.search(r"\son[a-z]+=\"", source), path
        assert not re.search(r"\sstyle=\"", source), path
        assert not re.search(r"\beval\(|new Function|hx-on", source), path


def test_vendored_files_name_no_source_map_and_every_used_icon_exists() -> None:
    sprite = set(re.findall(r'<symbol id="([^"]+)"', (STATIC / "vendor/icons.svg").read_text()))
    for path in (STATIC / "vendor").iterdir():
        assert "sourceMappingURL" not in path.read_text(), path
    for path in Path(settings.BASE_DIR, "templates").rglob("*.html"):
        used = re.findall(r'{% icon "([^"]+)"|icon="([^"]+)"', path.read_text())
        assert {a or b for a, b in used} <= sprite, path


def test_the_frame_follows_the_users_language_and_theme(page: Client, alice: User) -> None:
    page.post("/preferences/", {"language": "zh-hans", "theme": "dark", "next": "/profile/"})
    alice.refresh_from_db()
    assert (alice.language, alice.theme) == ("zh-hans", "dark")
    html = text(page.get("/profile/"))
    assert '<html lang="zh-hans"' in html
    assert 'data-bs-theme="dark"' in html


def test_language_can_be_chosen_before_login_and_never_redirects_to_another_site(client: Client) -> None:
    response = client.post("/preferences/", {"language": "zh-hans", "next": "//evil.example/"})
    assert response.headers["Location"] == "/"
    assert '<html lang="zh-hans"' in text(client.get("/login/"))


def test_the_inbox_count_is_the_readers_own(page: Client, alice: User) -> None:
    other = User.objects.create_user("bob")
    for user in (alice, alice, other):
        InboxItem.objects.create(user=user, kind="workload.finished")
    from portal.web.navigation import Shell

    request = page.get("/").wsgi_request
    assert Shell(request).unread == 2


def test_user_without_a_department_sees_whom_to_ask(client: Client, alice: User) -> None:
    owner = User.objects.create_user("olivia", first_name="Olivia", last_name="Owner", email="olivia@example.org")
    Membership.objects.create(user=owner, department=Department.objects.get(), role=Role.OWNER)
    client.force_login(User.objects.create_user("newcomer"))
    html = text(client.get("/"))
    assert "Olivia Owner" in html
    assert "olivia@example.org" in html


def test_profile_with_an_invalid_address_is_refused_and_keeps_the_input(page: Client, alice: User) -> None:
    response = page.post("/profile/", {"first_name": "Alice", "email": "no-address"})
    assert response.status_code == 422
    assert 'value="no-address"' in text(response)
    alice.refresh_from_db()
    assert alice.first_name == ""


def test_saving_a_profile_stores_the_time_zone_and_an_audit_entry(page: Client, alice: User) -> None:
    from portal.models import AuditEntry

    form = {"first_name": "Alice", "language": "", "theme": "", "time_zone": "Asia/Shanghai"}
    assert page.post("/profile/", form).status_code == 302
    alice.refresh_from_db()
    assert alice.time_zone == "Asia/Shanghai"
    assert AuditEntry.objects.get().action == "user.changed"


def test_times_are_in_the_browsers_zone_unless_the_user_chose_another(page: Client, alice: User) -> None:
    ends = dt.datetime(2066, 1, 31, 20, 0, tzinfo=dt.UTC)
    ApiToken.objects.create(
        holder=alice,
        department=Department.objects.get(),
        name="ci",
        prefix="p",
        digest="d",
        scopes=["read"],
        expires_at=ends,
    )

    def day() -> str:
        html = text(page.get("/tokens/"))
        found = re.search(r'datetime="2066[^>]*title="([^"]*)"', html)
        assert found is not None, html
        return "1 Feb" if "02-01" in found[1] or "1 Feb" in found[1] else "31 Jan"

    default = day()
    for zone, shown in (("Asia/Shanghai", "1 Feb"), ("America/New_York", "31 Jan"), ("../../etc", default), ("Asia", default),
                        ("Nowhere/City", default), ("", default)):  # fmt: skip
        page.cookies["zone"] = zone
        assert (zone, day()) == (zone, shown)
    User.objects.update(time_zone="Asia/Shanghai")
    page.cookies["zone"] = "America/New_York"
    assert day() == "1 Feb"


def test_search_finds_only_departments_of_the_reader(page: Client) -> None:
    Department.objects.create(slug="secret", name="Secret vision")
    html = text(page.get("/search/?q=vision"))
    assert "Secret" not in html


def test_unknown_address_gets_an_error_page_in_the_frame(page: Client) -> None:
    response = page.get("/no/such/page/")
    assert response.status_code == 404
    assert "Not found, or you do not have access." in text(response)


def test_get_of_an_address_that_only_accepts_forms_is_explained(page: Client) -> None:
    response = page.get("/inbox/read/")
    assert (response.status_code, response["Allow"]) == (405, "POST")
    assert "only accepts form submissions" in text(response)
    assert '<a class="btn btn-primary" href="../">Return to the page</a>' in text(response)
    assert 'href="/">Go home</a>' in text(page.get("/preferences/"))
    problem = page.put("/api/v1/departments/")
    assert (problem.status_code, problem["Content-Type"]) == (405, "application/problem+json")


@override_settings(DEBUG=False)
def test_expired_form_gets_a_page_that_says_so(alice: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    response = client.post("/preferences/", {"theme": "dark"})
    assert response.status_code == 403
    assert "This form has expired" in text(response)


@pytest.mark.parametrize(("role", "tabs"), [(Role.OWNER, 6), (Role.MEMBER, 4)])
def test_every_page_of_a_department_has_the_same_tabs(client: Client, role: Role, tabs: int) -> None:
    vision = make.department("vision")
    make.quota(vision, make.pool(), 1)
    client.force_login(make.member(vision, role))
    names = ["quotas:department", "quotas:quotas", "quotas:budgets", "portal:members", "quotas:request_new"]
    bars = [
        re.search(r"department-tabs.*?</ul>", text(client.get(reverse(name, args=["vision"]))), re.DOTALL)
        for name in names
    ]
    links = [re.findall(r'href="([^"]+)"', bar.group()) for bar in bars if bar is not None]
    assert len(links) == len(names)
    assert {tuple(each) for each in links} == {tuple(links[0])}
    assert len(links[0]) == tabs

"""Passkeys in a real Chromium with a virtual authenticator: instead of the password, as a second factor, and after removal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Person
from tests.e2e.installation import Installation, installed
from tests.servers import free_port

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not os.environ["DATABASE_URL"].startswith("postgres") or not os.environ["TEST_REDIS_URL"],
        reason="needs PostgreSQL and Redis",
    ),
]
PASSWORD = "correct horse battery staple"
ALICE = """
import json
from portal.models import User
User.objects.create_user("alice", email="alice@example.org", password="correct horse battery staple")
print(json.dumps(True))
"""


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Reached by a host name, because browsers offer no passkeys at an IP address."""
    folder, port = tmp_path_factory.mktemp("passkeys"), free_port()
    more = {"PORT": str(port), "BASE_URL": f"http://localhost:{port}", "NOTEBOOK_URL": f"http://*.localhost:{port}"}
    with installed(Path(folder), **more) as made:
        assert made.python(ALICE)
        yield made


def with_authenticator(page: Page) -> Any:
    """Adds a virtual authenticator that always verifies its user."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
        "isUserVerified": True, "automaticPresenceSimulation": True,
    }  # fmt: skip
    added = session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    return session, added["authenticatorId"]


def log_out(page: Page) -> None:
    page.goto("about:blank")  # otherwise a late response to the previous page sets cookies again
    page.context.clear_cookies()


def test_passkey_works_instead_of_the_password_and_as_second_factor_until_removed(
    chromium: Any, portal: Installation
) -> None:
    person = Person(chromium, portal.url, "alice", PASSWORD)
    page = person.page
    session, device = with_authenticator(page)
    person.go("/profile/")
    page.get_by_role("link", name="Set up").click()
    page.get_by_role("link", name="Add a passkey").click()
    page.fill("#id_password", PASSWORD)
    page.get_by_role("button", name="Continue").click()
    page.fill("#id_name", "My laptop")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    kept = session.send("WebAuthn.getCredentials", {"authenticatorId": device})["credentials"]
    assert [each["rpId"] for each in kept] == ["localhost"]
    person.go("/profile/second-factor/")
    expect(page.locator("main")).to_contain_text("My laptop")
    assert person.axe() == []

    log_out(page)
    person.go("/login/?next=/inbox/")
    page.get_by_role("button", name="Log in with a passkey").click()
    page.wait_for_url(portal.url + "/inbox/")

    log_out(page)
    person.go("/login/?next=/inbox/")
    page.fill("#id_username", "alice")
    page.fill("#id_password", PASSWORD)
    page.locator("main button.btn-primary").click()
    expect(page.get_by_role("heading", name="Second factor")).to_be_visible()
    assert person.axe() == []
    page.get_by_role("button", name="Use a passkey").click()
    page.wait_for_url(portal.url + "/inbox/")

    person.go("/profile/second-factor/")
    page.get_by_role("link", name="Remove My laptop").click()
    page.get_by_role("link", name="Use a passkey").click()
    page.get_by_role("button", name="Use a passkey").click()
    page.get_by_role("button", name="Remove").click()
    page.wait_for_url(portal.url + "/profile/second-factor/")
    expect(page.locator("main")).not_to_contain_text("My laptop")
    log_out(page)
    person.go("/login/")
    page.get_by_role("button", name="Log in with a passkey").click()
    expect(page.locator("body")).to_contain_text("The passkey was not accepted.")
    assert person.complaints() == []


def test_passkey_refused_by_the_device_is_reported_and_unsupported_address_offers_none(
    chromium: Any, portal: Installation
) -> None:
    person = Person(chromium, portal.url, "", "", language="zh-CN")
    page = person.page
    session, device = with_authenticator(page)
    session.send("WebAuthn.setUserVerified", {"authenticatorId": device, "isUserVerified": False})
    person.go("/login/")
    page.get_by_role("button", name="使用通行密钥登录").click()
    expect(page.get_by_role("alert")).to_contain_text("浏览器没有提供通行密钥")
    number = portal.url.replace("localhost", "127.0.0.1")
    page.goto(number + "/login/")
    expect(page.get_by_role("button", name="登录", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="使用通行密钥登录")).to_be_hidden()

"""Users of a real Keycloak in a real browser: membership follows groups, and no existing account can be taken over."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests import keycloak
from tests.e2e.conftest import Person
from tests.e2e.installation import Installation, installed
from tests.keycloak import Keycloak

LACKS = keycloak.missing()
NEEDS = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(LACKS) and not os.environ.get("CI"), reason=f"needs {LACKS}"),
    pytest.mark.skipif(
        not os.environ["DATABASE_URL"].startswith("postgres") or not os.environ["TEST_REDIS_URL"],
        reason="needs PostgreSQL and Redis",
    ),
]
pytestmark = NEEDS
PASSWORD = "correct horse battery staple"
VISION = "/gpu-vision"
PEOPLE = [
    {"username": "mia", "email": "mia@example.org", "password": PASSWORD, "groups": [VISION]},
    {"username": "alice", "email": "alice@example.org", "password": PASSWORD, "groups": []},
]
PROVIDER = """
[keycloak]
label = "Company login"
server_url = "{server_url}"
client_id = "{client_id}"
client_secret = "{client_secret}"
"""
WORLD = """
import json
from portal.access import Actor
from portal.models import Department, Membership, Role, User
from portal.sign_in import group_rules
vision = Department.objects.create(slug="vision", name="Vision")
for name, role in (("olga", Role.OWNER), ("alice", Role.MEMBER)):
    user = User.objects.create_user(name, email=f"{name}@example.org", password="correct horse battery staple")
    Membership.objects.create(user=user, department=vision, role=role)
rule = group_rules.checked(provider="keycloak", pattern="/gpu-vision", department=vision, role="member")
group_rules.add_rule(actor=Actor(User.objects.get(username="root")), rule=rule)
print(json.dumps(True))
"""
TOKEN = """
import datetime as dt, json
from django.utils import timezone
from portal.access import Actor
from portal.accounts.tokens import create_token
from portal.models import Department, User
end = timezone.now() + dt.timedelta(days=1)
mia = Actor(User.objects.get(username="mia"))
where = Department.objects.get(slug="vision")
print(json.dumps(create_token(actor=mia, department=where, name="ci", scopes=["read"], expires_at=end)[1]))
"""
FACTS = """
import json
from portal.models import AuditEntry, InboxItem, Membership, User
rows = Membership.objects.order_by("user__username").values_list("user__username", "role", "from_rules")
told = InboxItem.objects.filter(kind="member.left_group").values_list("user__username", flat=True)
print(json.dumps({"members": [list(row) for row in rows], "told": list(told),
    "users": list(User.objects.order_by("username").values_list("username", flat=True))}))
"""


@dataclass
class Company:
    portal: Installation
    keycloak: Keycloak

    def facts(self) -> dict[str, Any]:
        return dict(self.portal.python(FACTS))


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    folder = tmp_path_factory.mktemp("company")
    with keycloak.running(folder) as server:
        providers = folder / "providers.toml"
        facts = {"server_url": server.server_url, "client_id": server.client_id, "client_secret": server.client_secret}
        providers.write_text(PROVIDER.format(**facts))
        with installed(folder, OIDC_PROVIDERS_FILE=str(providers)) as portal:
            server.make_realm(portal.url, PEOPLE, [VISION])
            portal.manage("bootstrap", "root", "--password-file", "-", given=f"{PASSWORD}\n")
            assert portal.python(WORLD)
            yield Company(portal, server)


def at_keycloak(chromium: Any, company: Company, username: str, label: str = "Company login") -> Page:
    """A new browser in which the provider was chosen on the login page and the password was entered there."""
    page: Page = Person(chromium, company.portal.url, "", "").go("/login/?next=/profile/")
    page.get_by_role("button", name=f"Log in with {label}", exact=True).click()
    page.fill("#username", username)
    page.fill("#password", PASSWORD)
    page.click("#kc-login")
    return page


def sign_in(chromium: Any, company: Company, username: str) -> Page:
    page = at_keycloak(chromium, company, username)
    page.wait_for_url(company.portal.url + "/profile/")
    return page


def test_membership_and_tokens_follow_the_group(chromium: Any, company: Company) -> None:
    page = sign_in(chromium, company, "mia")
    expect(page.locator("main")).to_contain_text("Vision")
    expect(page.get_by_role("heading", name="mia", exact=True)).to_be_visible()
    assert ["mia", "member", True] in company.facts()["members"]
    with company.portal.client(company.portal.python(TOKEN)) as client:
        assert client.get("departments/vision/").json()["role"] == "member"
        company.keycloak.leave("mia", VISION)
        assert client.get("departments/vision/").status_code == 200, "the portal learns of it at the next login"
        again = sign_in(chromium, company, "mia")
        assert client.get("departments/vision/").status_code == 401
    expect(again.locator("main")).not_to_contain_text("Vision")
    page.goto(company.portal.url + "/d/vision/")
    expect(page).to_have_url(re.compile("/login/"))  # the older session ended with the membership
    again.goto(company.portal.url + "/d/vision/")
    expect(again.locator("main")).to_contain_text("Not found")
    facts = company.facts()
    assert [row for row in facts["members"] if row[0] == "mia"] == []
    assert facts["told"] == ["olga"]


def test_equal_username_and_email_do_not_take_over_an_account(chromium: Any, company: Company) -> None:
    before = company.facts()["members"]
    page = sign_in(chromium, company, "alice")
    expect(page.get_by_role("heading", name="alice-keycloak", exact=True)).to_be_visible()
    facts = company.facts()
    assert facts["members"] == before
    assert ["alice", "member", False] in before
    assert sum(name.startswith("alice") for name in facts["users"]) == 2
    again = sign_in(chromium, company, "alice")
    expect(again.get_by_role("heading", name="alice-keycloak", exact=True)).to_be_visible()
    assert company.facts()["users"] == facts["users"], "the second login opens the same account"


def test_user_can_link_an_account_and_sign_in_with_it(chromium: Any, company: Company) -> None:
    company.keycloak.admin(
        "POST", f"/{company.keycloak.realm}/users",
        json={
            "username": "olga", "email": "other@example.org", "emailVerified": True, "enabled": True, "firstName": "O",
            "lastName": "E", "credentials": [{"type": "password", "value": PASSWORD, "temporary": False}],
        },
    )  # fmt: skip
    person = Person(chromium, company.portal.url, "olga", PASSWORD)
    page = person.go("/profile/")
    page.get_by_role("button", name="Link Company login").click()
    page.fill("#username", "olga")
    page.fill("#password", PASSWORD)
    page.click("#kc-login")
    expect(page.locator("body")).to_contain_text("Your account at Company login is linked.")
    other = sign_in(chromium, company, "olga")
    expect(other.get_by_role("heading", name="olga", exact=True)).to_be_visible()
    assert person.complaints() == []


def test_provider_outage_does_not_lock_out_signed_in_users(chromium: Any, company: Company) -> None:
    """The last test of the file, because it stops the provider."""
    page = sign_in(chromium, company, "mia")
    company.keycloak.stop()
    page.goto(company.portal.url + "/inbox/")
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    stranger = Person(chromium, company.portal.url, "", "").go("/login/")
    stranger.get_by_role("button", name="Log in with Company login").click()
    expect(stranger.locator("main")).to_contain_text("Company login did not confirm who you are.")
    root = Person(chromium, company.portal.url, "root", PASSWORD)
    assert root.page.url.endswith("/operator/"), "passwords still work"

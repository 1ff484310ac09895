"""Users of a real OpenLDAP in a real browser: the same rules as with an identity provider."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests import slapd
from tests.e2e.conftest import Person
from tests.e2e.installation import Installation, installed
from tests.e2e.test_keycloak import FACTS, TOKEN, WORLD
from tests.slapd import PASSWORD, PEOPLE, Slapd

LACKS = slapd.missing()
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(LACKS) and not os.environ.get("CI"), reason=f"needs {LACKS}"),
    pytest.mark.skipif(
        not os.environ["DATABASE_URL"].startswith("postgres") or not os.environ["TEST_REDIS_URL"],
        reason="needs PostgreSQL and Redis",
    ),
]


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, Slapd]]:
    folder = tmp_path_factory.mktemp("directory")
    with slapd.running(folder / "slapd") as server:
        server.group("gpu-vision", server.person("mia"))
        with installed(folder, LDAP_DIRECTORIES=server.toml()) as portal:
            portal.manage("bootstrap", "root", "--password-file", "-", given=f"{PASSWORD}\n")
            assert portal.python(WORLD.replace('provider="keycloak", pattern="/', 'provider="corp", pattern="'))
            yield portal, server


def profile(chromium: Any, portal: Installation) -> Page:
    page: Page = Person(chromium, portal.url, "mia", PASSWORD).go("/profile/")
    return page


def test_membership_and_tokens_follow_the_group(chromium: Any, company: tuple[Installation, Slapd]) -> None:
    portal, server = company
    page = profile(chromium, portal)
    expect(page.get_by_role("heading", name="mia", exact=True)).to_be_visible()
    expect(page.locator("main")).to_contain_text("Vision")
    assert ["mia", "member", True] in portal.python(FACTS)["members"]
    with portal.client(portal.python(TOKEN)) as client:
        assert client.get("departments/vision/").json()["role"] == "member"
        server.leave("gpu-vision", f"uid=mia,{PEOPLE}")
        again = profile(chromium, portal)
        assert client.get("departments/vision/").status_code == 401
    expect(again.locator("main")).not_to_contain_text("Vision")
    facts = portal.python(FACTS)
    assert [row for row in facts["members"] if row[0] == "mia"] == []
    assert facts["told"] == ["olga"]

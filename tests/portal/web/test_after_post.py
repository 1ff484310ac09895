"""From a page that responds to a POST, switching the language or theme, or reloading, leads to a page again."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from portal.models import Role
from portal.web import one_time_secrets
from tests import builders as make
from tests.architecture.doors import World, all_doors, build

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(settings: object, tmp_path: Path) -> World:
    settings.DATA_DIR, settings.DEBUG = tmp_path, True  # type: ignore[attr-defined]
    return build()


@pytest.mark.parametrize("role", ["owner", "operator"])
def test_language_switch_works_on_every_page_that_responds_to_a_post(world: World, role: str) -> None:
    client, failed, count = world.client(role), [], 0
    for door in all_doors(world):
        if door.is_api or str(door) == "account_logout":
            continue
        came_from = "http://testserver/inbox/?show=unread"
        for body in ({}, {"name": "x", "role": "nobody", "change": "no_operator", "prefix": "x"}):
            answer = client.post(door.path, body, headers={"Referer": came_from})
            page = answer.content.decode(errors="replace") if not answer.streaming else ""
            for back in set(re.findall(r'name="next" value="([^"]*)"', page)):
                count += 1
                switched = client.post(
                    "/preferences/", {"language": "zh-hans", "next": html.unescape(back)}, follow=True
                )
                if switched.status_code != 200 or 'lang="zh-hans"' not in switched.content.decode():
                    failed.append(f"{door} → {back}: {switched.status_code}")
                client.post("/preferences/", {"language": "en", "next": "/"})
    assert failed == []
    assert count > 10


SHOWN = re.compile(r'(?:id="secret"[^>]*>|id="password">|id="invitation-link" readonly value=")([^<"]+)')


def secret_of(answer: Any) -> str:
    found = SHOWN.search(answer.content.decode())
    return found[1] if found else ""


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokens/", {"name": "ci", "department": "vision", "scopes": ["read"], "days": "7"}),
        ("/d/vision/members/invite/", {"invite-email": "", "invite-role": "member"}),
        ("/operator/users/", {"username": "nina", "email": ""}),
        ("/operator/users/mia/", {"change": "password"}),
        ("/operator/users/oscar/", {"change": "password"}),
    ],
)
def test_secret_shown_once_survives_only_a_switch_of_language(
    path: str, body: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    vision = make.department("vision")
    make.member(vision, Role.MEMBER, "mia")
    oscar = make.user("oscar", is_operator=True)
    client, other = Client(), Client()
    for each in (client, other):
        each.force_login(oscar, backend="django.contrib.auth.backends.ModelBackend")
    answer = client.post(path, body)
    assert answer.status_code == 302
    address = answer.headers["Location"]
    first = client.get(address)
    secret = secret_of(first)
    assert secret
    assert "no-store" in first.headers["Cache-Control"]
    back = html.unescape(re.findall(r'name="next" value="([^"]*)"', first.content.decode())[0])
    switched = client.post("/preferences/", {"language": "zh-hans", "next": back}, follow=True)
    assert secret_of(switched) == secret
    assert secret not in str(client.session.items()), "it is encrypted in the session"
    assert secret not in client.get(address.partition("?")[0]).content.decode()
    assert secret not in other.get(address, follow=True).content.decode()
    moment = one_time_secrets.time.time()
    monkeypatch.setattr(one_time_secrets.time, "time", lambda: moment + one_time_secrets.KEPT + 1)
    assert secret not in client.get(address).content.decode()

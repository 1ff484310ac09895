"""Every address is tried by everybody who must not get in: anonymous, a stranger, a member without the role."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.http import HttpResponseBase

from tests.architecture.doors import UNSAFE, Door, World, all_doors, build, knock, writes

pytestmark = pytest.mark.django_db

# Open to everybody, and why.
PUBLIC = {
    "portal:login": "it is where one logs in",
    "portal:logout": "ends the session there is",
    "portal:invite": "the link's secret is the key",
    "portal:preferences": "language and theme before one logs in, kept in a cookie",
    "api:ready": "the attempt's own token is the key",
    "api:schema": "says nothing about this installation",
    "api:docs": "the same",
    "/metrics": "has its own key (tests/portal/test_metrics.py)",
}
# Parts that name something of a department. Pools, nodes and clusters are everybody's, each with their own rights.
OURS = {"department", "workload", "recall", "decision", "invitation", "webhook", "prefix"}
# What a member without a higher role may do in the department with empty requests.
MEMBERS_OWN = {
    "workloads:new", "workloads:verdict", "workloads:stop-several", "workloads:rerun",
    "api:department-workloads", "api:workload-rerun",
    "quotas:quota_preview", "quotas:recall_preview",
}  # fmt: skip


@pytest.fixture
def world(settings: object, tmp_path: Path) -> World:
    settings.DATA_DIR, settings.DEBUG = tmp_path, True  # type: ignore[attr-defined]
    return build()


def said(door: Door, method: str, answer: HttpResponseBase) -> str:
    return f"{method} {door}: {answer.status_code} {answer.headers.get('Location', '')}"


def to_login(answer: HttpResponseBase) -> bool:
    return answer.status_code == 302 and bool(re.match(r"/login/\?next=", answer.headers["Location"]))


def test_nobody_gets_in_without_logging_in(world: World) -> None:
    client, wrong = world.client("anonymous"), []
    before = writes()
    for door in all_doors(world):
        if str(door) in PUBLIC:
            continue
        for method in ("GET", *UNSAFE):
            answer = knock(client, door, method)
            fine = answer.status_code == 401 if door.is_api else to_login(answer) or answer.status_code == 405
            if not fine:
                wrong.append(said(door, method, answer))
    assert wrong == []
    assert writes() == before


def test_a_stranger_finds_nothing_of_a_department(world: World) -> None:
    client, wrong = world.client("stranger"), []
    before = writes()
    for door in all_doors(world):
        if not door.parts & OURS or str(door) in PUBLIC:
            continue
        for method in ("GET", *UNSAFE):
            answer = knock(client, door, method)
            if answer.status_code not in {404, 405}:
                wrong.append(said(door, method, answer))
    assert wrong == []
    assert writes() == before


@pytest.mark.parametrize("who", ["viewer", "member"])
def test_without_the_role_nothing_can_be_changed(world: World, who: str) -> None:
    client, wrong = world.client(who), []
    before = writes()
    for door in all_doors(world):
        if not door.parts & OURS or str(door) in PUBLIC or (who == "member" and str(door) in MEMBERS_OWN):
            continue
        for method in UNSAFE:
            answer = knock(client, door, method)
            if answer.status_code not in {403, 404, 405}:
                wrong.append(said(door, method, answer))
    assert wrong == []
    assert writes() == before


def test_the_operators_pages_are_the_operators(world: World) -> None:
    doors = [door for door in all_doors(world) if door.path.startswith("/operator/")]
    for who in ("owner", "member", "stranger"):
        client = world.client(who)
        for door in doors:
            for method in ("GET", "POST"):
                assert knock(client, door, method).status_code in {404, 405}, said(
                    door, method, knock(client, door, method)
                )
    for who in ("anonymous", "owner"):
        assert world.client(who).get("/admin/").status_code in {302, 404}


@pytest.mark.parametrize("who", ["member", "owner", "operator"])
def test_no_address_breaks_for_anybody(world: World, who: str) -> None:
    """Those who may not are refused in the walks above; these get further, so more of each view runs."""
    client = world.client(who)
    broken = [
        said(door, method, answer)
        for door in all_doors(world)
        for method in (("GET",) if who == "member" else ("GET", *UNSAFE))
        if str(door) != "portal:logout" and (answer := knock(client, door, method)).status_code >= 500
    ]
    assert broken == []


def test_a_post_from_elsewhere_is_refused(world: World) -> None:
    """A session's requests carry a CSRF token, on pages and in the API."""
    client, wrong = world.client("owner"), []
    client.handler.enforce_csrf_checks = True
    before = writes()
    for door in all_doors(world):
        for method in UNSAFE:
            answer = knock(client, door, method)
            if answer.status_code not in {403, 404, 405} and str(door) not in PUBLIC:
                wrong.append(said(door, method, answer))
    assert wrong == []
    assert writes() == before

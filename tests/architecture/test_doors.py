"""Access to every URL is refused to everyone without the right: anonymous, a stranger, a member without the role."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponseBase, StreamingHttpResponse
from django.test import Client

from tests.architecture.doors import UNSAFE, Door, World, all_doors, build, send_empty, writes
from tests.architecture.family import MARK, PART, Family, build_family

pytestmark = pytest.mark.django_db

# URLs without login, and why.
PUBLIC = {
    "account_login": "the login page itself",
    "mfa_authenticate": "between the password and the session",
    "openid_connect_login": "leads to the provider",
    "openid_connect_callback": "called by the provider, with a code",
    "mfa_login_webauthn": "the challenge for a passkey, and its signature",
    "saml_acs": "called by the provider, signed",
    "saml_finish_acs": "continues after that",
    "saml_metadata": "what the provider needs to know about the portal",
    "saml_sls": "does nothing",
    "account_reset_password": "people who have forgotten their password cannot log in",
    "account_reset_password_done": "the same for everybody",
    "account_reset_password_from_key": "the link's secret is the key",
    "portal:session": "says whether the browser is logged in, and nothing else",
    "account_logout": "ends the present session",
    "portal:invite": "the link's secret is the key",
    "portal:preferences": "language and theme before login, stored in a cookie",
    "workloads:calendar_feed": "the address's secret is the key",
    "api:ready": "the attempt's own token is the key",
    "api:schema": "says nothing about this installation",
    "api:docs": "the same",
    "api:docs-group": "the same",
    "api:docs-try": "the same",
    "favicon": "an image",
    "/metrics": "has its own key (tests/portal/server/test_metrics.py)",
}
SESSION_ENDS = {"account_logout", "portal:end_sessions"}  # a session that calls these has ended
# Variables that name an object of a department. Pools, nodes and clusters belong to no department and have other rules.
OURS = {
    "department",
    "workload",
    "recall",
    "decision",
    "invitation",
    "webhook",
    "prefix",
    "item",
    "quota_request",
    "exemption",
    "budget",
    "backtest",
    "template",
    "saved",
}
# URLs that a member without a higher role may use in the department, here with empty requests.
MEMBERS_OWN = {
    "workloads:new", "workloads:verdict", "workloads:several", "workloads:rerun",
    "api:department-workloads", "api:workload-rerun",
    "quotas:quota_preview", "quotas:recall_preview",
    "quotas:request_new", "quotas:request_comment", "api:department-quota-requests", "api:quota-request-comments",
    "workloads:templates", "api:request-templates",
    "quotas:request_renew", "api:quota-request-renewal",
}  # fmt: skip


@pytest.fixture
def world(settings: object, tmp_path: Path) -> World:
    settings.DATA_DIR, settings.DEBUG = tmp_path, True  # type: ignore[attr-defined]
    return build()


def described(door: Door, method: str, response: HttpResponseBase) -> str:
    return f"{method} {door}: {response.status_code} {response.headers.get('Location', '')}"


def to_login(response: HttpResponseBase) -> bool:
    return response.status_code == 302 and bool(re.match(r"/login/\?next=", response.headers["Location"]))


def test_every_url_that_is_not_public_requires_a_login(world: World) -> None:
    client, wrong = world.client("anonymous"), []
    before = writes()
    for door in all_doors(world):
        if str(door) in PUBLIC:
            continue
        for method in ("GET", *UNSAFE):
            response = send_empty(client, door, method)
            fine = response.status_code == 401 if door.is_api else to_login(response) or response.status_code == 405
            if not fine:
                wrong.append(described(door, method, response))
    assert wrong == []
    assert writes() == before


def test_objects_of_a_department_are_not_found_by_a_stranger(world: World) -> None:
    client, wrong = world.client("stranger"), []
    before = writes()
    for door in all_doors(world):
        if not door.parts & OURS or str(door) in PUBLIC:
            continue
        for method in ("GET", *UNSAFE):
            response = send_empty(client, door, method)
            if response.status_code not in {404, 405}:
                wrong.append(described(door, method, response))
    assert wrong == []
    assert writes() == before


@pytest.mark.parametrize("actor", ["viewer", "member"])
def test_nothing_can_be_changed_without_the_role(world: World, actor: str) -> None:
    client, wrong = world.client(actor), []
    before = writes()
    for door in all_doors(world):
        if not door.parts & OURS or str(door) in PUBLIC or (actor == "member" and str(door) in MEMBERS_OWN):
            continue
        for method in UNSAFE:
            response = send_empty(client, door, method)
            if response.status_code not in {403, 404, 405}:
                wrong.append(described(door, method, response))
    assert wrong == []
    assert writes() == before


def test_pages_of_operators_are_open_to_operators_only(world: World) -> None:
    doors = [door for door in all_doors(world) if door.path.startswith("/operator/")]
    for actor in ("owner", "member", "stranger"):
        client = world.client(actor)
        for door in doors:
            for method in ("GET", "POST"):
                assert send_empty(client, door, method).status_code in {404, 405}, described(
                    door, method, send_empty(client, door, method)
                )
    for actor in ("anonymous", "owner"):
        assert world.client(actor).get("/admin/").status_code in {302, 404}


WALKS = {"anonymous": ("GET", "POST"), "member": ("GET",), "owner": ("GET", *UNSAFE), "operator": ("GET", *UNSAFE)}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("actor", WALKS)
def test_no_url_fails_for_any_actor_and_no_response_can_be_framed(world: World, actor: str, settings: Any) -> None:
    """The actors in the tests above are refused early; these get further, so that more of each view runs. Framing is refused
    even on a notebook's page, whose requests carry the session if it is on the same site."""
    # Without DEBUG there are no files; with it django-csp does not cover error pages.
    settings.DEBUG = actor != "anonymous"
    client, broken, framed = world.client(actor), [], []
    for door in [*all_doors(world), Door("/admin/", "", frozenset()), Door("/no/such/page/", "", frozenset())]:
        for method in WALKS[actor] if str(door) not in SESSION_ENDS else ():
            response = send_empty(client, door, method)
            if response.status_code >= 500:
                broken.append(described(door, method, response))
            policy = response.headers.get("Content-Security-Policy", "")
            bare = settings.DEBUG and response.status_code in (404, 500)
            if response.headers.get("X-Frame-Options") != "DENY" or not (bare or "frame-ancestors 'none'" in policy):
                framed.append(described(door, method, response))
    assert (broken, framed) == ([], [])


def test_request_without_a_csrf_token_is_refused(world: World) -> None:
    """Requests of a session need a CSRF token, on pages and in the API."""
    client, wrong = world.client("owner"), []
    client.handler.enforce_csrf_checks = True
    before = writes()
    for door in all_doors(world):
        for method in UNSAFE:
            response = send_empty(client, door, method)
            if response.status_code not in {403, 404, 405} and str(door) not in PUBLIC:
                wrong.append(described(door, method, response))
    assert wrong == []
    assert writes() == before


# What only a team's own people may know --------------------------------------------------------------------------------

# A viewer sees no more than a member and has fewer rights (portal/access.py).
READERS = {
    "parent_member": "lab", "sibling_member": "nlp", "sibling_owner": "nlp", "other_member": "biology", "parents_token": "lab",
    "operators_token": "nlp",
}  # fmt: skip
QUERIES = (
    "",
    f"q={PART}&limit=500&facets=1&days=30",
    "department={department}&running=1&workload={workload}",
    "format=csv",
)


@pytest.fixture
def family(settings: object, tmp_path: Path) -> Family:
    settings.DATA_DIR, settings.DEBUG, settings.API_RATE_PER_MINUTE = tmp_path, True, 1_000_000  # type: ignore[attr-defined]
    return build_family()


def text_of(response: HttpResponseBase) -> str:
    """The whole response with its headers, which may contain the requested URL."""
    body = b"".join(response.streaming_content) if isinstance(response, StreamingHttpResponse) else response.content  # type: ignore[attr-defined, arg-type]
    return f"{dict(response.headers.items())}\n{body.decode(errors='replace')}"


def readings(client: Client, door: Door, family: Family) -> Iterator[tuple[str, HttpResponseBase]]:
    """Every response of one URL: as a page, part, list and stream, with a search, and with unsafe methods."""
    values = next(
        (each for each in family.values.values() if f"/{each['department']}/" in door.path), family.values["vision"]
    )
    for query in QUERIES:
        query_string = query.format(**values)
        response = client.get(f"{door.path}?{query_string}", headers={"HX-Request": "true"} if query_string else {})
        yield f"GET ?{query_string}", response
        if response.status_code != 200:
            break
    if "events" in door.path:
        stream = {"Accept": "text/event-stream", "Last-Event-ID": "0-0"}
        yield "GET stream", client.get(door.path, headers=stream)
    for method in UNSAFE:
        if str(door) in SESSION_ENDS:
            continue
        if door.is_api:
            send = getattr(client, method.lower())
            yield method, send(f"{door.path}?dry_run=1", data="{}", content_type="application/json")
        elif method == "POST":
            form = {"workload": family.marked, "units": "1", "item": ["1"]}
            yield method, client.post(door.path, form, follow=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("actor", READERS)
def test_no_response_shows_the_work_of_a_team_to_others(family: Family, actor: str) -> None:
    """Names, ids, people, commands and messages of a team stay in it; members of its parent see department and amount."""
    client, leaks, count = family.client(actor), [], 0
    for door in family.doors(READERS[actor], "lab", "vision"):
        if actor in family.tokens and not door.is_api:
            continue  # a token opens no pages
        for how, response in readings(client, door, family):
            count += 1
            text = text_of(response).replace(door.path, "")
            text = re.sub(rf"workload={MARK}\d+", "", text)  # the query may be repeated
            if response.status_code < 500 and MARK in text:
                at = text.index(MARK)
                leaks.append(f"{how} {door.path}: {response.status_code} …{text[max(0, at - 80) : at + 40]!r}")
            assert response.status_code < 500, f"{how} {door.path}"
    assert not leaks, "\n".join(leaks)
    assert count > 300


@pytest.mark.parametrize("actor", ["team_viewer", "team_member", "parent_owner", "operator"])
def test_members_of_a_team_and_owners_above_see_its_work(family: Family, actor: str) -> None:
    """Without this the test above would also pass on empty pages."""
    client = family.client(actor)
    pages = ["/d/vision/", "/d/vision/workloads/", f"/d/vision/workloads/{family.marked[1]}/", "/pools/a100/",
             "/decisions/", f"/search/workloads/?q={PART}", "/api/v1/workloads/", "/api/v1/departments/vision/usage/",
             "/api/v1/events/", "/api/v1/decisions/", "/api/v1/loans/"]  # fmt: skip
    if actor in {"parent_owner", "operator"}:
        pages += ["/d/lab/", "/d/lab/workloads/", "/api/v1/departments/lab/usage/"]
    assert [page for page in pages if MARK not in text_of(client.get(page))] == []

"""Every address is tried by everybody who must not get in: anonymous, a stranger, a member without the role."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponseBase, StreamingHttpResponse
from django.test import Client

from tests.architecture.doors import UNSAFE, Door, World, all_doors, build, knock, writes
from tests.architecture.family import MARK, PART, Family, build_family

pytestmark = pytest.mark.django_db

# Open to everybody, and why.
PUBLIC = {
    "account_login": "it is where one logs in",
    "mfa_authenticate": "between the password and the session",
    "openid_connect_login": "leads to the provider",
    "openid_connect_callback": "comes from there, with a code",
    "mfa_login_webauthn": "what a passkey has to sign, and what it has signed",
    "saml_acs": "comes from the provider, signed",
    "saml_finish_acs": "goes on with that",
    "saml_metadata": "what the provider has to know of us",
    "saml_sls": "nothing is there",
    "account_reset_password": "who has forgotten the password cannot log in",
    "account_reset_password_done": "the same for everybody",
    "account_reset_password_from_key": "the link's secret is the key",
    "portal:session": "says whether one is logged in, and nothing else",
    "account_logout": "ends the session there is",
    "portal:invite": "the link's secret is the key",
    "portal:preferences": "language and theme before one logs in, kept in a cookie",
    "workloads:calendar_feed": "the address's secret is the key",
    "api:ready": "the attempt's own token is the key",
    "api:schema": "says nothing about this installation",
    "api:docs": "the same",
    "api:docs-group": "the same",
    "api:docs-try": "the same",
    "favicon": "a drawing",
    "/metrics": "has its own key (tests/portal/server/test_metrics.py)",
}
SESSION_ENDS = {"account_logout", "portal:end_sessions"}  # whoever walks in there walks no further
# Parts that name something of a department. Pools, nodes and clusters are everybody's, each with their own rights.
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
# What a member without a higher role may do in the department with empty requests.
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


WALKS = {"anonymous": ("GET", "POST"), "member": ("GET",), "owner": ("GET", *UNSAFE), "operator": ("GET", *UNSAFE)}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", WALKS)
def test_no_address_breaks_for_anybody_and_no_answer_may_stand_in_a_frame(
    world: World, who: str, settings: Any
) -> None:
    """Those who may not are refused in the walks above; these get further, so more of each view runs. A frame is not even one
    of a notebook's page, whose requests carry the session where it is of the same site."""
    settings.DEBUG = (
        who != "anonymous"
    )  # without, nobody has files; with it django-csp leaves pages of errors to developers
    client, broken, framed = world.client(who), [], []
    for door in [*all_doors(world), Door("/admin/", "", frozenset()), Door("/no/such/page/", "", frozenset())]:
        for method in WALKS[who] if str(door) not in SESSION_ENDS else ():
            answer = knock(client, door, method)
            if answer.status_code >= 500:
                broken.append(said(door, method, answer))
            policy = answer.headers.get("Content-Security-Policy", "")
            bare = settings.DEBUG and answer.status_code in (404, 500)
            if answer.headers.get("X-Frame-Options") != "DENY" or not (bare or "frame-ancestors 'none'" in policy):
                framed.append(said(door, method, answer))
    assert (broken, framed) == ([], [])


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


# What only a team's own people may know --------------------------------------------------------------------------------

# A viewer sees no more than a member and may do less (portal/access.py).
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


def text_of(answer: HttpResponseBase) -> str:
    """All of it with its headers, in which the asked address may stand."""
    body = b"".join(answer.streaming_content) if isinstance(answer, StreamingHttpResponse) else answer.content  # type: ignore[attr-defined, arg-type]
    return f"{dict(answer.headers.items())}\n{body.decode(errors='replace')}"


def readings(client: Client, door: Door, family: Family) -> Iterator[tuple[str, HttpResponseBase]]:
    """Everything that can be asked at one address: as a page, part, list and stream, searched, and with an unsafe method."""
    values = next(
        (each for each in family.values.values() if f"/{each['department']}/" in door.path), family.values["vision"]
    )
    for query in QUERIES:
        asked = query.format(**values)
        answer = client.get(f"{door.path}?{asked}", headers={"HX-Request": "true"} if asked else {})
        yield f"GET ?{asked}", answer
        if answer.status_code != 200:
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
@pytest.mark.parametrize("who", READERS)
def test_no_answer_names_the_work_of_a_team_to_others(family: Family, who: str) -> None:
    """Names, ids, people, commands and messages of a team stay in it; its parent's members see department and amount."""
    client, told, read = family.client(who), [], 0
    for door in family.doors(READERS[who], "lab", "vision"):
        if who in family.tokens and not door.is_api:
            continue  # a token opens no pages
        for how, answer in readings(client, door, family):
            read += 1
            said = text_of(answer).replace(door.path, "")
            said = re.sub(rf"workload={MARK}\d+", "", said)  # what was asked for may be repeated
            if answer.status_code < 500 and MARK in said:
                at = said.index(MARK)
                told.append(f"{how} {door.path}: {answer.status_code} …{said[max(0, at - 80) : at + 40]!r}")
            assert answer.status_code < 500, f"{how} {door.path}"
    assert not told, "\n".join(told)
    assert read > 300


@pytest.mark.parametrize("who", ["team_viewer", "team_member", "parent_owner", "operator"])
def test_its_own_people_and_owners_above_do_see_it(family: Family, who: str) -> None:
    """Without this the walk above would pass on empty pages."""
    client = family.client(who)
    pages = ["/d/vision/", "/d/vision/workloads/", f"/d/vision/workloads/{family.marked[1]}/", "/pools/a100/",
             "/decisions/", f"/search/workloads/?q={PART}", "/api/v1/workloads/", "/api/v1/departments/vision/usage/",
             "/api/v1/events/", "/api/v1/decisions/", "/api/v1/loans/"]  # fmt: skip
    if who in {"parent_owner", "operator"}:
        pages += ["/d/lab/", "/d/lab/workloads/", "/api/v1/departments/lab/usage/"]
    assert [page for page in pages if MARK not in text_of(client.get(page))] == []

"""What a token may not: more than what made it, longer than the right it rests on, or outside of its department."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.utils import timezone
from rest_framework.test import APIClient

from portal.access import Actor
from portal.accounts import members, users
from portal.models import ApiToken, AuditEntry, Department, InboxItem, Membership, Role, User
from tests import builders as make
from tests.clients import person, program, token_of
from tests.portal.api.test_tokens import URL, body

pytestmark = pytest.mark.django_db
TOKENS = ("read", "submit", "tokens")


@pytest.fixture
def vision() -> Department:
    return make.department("vision")


@pytest.fixture
def olga(vision: Department) -> User:
    return make.member(vision, Role.OWNER, "olga")


def with_secret(secret: str, **extra: Any) -> APIClient:
    return APIClient(HTTP_AUTHORIZATION=f"Bearer {secret}", **extra)


def soon(hours: int = 1) -> str:
    return (timezone.now() + dt.timedelta(hours=hours)).isoformat()


def works(client: APIClient) -> bool:
    return bool(client.get("/api/v1/departments/").status_code == 200)


# Made and ended with a token -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scopes", [["read"], ["read", "submit", "quota"]])
def test_without_the_scope_tokens_none_are_made_and_no_others_ended(
    vision: Department, olga: User, scopes: list[str]
) -> None:
    client = program(olga, vision, scopes)
    made = client.post(URL, body(scopes=["read"], expires_at=soon()))
    assert (made.status_code, made.json()["code"], made.json()["scope"]) == (403, "scope_missing", "tokens")
    make.user("vision.ci", service_of=vision)
    assert client.post(URL, body(scopes=["read"], expires_at=soon(), holder="vision.ci")).status_code == 403
    other, secret = token_of(olga, vision)
    ended = client.delete(f"{URL}{other.prefix}/")
    assert (ended.status_code, ended.json()["scope"]) == (403, "tokens")
    assert works(with_secret(secret))


def test_a_token_may_always_end_itself(vision: Department, olga: User) -> None:
    row, secret = token_of(olga, vision, ["read"])
    assert with_secret(secret).delete(f"{URL}{row.prefix}/").status_code == 204
    assert not works(with_secret(secret))


def test_a_child_is_bound_as_its_parent_is_and_ends_with_it(vision: Department, olga: User) -> None:
    parent, secret = token_of(olga, vision, TOKENS, addresses=["10.0.0.0/8"])
    client = with_secret(secret, REMOTE_ADDR="10.1.2.3")
    made = client.post(URL, body(scopes=["read"], expires_at=soon()))
    assert made.status_code == 201, made.content
    assert (made.json()["addresses"], made.json()["parent"]) == (["10.0.0.0/8"], parent.prefix)
    child = made.json()["token"]
    assert works(with_secret(child, REMOTE_ADDR="10.1.2.3"))
    assert not works(with_secret(child, REMOTE_ADDR="192.0.2.1"))
    narrower = client.post(URL, body(scopes=["read"], expires_at=soon(), addresses=["10.5.0.0/16"]))
    assert narrower.json()["addresses"] == ["10.5.0.0/16"]
    for outside in ("0.0.0.0/0", "192.0.2.1", "::/0", "8.0.0.0/6"):
        refused = client.post(URL, body(scopes=["read"], expires_at=soon(), addresses=[outside]))
        assert [each["attr"] for each in refused.json()["errors"]] == ["addresses"], outside
    assert person(olga).delete(f"{URL}{parent.prefix}/").status_code == 204
    assert not works(with_secret(child, REMOTE_ADDR="10.1.2.3"))
    assert not ApiToken.objects.filter(revoked_at=None).exists()


def test_a_child_ends_with_its_parent_also_where_only_the_parents_row_says_so(vision: Department, olga: User) -> None:
    parent, _secret = token_of(olga, vision, TOKENS)
    _child, secret = token_of(olga, vision, ["read"], parent=parent)
    assert works(with_secret(secret))
    ApiToken.objects.filter(pk=parent.pk).update(expires_at=timezone.now())
    assert not works(with_secret(secret))


def test_a_child_makes_no_children(vision: Department, olga: User) -> None:
    client = program(olga, vision, TOKENS)
    refused = client.post(URL, body(scopes=["read", "tokens"], expires_at=soon()))
    assert [each["attr"] for each in refused.json()["errors"]] == ["scopes"]
    beyond = client.post(URL, body(scopes=["read", "quota"], expires_at=soon()))
    assert beyond.status_code == 422
    assert beyond.json()["detail"] == (
        "A token can create tokens with its own scopes only. This one does not have quota; it has read, submit, tokens."
    )
    child = client.post(URL, body(scopes=["read"], expires_at=soon())).json()["token"]
    assert with_secret(child).post(URL, body(scopes=["read"], expires_at=soon())).status_code == 403


# A department's token acts in its department -----------------------------------------------------------------------------


def test_an_operators_token_of_a_department_changes_nothing_outside_of_it(vision: Department) -> None:
    operator, pool = make.user("root", is_operator=True), make.pool("a100")
    nlp, node = make.department("nlp"), pool.group.cluster.nodes.get()
    client = program(operator, vision)
    asked: list[tuple[str, str, dict[str, Any], dict[str, str]]] = [
        ("post", "departments/", {"id": "new", "name": "New"}, {}),
        ("patch", "pools/a100/", {"notice": 60}, {"If-Match": '"1"'}),
        ("patch", f"nodes/{node.pk}/", {"drained": True}, {"If-Match": '"1"'}),
        ("get", "clusters/", {}, {}),
        ("post", "clusters/", {"name": "c", "kind": "embedded"}, {}),
        ("post", f"nodes/{node.pk}/mode/", {"mode": "whole"}, {}),
    ]
    for method, path, data, headers in asked:
        answer = getattr(client, method)(f"/api/v1/{path}", data or None, headers=headers)
        assert answer.status_code == 403, (path, answer.content)
        assert answer.json()["code"] == "token_of_department"
    for path in ("departments/nlp/", "departments/nlp/quotas/", "departments/nlp/usage/"):
        assert client.get(f"/api/v1/{path}").status_code == 404
    numbers = {"guaranteed": 1, "borrow_limit": None, "lend_limit": None}
    theirs = client.put("/api/v1/departments/nlp/quotas/a100/", numbers, headers={"If-None-Match": "*"})
    own = client.put("/api/v1/departments/vision/quotas/a100/", numbers, headers={"If-None-Match": "*"})
    assert (theirs.status_code, own.status_code) == (404, 201)
    assert client.get("/api/v1/audit/?department=nlp").status_code == 404
    assert {row["department"] for row in client.get("/api/v1/audit/").json()["results"]} == {"vision"}
    assert nlp.quotas.count() == 0


def test_a_token_for_the_whole_installation_is_an_operators_and_ends_with_that(vision: Department, olga: User) -> None:
    operator, _pool = make.user("root", is_operator=True), make.pool("a100")
    make.user("second", is_operator=True)
    whole = body(department=None, scopes=["read", "admin"])
    assert person(olga).post(URL, whole).status_code == 404
    assert program(operator, vision).post(URL, whole).status_code == 404, "a department's token makes none"
    made = person(operator).post(URL, whole)
    assert (made.status_code, made.json()["department"]) == (201, None)
    client = with_secret(made.json()["token"])
    assert client.patch("/api/v1/pools/a100/", {"notice": 60}, headers={"If-Match": '"1"'}).status_code == 200
    assert client.get("/api/v1/departments/vision/").status_code == 200
    users.set_operator(actor=Actor(make.user("third", is_operator=True)), user=operator, operator=False)
    assert not works(client)
    assert person(olga).get(f"{URL}{made.json()['id']}/").status_code == 404


def test_an_operators_token_promises_nothing_and_jumps_no_queue_without_the_scope_admin(vision: Department) -> None:
    operator, _pool = make.user("root", is_operator=True), make.pool("a100")
    client = program(operator, vision, ["read", "submit", "quota"])
    numbers = {"guaranteed": 1, "borrow_limit": None, "lend_limit": None}
    refused = client.put("/api/v1/departments/vision/quotas/a100/", numbers, headers={"If-None-Match": "*"})
    assert (refused.status_code, refused.json()["scope"]) == (403, "admin")


# A service account's token rests on a person's right ---------------------------------------------------------------------


def _removed(operator: Actor, membership: Membership) -> None:
    members.remove_member(actor=operator, membership=membership)


def _made_member(operator: Actor, membership: Membership) -> None:
    members.change_role(actor=operator, membership=membership, role="member")


def _locked(operator: Actor, membership: Membership) -> None:
    users.set_active(actor=operator, user=membership.user, active=False)


@pytest.mark.parametrize("end", [_removed, _made_member, _locked])
def test_it_ends_with_the_right_of_who_made_it_and_the_other_owners_are_told(
    vision: Department, olga: User, end: Callable[[Actor, Membership], None]
) -> None:
    other, operator = make.member(vision, Role.OWNER, "otto"), Actor(make.user("root", is_operator=True))
    assert person(olga).post("/api/v1/departments/vision/service_accounts/", {"name": "ci"}).status_code == 201
    secrets = [person(who).post(URL, body(holder="vision.ci")).json()["token"] for who in (olga, other)]
    children = [token_of(olga, vision, ["read"])[1]]
    assert all(works(with_secret(secret)) for secret in secrets + children)
    end(operator, Membership.objects.get(user=olga))
    assert [works(with_secret(secret)) for secret in secrets] == [False, True]
    [line] = InboxItem.objects.filter(kind="token.ended")
    assert (line.user, line.data["tokens"]) == (other, "vision.ci: ci")
    Membership.objects.update_or_create(user=olga, department=vision, defaults={"role": Role.OWNER})
    User.objects.filter(pk=olga.pk).update(is_active=True)
    assert not works(with_secret(secrets[0])), "what has ended does not come back with the right"


def test_it_ends_where_the_right_ends_by_itself(olga: User, vision: Department) -> None:
    """An owner of the parent makes it; the team is moved away: no row of theirs has changed."""
    lab = make.department("lab")
    Department.objects.filter(pk=vision.pk).update(parent=lab)
    lou = make.member(lab, Role.OWNER, "lou")
    make.user("vision.ci", service_of=vision)
    Membership.objects.create(user=User.objects.get(username="vision.ci"), department=vision, role=Role.MEMBER)
    secret = person(lou).post(URL, body(holder="vision.ci")).json()["token"]
    assert works(with_secret(secret))
    Department.objects.filter(pk=vision.pk).update(parent=None)
    assert not works(with_secret(secret))


def test_a_service_account_with_the_scope_tokens_makes_children_that_rest_on_the_same_person(
    vision: Department, olga: User
) -> None:
    make.member(vision, Role.OWNER, "otto")
    assert person(olga).post("/api/v1/departments/vision/service_accounts/", {"name": "ci"}).status_code == 201
    secret = person(olga).post(URL, body(holder="vision.ci", scopes=["read", "tokens"])).json()["token"]
    made = with_secret(secret).post(URL, body(scopes=["read"], expires_at=soon()))
    assert made.json()["made_by"] == "olga"
    assert works(with_secret(made.json()["token"]))
    _removed(Actor(make.user("root", is_operator=True)), Membership.objects.get(user=olga))
    assert not works(with_secret(made.json()["token"]))


# Limits are the holder's -------------------------------------------------------------------------------------------------


def test_a_second_token_is_no_second_budget(vision: Department, olga: User, settings: Any) -> None:
    settings.API_RATE_PER_MINUTE = 4
    clients = [program(olga, vision), program(olga, vision), person(olga)]
    answers = [client.get("/api/v1/departments/").status_code for client in clients for _again in range(2)]
    assert answers == [200] * 4 + [429] * 2
    assert works(program(make.member(vision, Role.MEMBER, "mia"), vision)), "others have their own"


def test_the_upgrade_finds_out_who_made_a_service_accounts_token(vision: Department, olga: User) -> None:
    """From the audit log; one that nobody is known to have made ends."""
    robot = make.user("vision.ci", service_of=vision)
    known, secret = token_of(robot, vision, ["read"])
    unknown, lost = token_of(robot, vision, ["read"])
    own, _secret = token_of(olga, vision)
    AuditEntry.objects.create(actor=olga, actor_name="olga", action="token.created", target=known.prefix)
    migration = import_module("portal.migrations.0003_tokens_rest_on_rights")
    migration.who_made_them(apps, None)
    for token in (known, unknown, own):
        token.refresh_from_db()
    assert (known.made_by, known.revoked_at, own.made_by) == (olga, None, olga)
    assert unknown.revoked_at is not None
    assert [works(with_secret(each)) for each in (secret, lost)] == [True, False]

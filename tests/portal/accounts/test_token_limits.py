"""Limits of a token: no more rights than its parent, no longer than the right it depends on, only in its department."""

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


# Created and revoked with a token --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scopes", [["read"], ["read", "submit", "quota"]])
def test_token_without_the_tokens_scope_cannot_create_or_revoke_tokens(
    vision: Department, olga: User, scopes: list[str]
) -> None:
    client = program(olga, vision, scopes)
    refused = client.post(URL, body(scopes=["read"], expires_at=soon()))
    assert (refused.status_code, refused.json()["code"], refused.json()["scope"]) == (403, "scope_missing", "tokens")
    make.user("vision.ci", service_of=vision)
    assert client.post(URL, body(scopes=["read"], expires_at=soon(), holder="vision.ci")).status_code == 403
    other, secret = token_of(olga, vision)
    ended = client.delete(f"{URL}{other.prefix}/")
    assert (ended.status_code, ended.json()["scope"]) == (403, "tokens")
    assert works(with_secret(secret))


def test_token_can_always_revoke_itself(vision: Department, olga: User) -> None:
    row, secret = token_of(olga, vision, ["read"])
    assert with_secret(secret).delete(f"{URL}{row.prefix}/").status_code == 204
    assert not works(with_secret(secret))


def test_child_token_is_limited_to_its_parents_addresses_and_ends_with_it(vision: Department, olga: User) -> None:
    parent, secret = token_of(olga, vision, TOKENS, addresses=["10.0.0.0/8"])
    client = with_secret(secret, REMOTE_ADDR="10.1.2.3")
    created = client.post(URL, body(scopes=["read"], expires_at=soon()))
    assert created.status_code == 201, created.content
    assert (created.json()["addresses"], created.json()["parent"]) == (["10.0.0.0/8"], parent.prefix)
    child = created.json()["token"]
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


def test_child_token_ends_when_its_parent_expires(vision: Department, olga: User) -> None:
    parent, _secret = token_of(olga, vision, TOKENS)
    _child, secret = token_of(olga, vision, ["read"], parent=parent)
    assert works(with_secret(secret))
    ApiToken.objects.filter(pk=parent.pk).update(expires_at=timezone.now())
    assert not works(with_secret(secret))


def test_child_token_cannot_create_tokens(vision: Department, olga: User) -> None:
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


def test_operators_token_of_a_department_cannot_act_outside_it(vision: Department) -> None:
    operator, pool = make.user("root", is_operator=True), make.pool("a100")
    nlp, node = make.department("nlp"), pool.group.cluster.nodes.get()
    client = program(operator, vision)
    requests: list[tuple[str, str, dict[str, Any], dict[str, str]]] = [
        ("post", "departments/", {"id": "new", "name": "New"}, {}),
        ("patch", "pools/a100/", {"notice": 60}, {"If-Match": '"1"'}),
        ("patch", f"nodes/{node.pk}/", {"drained": True}, {"If-Match": '"1"'}),
        ("get", "clusters/", {}, {}),
        ("post", "clusters/", {"name": "c", "kind": "embedded"}, {}),
        ("post", f"nodes/{node.pk}/mode/", {"mode": "whole"}, {}),
    ]
    for method, path, data, headers in requests:
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


def test_installation_wide_token_needs_operator_rights_and_ends_with_them(vision: Department, olga: User) -> None:
    operator, _pool = make.user("root", is_operator=True), make.pool("a100")
    make.user("second", is_operator=True)
    whole = body(department=None, scopes=["read", "admin"])
    assert person(olga).post(URL, whole).status_code == 404
    assert program(operator, vision).post(URL, whole).status_code == 404, "a department's token cannot create one"
    created = person(operator).post(URL, whole)
    assert (created.status_code, created.json()["department"]) == (201, None)
    client = with_secret(created.json()["token"])
    assert client.patch("/api/v1/pools/a100/", {"notice": 60}, headers={"If-Match": '"1"'}).status_code == 200
    assert client.get("/api/v1/departments/vision/").status_code == 200
    users.set_operator(actor=Actor(make.user("third", is_operator=True)), user=operator, operator=False)
    assert not works(client)
    assert person(olga).get(f"{URL}{created.json()['id']}/").status_code == 404


def test_operators_token_without_the_admin_scope_cannot_set_quotas(vision: Department) -> None:
    operator, _pool = make.user("root", is_operator=True), make.pool("a100")
    client = program(operator, vision, ["read", "submit", "quota"])
    numbers = {"guaranteed": 1, "borrow_limit": None, "lend_limit": None}
    refused = client.put("/api/v1/departments/vision/quotas/a100/", numbers, headers={"If-None-Match": "*"})
    assert (refused.status_code, refused.json()["scope"]) == (403, "admin")


# A service account's token depends on a person's right -------------------------------------------------------------------


def _remove(operator: Actor, membership: Membership) -> None:
    members.remove_member(actor=operator, membership=membership)


def _demote(operator: Actor, membership: Membership) -> None:
    members.change_role(actor=operator, membership=membership, role="member")


def _lock(operator: Actor, membership: Membership) -> None:
    users.set_active(actor=operator, user=membership.user, active=False)


@pytest.mark.parametrize("end", [_remove, _demote, _lock])
def test_token_ends_with_its_creators_right_and_other_owners_are_notified(
    vision: Department, olga: User, end: Callable[[Actor, Membership], None]
) -> None:
    other, operator = make.member(vision, Role.OWNER, "otto"), Actor(make.user("root", is_operator=True))
    assert person(olga).post("/api/v1/departments/vision/service_accounts/", {"name": "ci"}).status_code == 201
    secrets = [person(user).post(URL, body(holder="vision.ci")).json()["token"] for user in (olga, other)]
    children = [token_of(olga, vision, ["read"])[1]]
    assert all(works(with_secret(secret)) for secret in secrets + children)
    end(operator, Membership.objects.get(user=olga))
    assert [works(with_secret(secret)) for secret in secrets] == [False, True]
    [item] = InboxItem.objects.filter(kind="token.ended")
    assert (item.user, item.data["tokens"]) == (other, "vision.ci: ci")
    Membership.objects.update_or_create(user=olga, department=vision, defaults={"role": Role.OWNER})
    User.objects.filter(pk=olga.pk).update(is_active=True)
    assert not works(with_secret(secrets[0])), "a revoked token stays revoked when the right returns"


def test_token_ends_when_its_creators_right_ends_indirectly(olga: User, vision: Department) -> None:
    """An owner of the parent creates the token, then the team gets another parent: no membership row has changed."""
    lab = make.department("lab")
    Department.objects.filter(pk=vision.pk).update(parent=lab)
    lou = make.member(lab, Role.OWNER, "lou")
    make.user("vision.ci", service_of=vision)
    Membership.objects.create(user=User.objects.get(username="vision.ci"), department=vision, role=Role.MEMBER)
    secret = person(lou).post(URL, body(holder="vision.ci")).json()["token"]
    assert works(with_secret(secret))
    Department.objects.filter(pk=vision.pk).update(parent=None)
    assert not works(with_secret(secret))


def test_child_tokens_of_a_service_account_depend_on_the_same_person(vision: Department, olga: User) -> None:
    make.member(vision, Role.OWNER, "otto")
    assert person(olga).post("/api/v1/departments/vision/service_accounts/", {"name": "ci"}).status_code == 201
    secret = person(olga).post(URL, body(holder="vision.ci", scopes=["read", "tokens"])).json()["token"]
    created = with_secret(secret).post(URL, body(scopes=["read"], expires_at=soon()))
    assert created.json()["made_by"] == "olga"
    assert works(with_secret(created.json()["token"]))
    _remove(Actor(make.user("root", is_operator=True)), Membership.objects.get(user=olga))
    assert not works(with_secret(created.json()["token"]))


# Limits are the holder's -------------------------------------------------------------------------------------------------


def test_tokens_of_one_holder_share_one_rate_limit(vision: Department, olga: User, settings: Any) -> None:
    settings.API_RATE_PER_MINUTE = 4
    clients = [program(olga, vision), program(olga, vision), person(olga)]
    answers = [client.get("/api/v1/departments/").status_code for client in clients for _again in range(2)]
    assert answers == [200] * 4 + [429] * 2
    assert works(program(make.member(vision, Role.MEMBER, "mia"), vision)), "other holders have their own limit"


def test_migration_finds_the_creator_of_a_service_accounts_token(vision: Department, olga: User) -> None:
    """From the audit log; a token whose creator is unknown is revoked."""
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

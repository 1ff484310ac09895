import datetime as dt
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from portal.models import ApiToken, AuditEntry, Department, Role, User
from tests import builders
from tests.clients import person, program, token_of

pytestmark = pytest.mark.django_db
URL = "/api/v1/tokens/"


@pytest.fixture
def vision() -> Department:
    return builders.department("vision")


@pytest.fixture
def alice(vision: Department) -> User:
    return builders.member(vision, Role.MEMBER, "alice")


def body(**changes: Any) -> dict[str, Any]:
    soon = (timezone.now() + dt.timedelta(days=30)).isoformat()
    return {"department": "vision", "name": "ci", "scopes": ["read", "submit"], "expires_at": soon, **changes}


def test_token_is_shown_once_and_stored_as_a_digest(alice: User) -> None:
    created = person(alice).post(URL, body())
    assert created.status_code == 201
    secret = created.json()["token"]
    assert secret.startswith(f"gqp_{created.json()['id']}_")
    row = ApiToken.objects.get()
    assert secret not in (row.digest, row.prefix)
    assert len(row.digest) == 64
    listed = person(alice).get(URL).json()["results"]
    assert [each["id"] for each in listed] == [row.prefix]
    assert "token" not in listed[0]
    assert secret not in str(list(AuditEntry.objects.values()))


def test_token_gives_access_to_the_api_until_it_is_revoked(alice: User, vision: Department) -> None:
    client = program(alice, vision)
    assert client.get("/api/v1/departments/").json()["results"][0]["id"] == "vision"
    row = ApiToken.objects.get()
    assert row.last_used_at is not None
    assert person(alice).delete(f"{URL}{row.prefix}/").status_code == 204
    refused = client.get("/api/v1/departments/")
    assert refused.status_code == 401
    assert refused["WWW-Authenticate"].startswith("Bearer")
    assert person(alice).delete(f"{URL}{row.prefix}/").status_code == 204, "revoking twice is harmless"
    assert AuditEntry.objects.filter(action="token.revoked").count() == 1


@pytest.mark.parametrize("given", ["gqp_", "gqp_nope_nope", "gqp__x", "x", "gqp_000000000000_é", "gqp_" + "a" * 500])
def test_every_invalid_token_gets_the_same_401(given: str) -> None:
    answer = APIClient(HTTP_AUTHORIZATION=f"Bearer {given}").get("/api/v1/departments/")
    assert (answer.status_code, answer.json()["code"]) == (401, "authentication_failed")


def test_expired_token_and_token_of_a_locked_account_are_refused(alice: User, vision: Department) -> None:
    expired = program(alice, vision, expires_at=timezone.now() - dt.timedelta(seconds=1))
    assert expired.get(URL).status_code == 401
    live = program(alice, vision)
    User.objects.filter(pk=alice.pk).update(is_active=False)
    assert live.get(URL).status_code == 401


def test_a_token_works_only_from_its_addresses(alice: User, vision: Department) -> None:
    client = program(alice, vision, addresses=["10.1.0.0/16", "2001:db8::/32"])
    assert client.get(URL, REMOTE_ADDR="10.1.2.3").status_code == 200
    assert client.get(URL, REMOTE_ADDR="::ffff:10.1.2.3").status_code == 200
    assert client.get(URL, REMOTE_ADDR="2001:db8::5").status_code == 200
    assert client.get(URL, REMOTE_ADDR="10.2.2.3").status_code == 401


def test_addresses_are_stored_once_and_ipv4_mapped_ones_as_ipv4(alice: User, vision: Department) -> None:
    client = person(alice)
    given = ["10.0.0.0/8", "::ffff:192.0.2.7", "10.0.0.0/8", "::ffff:10.0.0.0/104", "2001:db8::/32"]
    created = client.post(URL, body(addresses=given)).json()
    assert created["addresses"] == ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"]
    secret = {"Authorization": f"Bearer {created['token']}"}
    for address, status in (("192.0.2.7", 200), ("::ffff:192.0.2.7", 200), ("192.0.2.8", 401)):
        assert Client().get("/api/v1/workloads/", headers=secret, REMOTE_ADDR=address).status_code == status, address
    refused = client.post(URL, body(addresses=["10.1.2.3/8"])).json()["detail"]
    assert "10.0.0.0/8 for all of that network" in refused


def test_last_use_is_written_at_most_once_a_minute(alice: User, vision: Department) -> None:
    recently = timezone.now() - dt.timedelta(seconds=30)
    client = program(alice, vision, last_used_at=recently)
    client.get(URL)
    assert ApiToken.objects.get().last_used_at == recently
    ApiToken.objects.update(last_used_at=timezone.now() - dt.timedelta(seconds=61))
    client.get(URL)
    last = ApiToken.objects.get().last_used_at
    assert last is not None
    assert last > recently


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"scopes": ["quota"]}, "scopes"),
        ({"scopes": ["everything"]}, "scopes"),
        ({"scopes": []}, "scopes"),
        ({"name": "  "}, "name"),
        ({"addresses": ["10.0.0.0/33"]}, "addresses"),
        ({"addresses": ["10.1.2.3/8"]}, "addresses"),
        ({"addresses": [f"10.0.0.{at}" for at in range(101)]}, "addresses"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "2999-01-01T00:00:00Z"}, "expires_at"),
        ({"holder": "bob"}, "holder"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_invalid_token_request_is_refused_with_the_field_at_fault(
    alice: User, changes: dict[str, Any], field: str
) -> None:
    answer = person(alice).post(URL, body(**changes))
    assert answer.status_code == 422, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    assert [each["attr"].split(".")[0] for each in answer.json()["errors"]] == [field]
    assert not ApiToken.objects.exists()


def test_token_cannot_create_one_with_more_scopes_or_a_later_expiry(alice: User, vision: Department) -> None:
    until = timezone.now() + dt.timedelta(hours=1)
    client = program(alice, vision, ["read", "tokens"], expires_at=until)
    assert client.post(URL, body(scopes=["submit"], expires_at=until)).json()["errors"][0]["attr"] == "scopes"
    assert client.post(URL, body(scopes=["read"])).json()["errors"][0]["attr"] == "expires_at"
    assert client.post(URL, body(scopes=["read"], expires_at=until)).status_code == 201


def test_a_token_sees_only_its_department(alice: User, vision: Department) -> None:
    builders.department("nlp")
    other = Department.objects.get(slug="nlp")
    alice.memberships.create(department=other, role=Role.OWNER)
    client = program(alice, vision)
    assert [d["id"] for d in client.get("/api/v1/departments/").json()["results"]] == ["vision"]
    assert client.get("/api/v1/departments/nlp/").status_code == 404
    assert person(alice).get("/api/v1/departments/nlp/").status_code == 200


def test_problem_names_the_missing_scope(alice: User, vision: Department) -> None:
    owner = builders.member(vision, Role.OWNER)
    client = program(owner, vision, ["read"])
    answer = client.post("/api/v1/departments/vision/members/", {"username": alice.username})
    assert answer.status_code == 403
    assert (answer.json()["code"], answer.json()["scope"]) == ("scope_missing", "quota")


def test_owners_manage_service_accounts_and_their_tokens(alice: User, vision: Department) -> None:
    owner = builders.member(vision, Role.OWNER, "olga")
    accounts = "/api/v1/departments/vision/service_accounts/"
    assert person(alice).post(accounts, {"name": "nightly"}).status_code == 403
    created = person(owner).post(accounts, {"name": "nightly"})
    assert (created.status_code, created.json()["username"]) == (201, "vision.nightly")
    assert person(owner).post(accounts, {"name": "nightly"}).status_code == 422
    token = person(owner).post(URL, body(holder="vision.nightly"))
    assert token.status_code == 201
    robot = APIClient(HTTP_AUTHORIZATION=f"Bearer {token.json()['token']}")
    assert robot.get("/api/v1/departments/vision/").json()["role"] == "member"
    assert person(owner).get(accounts).json()["results"][0]["tokens"] == 1
    assert person(owner).delete(f"{accounts}vision.nightly/").status_code == 204
    assert robot.get("/api/v1/departments/vision/").status_code == 401


def test_service_accounts_are_limited_and_a_removed_ones_name_stays_taken(
    vision: Department, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.accounts.tokens.MOST_ACCOUNTS", 2)
    client, url = person(builders.member(vision, Role.OWNER, "olga")), "/api/v1/departments/vision/service_accounts/"
    for name in ("one", "two"):
        assert client.post(url, {"name": name}).status_code == 201
    full = client.post(url, {"name": "three"})
    assert (full.status_code, full.json()["code"]) == (409, "too_many_accounts")
    assert client.delete(f"{url}vision.one/").status_code == 204
    assert client.post(url, {"name": "three"}).status_code == 201
    assert "already exists" in client.post(url, {"name": "two"}).json()["detail"]
    assert "of a removed service account" in client.post(url, {"name": "one"}).json()["detail"]


def test_member_cannot_see_or_revoke_another_persons_token(alice: User, vision: Department) -> None:
    bob = builders.member(vision, Role.MEMBER, "bob")
    row, _secret = token_of(bob, vision)
    assert person(alice).get(f"{URL}{row.prefix}/").status_code == 404
    assert person(alice).delete(f"{URL}{row.prefix}/").status_code == 404
    owner = builders.member(vision, Role.OWNER)
    assert person(owner).delete(f"{URL}{row.prefix}/").status_code == 204

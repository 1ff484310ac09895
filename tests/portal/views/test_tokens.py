"""The pages of one's own API tokens and of those of service accounts."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.accounts.bearer_tokens import live_token
from portal.models import ApiToken, Department, Membership, Role
from tests import builders as make
from tests.clients import token_of

pytestmark = pytest.mark.django_db(transaction=True)
FORM = {"name": "ci", "scopes": ["read", "submit"], "days": "30", "addresses": "10.0.0.0/8, 192.0.2.1"}


def test_a_new_token_is_shown_once_and_works() -> None:
    department = make.department("vision")
    alice = make.member(department)
    client = Client()
    client.force_login(alice)
    response = client.post("/tokens/", FORM | {"department": "vision"}, follow=True)
    shown = re.search(r'<code id="secret"[^>]*>([^<]+)<', response.content.decode())
    assert shown
    token = live_token(shown[1])
    assert token is not None
    assert token.addresses == ["10.0.0.0/8", "192.0.2.1/32"]
    assert response.headers["Cache-Control"] == "no-store"
    again = client.get("/tokens/").content.decode()
    assert shown[1] not in again
    assert token.prefix in again


def test_scope_beyond_the_role_is_refused_and_the_form_keeps_its_input() -> None:
    department = make.department("vision")
    client = Client()
    client.force_login(make.member(department, Role.VIEWER, username="vera"))
    response = client.post("/tokens/", FORM | {"department": "vision"})
    assert response.status_code == 422
    assert "vera currently does not have these scopes in this department: submit." in response.content.decode()
    assert 'value="ci"' in response.content.decode()
    assert not ApiToken.objects.exists()


TOKENS = "/d/vision/members/vision.ci/tokens/"


@pytest.fixture
def owner() -> Client:
    """The owner of vision, which has the service account vision.ci."""
    department = make.department("vision")
    client = Client()
    client.force_login(make.member(department, Role.OWNER, username="olivia"))
    created = client.post("/d/vision/members/service/", {"service-name": "ci", "service-role": "member"})
    assert (created.status_code, created.headers["Location"]) == (302, TOKENS)
    return client


def test_owner_creates_a_token_of_a_service_account_in_the_browser(owner: Client) -> None:
    form = {"name": "nightly", "scopes": ["read", "submit"], "days": "30", "addresses": "10.0.0.0/8"}
    page = owner.get(TOKENS).content.decode()
    assert [scope for scope in ("read", "submit", "quota", "admin") if f'value="{scope}"' in page] == ["read", "submit"]
    response = owner.post(TOKENS, form, follow=True)
    shown = re.search(r'<code id="secret"[^>]*>([^<]+)<', response.content.decode())
    assert shown
    assert response.headers["Cache-Control"] == "no-store"
    token = live_token(shown[1])
    assert token is not None
    assert (token.holder.username, token.department.slug, token.scopes) == ("vision.ci", "vision", ["read", "submit"])
    assert abs(token.expires_at - timezone.now() - dt.timedelta(days=30)) < dt.timedelta(minutes=5)
    answer = Client().get("/api/v1/workloads/", headers={"Authorization": f"Bearer {shown[1]}"}, REMOTE_ADDR="10.1.2.3")
    assert answer.status_code == 200
    again = owner.get(TOKENS).content.decode()
    assert shown[1] not in again
    assert f"gqp_{token.prefix}_" in again
    assert f'href="{TOKENS}"' in owner.get("/d/vision/members/").content.decode()
    gone = owner.post(f"/tokens/{token.prefix}/revoke/")
    assert gone.headers["Location"] == TOKENS
    assert live_token(shown[1]) is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"scopes": []}, "This field is required."),
        ({"scopes": ["quota"]}, "quota is not one of the available choices."),
        ({"days": "9999"}, "9999 is not one of the available choices."),
        ({"name": ""}, "This field is required."),
        ({"addresses": "everywhere"}, "everywhere is not an IP address or network."),
    ],
)
def test_invalid_request_for_a_token_of_a_service_account_is_refused(
    owner: Client, wrong: dict[str, Any], message: str
) -> None:
    response = owner.post(TOKENS, FORM | wrong)
    assert response.status_code == 422
    assert message in response.content.decode()
    assert not ApiToken.objects.exists()


def test_all_errors_of_a_form_are_shown_at_once(owner: Client) -> None:
    wrong = {"name": "", "scopes": ["read", "submit"], "days": "9999", "addresses": "10.0.0.0/8 nowhere"}
    Membership.objects.filter(user__username="vision.ci").update(role=Role.VIEWER)
    own = make.member(Department.objects.get(slug="vision"), Role.VIEWER, "vera")
    vera = Client()
    vera.force_login(own)
    for client, address, more in ((vera, "/tokens/", {"department": "vision"}), (owner, TOKENS, {})):
        text = client.post(address, wrong | more).content.decode()
        for message in ("This field is required.", "9999 is not one", "nowhere is not an IP address or network."):
            assert message in text, address
        assert "does not have these scopes" in text or "submit is not one of the available choices" in text


def test_only_owners_see_tokens_of_others_and_create_them_for_service_accounts(owner: Client) -> None:
    vision = Department.objects.get(slug="vision")
    alice = make.member(vision, username="alice")
    for user in (
        alice,
        make.member(vision, Role.VIEWER, "vera"),
        make.member(make.department("nlp"), Role.OWNER, "nora"),
    ):
        client = Client()
        client.force_login(user)
        assert client.get(TOKENS).status_code in {403, 404}
        assert client.post(TOKENS, FORM).status_code in {403, 404}
    row, _secret = token_of(alice, vision, ["read"])
    page = owner.get("/d/vision/members/alice/tokens/").content.decode()
    assert row.prefix in page
    assert "New token" not in page
    assert owner.post("/d/vision/members/alice/tokens/", FORM).status_code == 404
    elsewhere, _secret = token_of(alice, make.department("biology"), ["read"])
    assert elsewhere.prefix not in page
    assert owner.post(f"/tokens/{elsewhere.prefix}/revoke/").status_code == 404
    assert owner.post(f"/tokens/{row.prefix}/revoke/").headers["Location"] == "/d/vision/members/alice/tokens/"
    assert ApiToken.objects.filter(revoked_at=None).get() == elsewhere


def test_members_can_revoke_only_their_own_tokens() -> None:
    department = make.department("vision")
    alice, carol = make.member(department), make.member(department)
    client = Client()
    client.force_login(alice)
    client.post("/tokens/", FORM | {"department": "vision"})
    token = ApiToken.objects.get()
    other = Client()
    other.force_login(carol)
    assert other.post(f"/tokens/{token.prefix}/revoke/").status_code == 404
    assert client.post(f"/tokens/{token.prefix}/revoke/").status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None

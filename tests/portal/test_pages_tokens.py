"""The page of one's own API tokens."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from portal.models import ApiToken, Role
from portal.tokens import live_token
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)
FORM = {"name": "ci", "scopes": ["read", "submit"], "days": "30", "addresses": "10.0.0.0/8, 192.0.2.1"}


def test_a_new_token_is_shown_once_and_works() -> None:
    department = make.department("vision")
    alice = make.member(department)
    client = Client()
    client.force_login(alice)
    response = client.post("/tokens/", FORM | {"department": "vision"})
    shown = re.search(r'<code id="secret"[^>]*>([^<]+)<', response.content.decode())
    assert shown
    token = live_token(shown[1])
    assert token is not None
    assert token.addresses == ["10.0.0.0/8", "192.0.2.1/32"]
    assert response.headers["Cache-Control"] == "no-store"
    again = client.get("/tokens/").content.decode()
    assert shown[1] not in again
    assert token.prefix in again


def test_a_scope_beyond_the_role_is_refused_beside_its_field_and_the_form_kept() -> None:
    department = make.department("vision")
    client = Client()
    client.force_login(make.member(department, Role.VIEWER, username="vera"))
    response = client.post("/tokens/", FORM | {"department": "vision"})
    assert response.status_code == 422
    assert "vera may not submit in this department at present." in response.content.decode()
    assert 'value="ci"' in response.content.decode()
    assert not ApiToken.objects.exists()


def test_revoking_ends_only_ones_own_tokens() -> None:
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

"""A second factor: the authenticator app, recovery codes, and operators who must set one up."""

from __future__ import annotations

import datetime as dt
import io
import re
from typing import Any

import pytest
import time_machine
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth
from cryptography.fernet import Fernet
from django.conf import settings as site
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from portal.models import AuditEntry, User
from tests import builders as make
from tests.clients import person, token_of
from tests.portal.sign_in.conftest import PASSWORD

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("alice")]
HOME = "/profile/second-factor/"


def sign_in(client: Client, **more: str) -> Any:
    return client.post("/login/", {"username": "alice", "password": PASSWORD, **more})


def code_of(secret: str) -> str:
    counter = int(timezone.now().timestamp()) // 30
    return str(auth.format_hotp_value(auth.hotp_value(secret, counter)))


def confirm(client: Client, page: str) -> None:
    """Enters the password again, as the page requires before a change."""
    address = client.get(page).headers["Location"]
    assert address.startswith("/profile/confirm/?next=")
    assert client.post(address, {"password": PASSWORD}).headers["Location"] == page


def set_up(client: Client) -> str:
    """Sets an app up; returns its key."""
    confirm(client, f"{HOME}app/")
    page = client.get(f"{HOME}app/").content.decode()
    secret = re.search(r'id="secret">([^<]+)<', page)
    assert secret, page
    assert "data:image/svg+xml" in page
    assert client.post(f"{HOME}app/", {"code": "000000"}).status_code == 422
    done = client.post(f"{HOME}app/", {"code": code_of(secret[1])})
    assert done.headers["Location"] == f"{HOME}codes/"
    return secret[1]


def codes_of(client: Client) -> list[str]:
    page = client.get(f"{HOME}codes/").content.decode()
    listed = re.search(r'id="codes"[^>]*>([^<]+)<', page)
    assert listed
    return listed[1].split()


def test_password_alone_does_not_log_in_and_a_code_works_once(alice: User) -> None:
    first = Client()
    sign_in(first)
    secret = set_up(first)
    stored = Authenticator.objects.get(type="totp").data["secret"]
    assert secret not in stored
    with time_machine.travel(timezone.now() + dt.timedelta(minutes=5), tick=True):
        other = Client()
        assert sign_in(other, next="/inbox/").headers["Location"] == "/login/second-factor/"
        assert other.get("/inbox/").status_code == 302, "no session yet"
        assert other.get("/session/").status_code == 401
        assert other.post("/login/second-factor/", {"code": "000000"}).status_code == 422
        code = code_of(secret)
        assert other.post("/login/second-factor/", {"code": code}).headers["Location"] == "/inbox/"
        assert other.get("/inbox/").status_code == 200
        again = Client()
        sign_in(again)
        assert again.post("/login/second-factor/", {"code": code}).status_code == 422
    assert AuditEntry.objects.filter(action="user.second_factor_added", actor=alice).count() == 1


def test_recovery_code_works_once_and_guesses_are_limited() -> None:
    first = Client()
    sign_in(first)
    set_up(first)
    code = codes_of(first)[0]
    for expected in (302, 422):
        client = Client()
        sign_in(client)
        assert client.post("/login/second-factor/", {"code": code}).status_code == expected
    client = Client()
    sign_in(client)
    for _ in range(12):
        client.post("/login/second-factor/", {"code": "000000"})
    assert client.post("/login/second-factor/", {"code": codes_of(first)[0]}).status_code == 422
    assert client.get("/profile/").status_code == 302


def test_password_is_required_again_before_a_change() -> None:
    client = Client()
    sign_in(client)
    set_up(client)
    with time_machine.travel(timezone.now() + dt.timedelta(hours=1), tick=True):
        redirect = client.get(f"{HOME}app/remove/")
        assert redirect.headers["Location"].startswith("/profile/confirm/?next=")
        assert client.post(redirect.headers["Location"], {"password": "wrong"}).status_code == 422
        answer = client.post(redirect.headers["Location"], {"password": PASSWORD})
        assert answer.headers["Location"] == f"{HOME}app/remove/"
        assert client.post(f"{HOME}app/remove/").headers["Location"] == HOME
    assert not Authenticator.objects.filter(type="totp").exists()
    assert sign_in(Client()).headers["Location"] == "/"


def test_operator_can_remove_the_second_factor_of_a_user(alice: User) -> None:
    client = Client()
    sign_in(client)
    set_up(client)
    operator = person(make.user("root", is_operator=True))
    assert "Remove second factor" in operator.get("/operator/users/alice/").content.decode()
    assert operator.post("/operator/users/alice/", {"change": "second_factor"}, format="multipart").status_code == 302
    assert client.get("/profile/").status_code == 302, "sessions end"
    assert sign_in(Client()).headers["Location"] == "/"
    assert AuditEntry.objects.filter(action="user.second_factor_removed").count() == 1


class TestOperators:
    @pytest.fixture(autouse=True)
    def required(self, settings: Any, alice: User) -> None:
        settings.SECOND_FACTOR_FOR_OPERATORS = True
        User.objects.filter(pk=alice.pk).update(is_operator=True)

    def test_operators_must_set_up_a_second_factor_before_anything_else(self, alice: User) -> None:
        client = Client()
        sign_in(client)
        for page in ("/", "/operator/", "/admin/", "/profile/", "/d/vision/"):
            assert client.get(page).headers["Location"] == HOME
        assert client.get("/api/v1/departments/", headers={"Accept": "application/json"}).status_code == 403
        assert client.post("/operator/users/", {"username": "x"}).headers["Location"] == HOME
        assert not User.objects.filter(username="x").exists()
        assert "Operators must use a second factor" in client.get(HOME).content.decode()
        set_up(client)
        assert client.get("/operator/").status_code == 200

    def test_other_users_tokens_and_logins_by_a_provider_are_exempt(self, alice: User) -> None:
        bob = Client()
        bob.force_login(make.user("bob"), backend="django.contrib.auth.backends.ModelBackend")
        assert bob.get("/inbox/").status_code == 200
        _row, token = token_of(alice, make.department("vision"))
        assert Client(HTTP_AUTHORIZATION=f"Bearer {token}").get("/api/v1/departments/").status_code == 200
        client = Client()
        client.force_login(alice, backend="django.contrib.auth.backends.ModelBackend")
        session = client.session
        session["account_authentication_methods"] = [{"method": "socialaccount", "at": 1, "provider": "sso"}]
        session.save()
        assert client.get("/operator/").status_code == 200


def test_reencryption_with_a_new_key_includes_second_factors(settings: Any) -> None:
    client = Client()
    sign_in(client)
    secret = set_up(client)
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode(), *site.ENCRYPTION_KEYS]
    output = io.StringIO()
    call_command("reencrypt", stdout=output)
    assert "mfa.Authenticator.data: 2 encrypted" in output.getvalue()
    settings.ENCRYPTION_KEYS = settings.ENCRYPTION_KEYS[:1]
    assert codes_of(client)
    with time_machine.travel(timezone.now() + dt.timedelta(minutes=5), tick=True):
        other = Client()
        sign_in(other)
        assert other.post("/login/second-factor/", {"code": code_of(secret)}).status_code == 302

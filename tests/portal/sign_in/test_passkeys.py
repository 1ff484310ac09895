"""What a login by passkey refuses; one that succeeds is tested in a browser (tests/e2e/test_passkeys.py)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from allauth.core import context
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP
from allauth.socialaccount.models import SocialAccount
from django.core.exceptions import ValidationError
from django.test import Client, RequestFactory
from fido2.utils import websafe_encode

from portal.infra.providers import directories
from portal.models import User
from portal.sign_in import passkeys
from portal.sign_in.passkeys import require_own_origin
from tests import builders as make
from tests.portal.sign_in.conftest import PASSWORD

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("alice")]
DIRECTORY = '[corp]\nserver_url = "ldap://127.0.0.1:9"\nuser_base = "ou=people"\n'


def credential(origin: Any) -> dict[str, Any]:
    return {"response": {"clientDataJSON": websafe_encode(json.dumps({"origin": origin}).encode())}}


@pytest.mark.parametrize(
    "origin",
    [
        "https://x.gpu.example.org", "https://gpu.example.org:8443", "http://gpu.example.org", "https://evil.example",
        "https://gpu.example.org.", "", None, 7, ["https://gpu.example.org"],
    ],
)  # fmt: skip
def test_page_of_another_host_cannot_use_the_portals_passkeys(settings: Any, origin: Any) -> None:
    """Such as the page of a notebook."""
    settings.ALLOWED_HOSTS = ["gpu.example.org"]
    request = RequestFactory().get("/login/", secure=True, HTTP_HOST="gpu.example.org")
    with context.request_context(request):
        require_own_origin(credential("https://gpu.example.org"))
        with pytest.raises(ValidationError):
            require_own_origin(credential(origin))


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "1", "null", '"x"', "{}", '{"response": 1}', '{"response": {"clientDataJSON": 5}}',
        '{"response": {"clientDataJSON": "@@"}}', json.dumps(credential("http://testserver")),
        json.dumps({"id": "x", "rawId": "eA", "type": "public-key", **credential("http://testserver")}),
    ],
)  # fmt: skip
def test_malformed_credential_is_refused_everywhere(alice: User, text: str) -> None:
    client = Client()
    assert client.get("/login/passkey/").json()["request_options"]["publicKey"]["userVerification"] == "required"
    answer = client.post("/login/passkey/", {"credential": text})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/login/")
    assert client.get("/session/").status_code == 401
    assert client.post("/login/", {"username": "alice", "password": PASSWORD}).status_code == 302
    redirect = client.get("/profile/second-factor/passkeys/add/")
    assert redirect.headers["Location"].startswith("/profile/confirm/?next=")
    client.post(redirect.headers["Location"], {"password": PASSWORD})
    options = client.get("/profile/second-factor/passkeys/add/").content.decode()
    assert '"residentKey": "required"' in options
    assert '"userVerification": "required"' in options
    assert client.post("/profile/second-factor/passkeys/add/", {"credential": text}).status_code == 422
    assert client.post("/profile/confirm/passkey/", {"credential": text}).headers["Location"] == "/profile/confirm/"
    assert not Authenticator.objects.exists()
    TOTP.activate(alice, "JBSWY3DPEHPK3PXP")
    other = Client()
    other.post("/login/", {"username": "alice", "password": PASSWORD})
    assert other.post("/login/second-factor/", {"credential": text}).status_code == 422
    assert other.get("/session/").status_code == 401


def test_passkeys_of_other_users_cannot_be_removed(alice: User) -> None:
    row = Authenticator.objects.create(user=make.user("eve"), type="webauthn", data={"name": "x", "credential": {}})
    client = Client()
    client.post("/login/", {"username": "alice", "password": PASSWORD})
    client.post("/profile/confirm/", {"password": PASSWORD})
    assert client.post(f"/profile/second-factor/passkeys/{row.pk}/remove/").status_code == 404
    assert Authenticator.objects.exists()


def test_only_the_owner_can_rename_a_passkey(alice: User) -> None:
    own = Authenticator.objects.create(user=alice, type="webauthn", data={"name": "x", "credential": {}})
    others = Authenticator.objects.create(user=make.user("eve"), type="webauthn", data={"name": "x", "credential": {}})
    client = Client()
    client.force_login(alice, backend="django.contrib.auth.backends.ModelBackend")
    url = f"/profile/second-factor/passkeys/{own.pk}/rename/"
    redirect = client.post(url, {"name": "stolen"})
    assert redirect.headers["Location"].startswith("/profile/confirm/")
    client.post("/profile/confirm/", {"password": PASSWORD})
    assert 'value="x"' in client.get(url).content.decode()
    for wrong in ("", "  ", "a" * 61, "a\u202eb"):
        assert client.post(url, {"name": wrong}).status_code == 422
    assert client.post(url, {"name": "Key on my ring"}).headers["Location"] == "/profile/second-factor/"
    assert "Key on my ring" in client.get("/profile/second-factor/").content.decode()
    assert client.post(url.replace(str(own.pk), str(others.pk)), {"name": "mine"}).status_code == 404
    others.refresh_from_db()
    assert others.data["name"] == "x"


def test_passkey_login_is_refused_whenever_a_password_login_would_be(settings: Any, alice: User) -> None:
    check = passkeys.LoginForm()._require_still_admitted
    check(alice)
    settings.PASSWORD_SIGN_IN = False
    with pytest.raises(ValidationError, match="Passwords are not used here"):
        check(alice)
    alice.set_unusable_password()
    with pytest.raises(ValidationError, match="not accepted"):
        check(alice)
    settings.IDENTITY_PROVIDERS = directories.read(DIRECTORY)
    SocialAccount.objects.create(user=alice, provider="corp", uid="1")
    with pytest.raises(ValidationError, match="does not respond"):
        check(alice)

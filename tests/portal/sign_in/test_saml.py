"""The portal's SAML addresses without a provider; with a real one: tests/e2e/test_saml.py."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from portal.infra.providers import identity_providers, saml
from tests import builders as make

if not os.environ.get("CI"):
    pytest.importorskip("onelogin", reason="needs requirements/saml.txt")
pytestmark = pytest.mark.django_db(transaction=True)
SAML = '[sso]\nlabel = "Company login"\nentity_id = "https://idp"\nmetadata_url = "http://127.0.0.1:9/metadata"\n'
OPENID = '[other]\nserver_url = "https://sso"\nclient_id = "x"\nclient_secret = "x"\n'
HERE = "/login/with/sso/saml/"


@pytest.fixture(autouse=True)
def sso(settings: Any) -> None:
    cache.clear()
    settings.IDENTITY_PROVIDERS = (*saml.read(SAML), *identity_providers.read(OPENID))


@pytest.mark.parametrize("metadata", ["", "<html>", "<a/>", "not XML", None])
def test_unreachable_or_malformed_metadata_of_a_provider_give_502(
    monkeypatch: pytest.MonkeyPatch, metadata: str | None
) -> None:
    from onelogin.saml2.idp_metadata_parser import OneLogin_Saml2_IdPMetadataParser as Parser

    if metadata is not None:
        monkeypatch.setattr(Parser, "get_metadata", lambda *args, **kwargs: metadata)
    answer = Client().post("/login/with/sso/", {"process": "login"})
    assert answer.status_code == 502
    assert "Company login did not confirm who you are." in answer.content.decode()


def test_portals_metadata_name_the_address_for_responses_and_no_logout() -> None:
    text = Client().get(f"{HERE}metadata/").content.decode()
    assert f'Location="http://testserver{HERE}"' in text
    assert "SingleLogoutService" not in text


def test_portals_metadata_have_its_encryption_certificate(settings: Any, tmp_path: Path) -> None:
    assert "X509Certificate" not in Client().get(f"{HERE}metadata/").content.decode()
    files = [*("-keyout", str(tmp_path / "own.key")), *("-out", str(tmp_path / "own.pem"))]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=portal", *files]
    subprocess.run(command, check=True, capture_output=True)
    own = f'own_certificate_file = "{tmp_path}/own.pem"\nown_key_file = "{tmp_path}/own.key"\n'
    settings.IDENTITY_PROVIDERS = saml.read(SAML + own)
    text = Client().get(f"{HERE}metadata/").content.decode()
    assert 'use="encryption"' in text
    assert "".join((tmp_path / "own.pem").read_text().split("\n")[1:-2]) in "".join(text.split())


def test_each_address_accepts_only_its_own_kind_of_provider() -> None:
    client = Client()
    assert client.get("/login/with/sso/callback/").status_code == 404
    for address in ("/login/with/other/saml/metadata/", "/login/with/other/saml/finish/", f"{HERE}logout/"):
        assert client.get(address).status_code == 404
    assert client.post("/login/with/other/saml/", {}).status_code == 404
    assert client.get(HERE).status_code == 405
    assert client.get(f"{HERE}finish/").status_code == 502, "no login was started in this browser"


def test_login_page_offers_the_provider_and_the_profile_linking_it() -> None:
    page = Client().get("/login/").content.decode()
    assert 'action="/login/with/sso/"' in page
    mia = Client()
    mia.force_login(make.user("mia"))
    assert "Link Company login" in mia.get("/profile/").content.decode()

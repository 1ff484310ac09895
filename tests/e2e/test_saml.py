"""Users of a real Keycloak in a real browser, by SAML: the same rules as with OpenID Connect."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests import keycloak
from tests.e2e.conftest import Person
from tests.e2e.installation import installed
from tests.e2e.test_keycloak import NEEDS, PASSWORD, PEOPLE, TOKEN, VISION, WORLD, Company, at_keycloak, sign_in

pytestmark = NEEDS
if not os.environ.get("CI"):
    pytest.importorskip("onelogin", reason="needs requirements/saml.txt")
PROVIDER = """
[{key}]
label = "Company login{more}"
entity_id = "{server_url}"
metadata_url = "{server_url}/protocol/saml/descriptor"
"""


def sealed(folder: Path) -> str:
    """Settings with the portal's own key, which is created here."""
    files = ["-keyout", folder / "own.key", "-out", folder / "own.pem"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:3072", "-nodes", "-days", "2", "-subj", "/CN=portal", *files]
    subprocess.run(command, check=True, capture_output=True)
    return f'own_certificate_file = "{folder}/own.pem"\nown_key_file = "{folder}/own.key"\n'


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    folder = tmp_path_factory.mktemp("saml")
    with keycloak.running(folder) as server:
        text = PROVIDER.format(key="sso", more="", server_url=server.server_url)
        text += PROVIDER.format(key="fleeting", more=" 2", server_url=server.server_url)
        text += PROVIDER.format(key="tile", more=" 3", server_url=server.server_url) + "idp_initiated = true\n"
        text += PROVIDER.format(key="sealed", more=" 4", server_url=server.server_url) + sealed(folder)
        with installed(folder, SAML_PROVIDERS=text) as portal:
            server.make_realm(portal.url, PEOPLE, [VISION])
            server.make_saml_client(portal.url)
            server.make_saml_client(portal.url, "fleeting", "transient")
            # The assertion alone is signed.
            server.make_saml_client(portal.url, "tile", saml__server__signature="false")
            certificate = "".join((folder / "own.pem").read_text().split("\n")[1:-2])
            server.make_saml_client(
                portal.url, "sealed", saml__encrypt="true", saml__encryption__certificate=certificate,
                saml__encryption__keyAlgorithm="http://www.w3.org/2001/04/xmlenc#rsa-oaep-mgf1p",
            )  # fmt: skip
            portal.manage("bootstrap", "root", "--password-file", "-", given=f"{PASSWORD}\n")
            assert portal.python(WORLD.replace('provider="keycloak"', 'provider="sso"'))
            yield Company(portal, server)


def test_membership_and_tokens_follow_the_group(chromium: Any, company: Company) -> None:
    page = sign_in(chromium, company, "mia")
    expect(page.get_by_role("heading", name="mia", exact=True)).to_be_visible()
    expect(page.locator("main")).to_contain_text("Vision")
    assert ["mia", "member", True] in company.facts()["members"]
    with company.portal.client(company.portal.python(TOKEN)) as client:
        assert client.get("departments/vision/").json()["role"] == "member"
        company.keycloak.leave("mia", VISION)
        again = sign_in(chromium, company, "mia")
        assert client.get("departments/vision/").status_code == 401
    expect(again.locator("main")).not_to_contain_text("Vision")
    facts = company.facts()
    assert facts["told"] == ["olga"]
    assert facts["users"].count("mia") == 1


def test_equal_username_and_email_do_not_take_over_an_account(chromium: Any, company: Company) -> None:
    before = company.facts()["members"]
    page = sign_in(chromium, company, "alice")
    expect(page.get_by_role("heading", name="alice-sso", exact=True)).to_be_visible()
    assert company.facts()["members"] == before


def test_transient_identifier_creates_no_account(chromium: Any, company: Company) -> None:
    before = company.facts()["users"]
    page = at_keycloak(chromium, company, "mia", "Company login 2")
    expect(page.locator("main")).to_contain_text("Company login 2 did not confirm who you are.")
    assert company.facts()["users"] == before
    assert "not persistent: set subject_attribute" in company.portal.log.read_text()


def answer_at_login(page: Page, company: Company, provider: str, label: str, *, lands: str) -> str:
    """Logs mia in; returns the XML of the provider's response, intercepted on its way."""
    caught: list[str] = []
    ends = f"/{provider}/saml/"
    page.on("request", lambda each: caught.append(each.post_data or "") if each.url.endswith(ends) else None)
    page.get_by_role("button", name=f"Log in with {label}", exact=True).click()
    page.fill("#username", "mia")
    page.fill("#password", PASSWORD)
    page.click("#kc-login")
    page.wait_for_url(company.portal.url + lands)
    return base64.b64decode(httpx.QueryParams(caught[0])["SAMLResponse"]).decode()


def test_response_is_accepted_once_only_signed_and_only_in_the_requesting_browser(
    chromium: Any, company: Company
) -> None:
    """The response is intercepted on its way and sent again: unchanged, changed, and by another browser."""
    page: Page = Person(chromium, company.portal.url, "", "").go("/login/")
    xml = answer_at_login(page, company, "sso", "Company login", lands="/")
    assert "mia@example.org" in xml
    address = f"{company.portal.url}/login/with/sso/saml/"
    own = {each["name"]: each["value"] for each in page.context.cookies() if each["name"] != "saml-acs-session"}
    signed = re.compile(r"<dsig:Signature.*?</dsig:Signature>", re.DOTALL)
    bomb = '<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><a>&c;</a>'
    answers = [
        ("again in the same browser", xml, own, "PermissionDenied"),
        ("in another browser", xml, {}, "PermissionDenied"),
        ("as somebody else", xml.replace("mia@example.org", "root@example.org"), own, "Signature validation failed"),
        ("without signatures", signed.sub("", xml), own, "No Signature found"),
        ("for another portal", xml.replace(company.portal.url, "http://127.0.0.2:1"), own, "invalid_response"),
        ("with entities", bomb, own, "DTD"),
        ("nonsense", "<a", own, ""),
        ("empty", "", own, ""),
    ]
    for name, text, jar, reason in answers:
        with httpx.Client(trust_env=False, cookies=jar, follow_redirects=True) as client:
            sent = {"SAMLResponse": base64.b64encode(text.encode()).decode(), "RelayState": "https://evil.example/"}
            told = client.post(address, data=sent)
            assert (told.status_code, "did not confirm who you are" in told.text) == (502, True), name
            logged = [line for line in company.portal.log.read_text().splitlines() if "provider.failed" in line]
            assert reason in logged[-1], (name, logged[-1])
            assert "no answer of the provider" not in logged[-1], name
    with httpx.Client(trust_env=False, follow_redirects=True) as client:
        too_large = client.post(address, data={"SAMLResponse": "A" * 2**19})
        assert too_large.status_code == 502, "so large a body of an anonymous client is refused"
        assert client.post(address.replace("/sso/", "/other/"), data={}).status_code == 404
        assert f'entityID="{address}metadata/"' in client.get(f"{address}metadata/").text


def from_the_tile(page: Page, company: Company, key: str, more: str = "") -> list[str]:
    """Opens the application with that key from the provider's page; returns the bodies that were sent to the portal."""
    caught: list[str] = []
    address = f"/{key}/saml/"
    page.on("request", lambda each: caught.append(each.post_data or "") if each.url.endswith(address) else None)
    page.goto(f"{company.keycloak.server_url}/protocol/saml/clients/{key}{more}")
    page.fill("#username", "mia")
    page.fill("#password", PASSWORD)
    page.click("#kc-login")
    page.wait_for_url(f"{company.portal.url}/**")
    return caught


def answered(company: Company, key: str, xml: str) -> tuple[int, str]:
    """Sends the response by another browser; returns the status, and the last line of the log about a failure."""
    with httpx.Client(trust_env=False, follow_redirects=True) as client:
        sent = {"SAMLResponse": base64.b64encode(xml.encode()).decode()}
        status = client.post(f"{company.portal.url}/login/with/{key}/saml/", data=sent).status_code
    logged = [line for line in company.portal.log.read_text().splitlines() if "provider.failed" in line]
    return status, logged[-1] if logged else ""


def test_provider_initiated_login_is_refused_with_an_explanation(chromium: Any, company: Company) -> None:
    page: Page = Person(chromium, company.portal.url, "", "").go("/login/")
    assert len(from_the_tile(page, company, "sso")) == 1
    expect(page.locator("main")).to_contain_text("A login that starts at Company login is not accepted")
    page.goto(f"{company.portal.url}/profile/")
    assert "/login/" in page.url


def test_allowed_provider_initiated_login_works_once_and_replaces_no_session(chromium: Any, company: Company) -> None:
    page: Page = Person(chromium, company.portal.url, "", "").go("/login/")
    [sent] = from_the_tile(page, company, "tile", "?RelayState=/profile/")
    assert page.url == f"{company.portal.url}/profile/"
    expect(page.get_by_role("heading", name=re.compile("^mia"))).to_be_visible()
    xml = base64.b64decode(httpx.QueryParams(sent)["SAMLResponse"]).decode()
    assert "InResponseTo" not in xml
    status, logged = answered(company, "tile", xml)
    assert (status, "it was used before" in logged) == (502, True)
    operator: Page = Person(chromium, company.portal.url, "root", PASSWORD).go("/profile/")
    from_the_tile(operator, company, "tile", "?RelayState=https://evil.example/")
    assert operator.url == f"{company.portal.url}/"
    operator.goto(f"{company.portal.url}/profile/")
    expect(operator.get_by_role("heading", name="root", exact=True)).to_be_visible()


def test_solicited_response_cannot_be_turned_into_an_unsolicited_one(chromium: Any, company: Company) -> None:
    """The response is stolen before its assertion was used; the envelope around the assertion is not signed."""
    page: Page = Person(chromium, company.portal.url, "", "").go("/login/")
    caught: list[str] = []

    def steal(route: Any) -> None:
        caught.append(route.request.post_data)
        route.abort()

    page.route("**/login/with/tile/saml/", steal)
    page.get_by_role("button", name="Log in with Company login 3", exact=True).click()
    page.fill("#username", "mia")
    page.fill("#password", PASSWORD)
    page.locator("#kc-login").click(no_wait_after=True)
    for _try in range(100):
        if caught:
            break
        page.wait_for_timeout(100)
    xml = base64.b64decode(httpx.QueryParams(caught[0])["SAMLResponse"]).decode()
    head, rest = xml.split(">", 1)
    cut = re.sub(r' InResponseTo="[^"]+"', "", head) + ">" + rest
    assert xml.count("InResponseTo") == cut.count("InResponseTo") + 1 == 2
    status, logged = answered(company, "tile", cut)
    assert (status, "it is the answer to a question" in logged) == (502, True), logged


def test_an_encrypted_assertion_is_read_and_a_plain_one_refused(chromium: Any, company: Company) -> None:
    page: Page = Person(chromium, company.portal.url, "", "").go("/login/?next=/profile/")
    xml = answer_at_login(page, company, "sealed", "Company login 4", lands="/profile/")
    expect(page.get_by_role("heading", name=re.compile("^mia"))).to_be_visible()
    assert "EncryptedAssertion" in xml
    assert "mia@example.org" not in xml
    with httpx.Client(trust_env=False) as client:
        ours = client.get(f"{company.portal.url}/login/with/sealed/saml/metadata/").text
    assert 'use="encryption"' in ours
    client_id = f"{company.portal.url}/login/with/sealed/saml/metadata/"
    company.keycloak.change_client(client_id, {"saml.encrypt": "false"})
    refused = at_keycloak(chromium, company, "mia", "Company login 4")
    expect(refused.locator("main")).to_contain_text("Company login 4 did not confirm who you are.")
    assert "is not encrypted and the SP require it" in company.portal.log.read_text()

"""SAML_PROVIDERS: every mistake is reported with the variable, the provider and what to do."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from portal.infra.providers.saml import read

GOOD = '[sso]\nentity_id = "https://idp"\nmetadata_url = "https://idp.example.org/metadata"\n'
EXPLICIT = '[sso]\nentity_id = "https://idp"\nsso_url = "https://idp.example.org/sso"\n'
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\nAAA=\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


def test_omitted_settings_get_defaults(tmp_path: Path) -> None:
    file = tmp_path / "idp.pem"
    file.write_text(PEM)
    first, second = read(
        GOOD + EXPLICIT.replace("sso]", "b]") + f'certificate_file = "{file}"\ngroups_attribute = ""\n'
    )
    assert (first.label, first.kind, first.groups_attribute) == ("Sso", "saml", "groups")
    assert first.origins == second.origins == ("https://idp.example.org",)
    assert (second.certificate, second.groups_attribute) == ("MIIBAAA=", "")


def test_own_key_makes_encryption_mandatory_and_is_not_shown(tmp_path: Path) -> None:
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
    certificate.write_text(PEM)
    key.write_text(PEM.replace("CERTIFICATE", "PRIVATE KEY").replace("MIIB", "SECR"))
    own = f'own_certificate_file = "{certificate}"\nown_key_file = "{key}"\n'
    [plain], [sso] = read(GOOD), read(GOOD + own + "idp_initiated = true\n")
    advanced = sso.as_app()["settings"]["advanced"]
    assert (advanced["x509cert"], advanced["private_key"], advanced["want_assertion_encrypted"]) == (
        "MIIBAAA=", "SECRAAA=", True,
    )  # fmt: skip
    assert "want_assertion_encrypted" not in plain.as_app()["settings"]["advanced"]
    assert (plain.idp_initiated, sso.idp_initiated) == (False, True)
    assert "SECR" not in repr(sso)
    key.write_text(PEM.replace("CERTIFICATE", "ENCRYPTED PRIVATE KEY"))
    with pytest.raises(ImproperlyConfigured, match="no private key without a password"):
        read(GOOD + own)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("entity_id", "entityid"), "did you mean entity_id?"),
        (GOOD.replace('entity_id = "https://idp"\n', ""), "has no entity_id for sso"),
        ('[sso]\nentity_id = "x"', "needs metadata_url for sso"),
        (GOOD + 'sso_url = "https://x"', "needs metadata_url for sso"),
        (GOOD + 'certificate_file = "/x"', "leave one out"),
        (GOOD.replace("https://idp.", "http://idp."), "without TLS"),
        (EXPLICIT, "has no certificate_file for sso"),
        (EXPLICIT + 'certificate_file = "/no/such"', "which cannot be read"),
        (EXPLICIT + 'certificate_file = "/dev/null"', "has no certificate"),
        (GOOD + 'sign_in_origins = ["javascript:1"]', "not an address"),
        (GOOD + 'idp_initiated = "yes"', "neither true nor false"),
        (GOOD + 'own_key_file = "/dev/null"', "has no own_certificate_file for sso"),
        (GOOD + 'own_certificate_file = "/no/such"', "which cannot be read"),
    ],
)
def test_invalid_setting_stops_the_start_and_is_named_with_the_variable(text: str, message: str) -> None:
    with pytest.raises(ImproperlyConfigured) as error:
        read(text)
    assert str(error.value).startswith("SAML_PROVIDERS ")
    assert message in str(error.value)


def test_missing_library_stops_the_start_and_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert read("") == (), "not needed without a provider"
    with pytest.raises(ImproperlyConfigured, match=r"requirements/saml\.txt"):
        read(GOOD)

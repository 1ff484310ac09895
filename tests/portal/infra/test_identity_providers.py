"""OIDC_PROVIDERS: every mistake is reported with the variable, the provider and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from portal.infra.providers.identity_providers import read
from tests.architecture import sources

GOOD = '[keycloak]\nserver_url = "https://sso.example.org/realms/company/"\nclient_id = "portal"\nclient_secret = "x"\n'


def test_omitted_settings_get_defaults() -> None:
    (found,) = read(GOOD)
    assert (found.key, found.label, found.groups_claim) == ("keycloak", "Keycloak", "groups")
    assert found.scopes == ("openid", "profile", "email")
    assert found.discovery == "https://sso.example.org/realms/company/.well-known/openid-configuration"
    assert found.origins == ("https://sso.example.org",)
    assert "client_secret" not in repr(found)
    assert read("") == ()


def test_several_providers_keep_their_order_also_as_inline_tables(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")
    inline = f'b = {{server_url="https://b/", client_id="1", client_secret_file="{secret}"}}\n'
    found = read(inline + GOOD)
    assert [each.key for each in found] == ["b", "keycloak"]
    assert found[0].client_secret == "from a file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[keycloak", "is not TOML"),
        ('keycloak = "x"', "outside of a table"),
        ("[Keycloak]", "lowercase letters"),
        ('[a.b]\nserver_url="https://x"', "has an unknown b for a"),
        (GOOD.replace("server_url", "server_ulr"), "did you mean server_url?"),
        (GOOD.replace('client_id = "portal"\n', ""), "has no client_id for keycloak: add it to [keycloak]"),
        (GOOD.replace('"portal"', "7"), "put it in quotes"),
        (GOOD + 'scopes = "openid"', 'write ["a", "b"]'),
        (GOOD + 'scopes = ["profile"]', "scopes without openid"),
        (GOOD + 'client_secret_file = "/x"', "one of the two"),
        (GOOD.replace('client_secret = "x"', 'client_secret_file = "/no/such"'), "which cannot be read"),
        (GOOD.replace('client_secret = "x"', 'client_secret_file = "/dev/null"'), "which is empty"),
        (GOOD.replace("https://", "http://"), "without TLS"),
        (GOOD.replace("https://", ""), "not an address"),
        (GOOD.replace("company/", "c; script-src *"), "no address has"),
        (GOOD + 'sign_in_origins = ["javascript:1"]', "not an address"),
    ],
)
def test_invalid_setting_stops_the_start_and_is_named_with_the_variable(text: str, message: str) -> None:
    with pytest.raises(ImproperlyConfigured) as error:
        read(text)
    assert str(error.value).startswith("OIDC_PROVIDERS ")
    assert message in str(error.value)


def check(**environment: str) -> subprocess.CompletedProcess[str]:
    base = {"PATH": os.environ["PATH"], "DEBUG": "true", "DATABASE_URL": "sqlite:///:memory:"}
    return subprocess.run(
        [sys.executable, "manage.py", "check"], cwd=sources.ROOT, env=base | environment, capture_output=True, text=True
    )


def test_the_check_at_start_names_the_variable_and_the_next_step(tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    file.write_text(GOOD)
    valid = check(OIDC_PROVIDERS_FILE=str(file), PASSWORD_SIGN_IN="false")
    assert valid.returncode == 0, valid.stderr
    locked_out = check(PASSWORD_SIGN_IN="false")
    assert locked_out.returncode != 0
    assert (
        "PASSWORD_SIGN_IN=false without OIDC_PROVIDERS, WORKPLACE_PROVIDERS, SAML_PROVIDERS or LDAP_DIRECTORIES lets nobody in"
        in locked_out.stderr
    )
    file.write_text("[keycloak]")
    assert "OIDC_PROVIDERS needs client_secret_file" in check(OIDC_PROVIDERS_FILE=str(file)).stderr

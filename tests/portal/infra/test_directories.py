"""LDAP_DIRECTORIES: every mistake is reported with the variable, the directory and what to do."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from portal.infra.providers import directories, identity_providers, ldap_client
from portal.infra.providers.directories import read

GOOD = '[corp]\nserver_url = "ldaps://ldap.example.org"\nuser_base = "ou=people,dc=example,dc=org"\n'
OPENID = '[corp]\nserver_url = "https://sso"\nclient_id = "x"\nclient_secret = "x"\n'


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


def test_omitted_settings_get_defaults(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden\n")
    (found,) = read(
        GOOD + f'username_attribute = "sAMAccountName"\nbind_dn = "cn=x"\nbind_password_file = "{secret}"\n'
    )
    assert (found.key, found.label, found.kind, found.id_attribute) == ("corp", "Corp", "ldap", "entryUUID")
    assert (found.user_filter, found.group_filter) == ("(sAMAccountName={login})", "(member={dn})")
    assert (found.bind_password, found.origins) == ("hidden", ())
    assert "hidden" not in repr(found)
    assert read("") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("server_url", "server_ulr"), "did you mean server_url?"),
        ('[corp]\nserver_url = "ldaps://x"\n', "has no user_base for corp: add it to [corp]"),
        (GOOD.replace("ldaps:", "ldap:"), "without TLS"),
        (GOOD.replace("ldaps:", "https:"), "it begins with ldaps://"),
        (GOOD + "start_tls = true", "that has TLS already"),
        (GOOD + 'start_tls = "yes"', "neither true nor false"),
        (GOOD + 'ca_file = "/no/such"', "where no file is"),
        (GOOD + 'bind_dn = "cn=x"', "needs bind_password_file or bind_password"),
        (GOOD + 'bind_password = "x"', "but no bind_dn"),
        (GOOD + 'user_filter = "(uid=mia)"', "without {login}"),
        (GOOD + 'user_filter = "(uid={name})"', "without {login}"),
        (GOOD + 'user_filter = "(uid={login"', "without {login}"),
        (GOOD + 'user_filter = "uid={login}"', "parentheses"),
        (GOOD + 'group_filter = "(&(member={dn})"', "parentheses"),
        (GOOD + 'group_base = "x"\ngroups_attribute = "memberOf"', "one of the two"),
        (GOOD + "nested_groups = true", "needs a group_base"),
    ],
)
def test_invalid_setting_stops_the_start_and_is_named_with_the_variable(text: str, message: str) -> None:
    with pytest.raises(ImproperlyConfigured) as error:
        read(text)
    assert str(error.value).startswith("LDAP_DIRECTORIES ")
    assert message in str(error.value)


def test_ldap_without_tls_needs_starttls_or_localhost() -> None:
    assert read(GOOD.replace("ldaps:", "ldap:") + "start_tls = true")[0].start_tls
    assert read(GOOD.replace("ldaps://ldap.example.org", "ldap://localhost:389"))


def test_missing_library_stops_the_start_and_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert read("") == (), "not needed without a directory"
    with pytest.raises(ImproperlyConfigured, match=r"requirements/ldap\.txt"):
        read(GOOD)


def test_two_providers_cannot_share_a_key() -> None:
    both: list[Any] = [*identity_providers.read(OPENID), *directories.read(GOOD)]
    with pytest.raises(ImproperlyConfigured, match="the key 'corp'"):
        identity_providers.distinct(both)


def test_binary_id_is_stored_as_a_uuid() -> None:
    """Active Directory's objectGUID, whose first three parts are little-endian."""
    value = bytes.fromhex("78563412bc9af0de" + "0102030405060708")
    assert ldap_client._subject("objectGUID", {"objectGUID": [value]}) == "12345678-9abc-def0-0102-030405060708"
    assert ldap_client._subject("objectGUID", {"objectGUID": [b"short"]}) == ""

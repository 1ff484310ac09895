"""The LDAP directories whose passwords people log in with. LDAP_DIRECTORIES is TOML with a table for each; a wrong value stops
the start with an error that says what is wrong and where. See docs/sign-in.md."""

from __future__ import annotations

import importlib.util
import string
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from django.core.exceptions import ImproperlyConfigured

from portal.infra.providers import tables
from portal.infra.providers.identity_providers import IdentityProvider

VARIABLE = "LDAP_DIRECTORIES"
DN = "dn"  # as `group_name`: groups are called by the DN of their entry


@dataclass(frozen=True, slots=True)
class Directory(IdentityProvider):
    """A directory. {login} in `user_filter` is the login name as typed; {dn} and {login} in `group_filter` are those of the
    person's entry."""

    kind: ClassVar[str] = "ldap"

    server_url: str
    user_base: str
    bind_dn: str = ""
    bind_password: str = field(default="", repr=False)
    start_tls: bool = False
    ca_file: str = ""
    user_filter: str = "(uid={login})"
    id_attribute: str = "entryUUID"
    username_attribute: str = "uid"
    email_attribute: str = "mail"
    given_name_attribute: str = "givenName"
    family_name_attribute: str = "sn"
    group_base: str = ""
    group_filter: str = "(member={dn})"
    group_name: str = "cn"
    nested_groups: bool = False
    groups_attribute: str = ""  # attribute of the person's entry (memberOf) that is read instead of a search


TEXTS = {
    "label", "server_url", "bind_dn", "bind_password", "bind_password_file", "ca_file", "user_base", "user_filter",
    "id_attribute", "username_attribute", "email_attribute", "given_name_attribute", "family_name_attribute",
    "group_base", "group_filter", "group_name", "groups_attribute",
}  # fmt: skip
FLAGS = {"start_tls", "nested_groups"}
OPTIONAL = (
    "id_attribute", "username_attribute", "email_attribute", "given_name_attribute", "family_name_attribute",
    "group_name",
)  # fmt: skip


def read(text: str) -> tuple[Directory, ...]:
    """The directories of the text, in its order. Raises ImproperlyConfigured."""
    configured = tables.read(VARIABLE, text, _directory)
    if configured and importlib.util.find_spec("ldap") is None:
        raise ImproperlyConfigured(
            f"{VARIABLE} needs python-ldap, which is not installed: pip install -r requirements/ldap.txt, "
            "with Debian's libldap-dev, libsasl2-dev, python3-dev and gcc (docs/sign-in.md)"
        )
    return configured


def _directory(table: tables.Table) -> Directory:
    table.check(TEXTS, flags=FLAGS)
    key, values = table.key, table.values
    url, start_tls = table.needed("server_url"), values.get("start_tls", False)
    table.address("server_url", url, ("ldaps", "ldap"), also=start_tls)
    if start_tls and url.startswith("ldaps:"):
        raise table.wrong(f"has start_tls for {key}, whose server_url begins with ldaps://: that has TLS already")
    ca_file = table.text("ca_file")
    if ca_file and not Path(ca_file).is_file():
        raise table.wrong(f"names {ca_file} as ca_file of {key}, where no file is")
    password = ""
    if table.text("bind_dn"):
        password = table.secret("bind_password")
    elif values.get("bind_password") or values.get("bind_password_file"):
        raise table.wrong(f"has a bind_password for {key} but no bind_dn: add it to [{key}]")
    user_base = table.needed("user_base")
    user_filter = table.text("user_filter", f"({table.text('username_attribute', 'uid')}={{login}})")
    _check_filter(table, "user_filter", user_filter, {"login"})
    group_filter = table.text("group_filter", "(member={dn})")
    _check_filter(table, "group_filter", group_filter, {"dn", "login"})
    if table.text("group_base") and table.text("groups_attribute"):
        raise table.wrong(f"has group_base and groups_attribute for {key}: one of the two says the groups")
    if values.get("nested_groups") and (not table.text("group_base") or "{dn}" not in group_filter):
        raise table.wrong(f"has nested_groups for {key}, which needs a group_base and {{dn}} in the group_filter")
    return Directory(
        key=key, label=table.text("label", key.capitalize()), server_url=url, bind_dn=table.text("bind_dn"),
        bind_password=password, start_tls=start_tls, ca_file=ca_file, user_base=user_base, user_filter=user_filter,
        group_base=table.text("group_base"), group_filter=group_filter, nested_groups=values.get("nested_groups", False),
        groups_attribute=table.text("groups_attribute"),
        **{name: values[name] for name in OPTIONAL if values.get(name)},
    )  # fmt: skip


def _check_filter(table: tables.Table, name: str, text: str, places: set[str]) -> None:
    """Requires a search filter with at least one of these placeholders, and no other. Raises ImproperlyConfigured."""
    try:
        places_used = {
            place for _text, place, _spec, _conversion in string.Formatter().parse(text) if place is not None
        }
    except ValueError:
        places_used = {""}
    known = " or ".join(f"{{{each}}}" for each in sorted(places))
    if not places_used or not places_used <= places:
        raise table.wrong(f"has a {name} for {table.key} without {known}, or with another place in braces: {text!r}")
    if not (text.startswith("(") and text.endswith(")")) or text.count("(") != text.count(")"):
        raise table.wrong(f"has a {name} for {table.key} whose parentheses do not match: {text!r}")

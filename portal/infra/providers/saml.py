"""SAML identity providers. SAML_PROVIDERS is TOML with a table for each; a wrong value stops the start with an error that says
what is wrong and where. See docs/sign-in.md."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from portal.infra.providers import tables
from portal.infra.providers.identity_providers import IdentityProvider

VARIABLE = "SAML_PROVIDERS"
PERSISTENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"


@dataclass(frozen=True, slots=True)
class Saml(IdentityProvider):
    """A SAML provider. `…_attribute` are the names of the claims in its assertions; `subject_attribute` "": the NameID, which
    must be persistent. It has either `metadata_url`, or `sso_url` and `certificate`."""

    kind: ClassVar[str] = "saml"

    entity_id: str
    metadata_url: str = ""
    sso_url: str = ""
    certificate: str = ""
    subject_attribute: str = ""
    username_attribute: str = "username"
    email_attribute: str = "email"
    given_name_attribute: str = "firstName"
    family_name_attribute: str = "lastName"
    groups_attribute: str = "groups"
    sign_in_origins: tuple[str, ...] = ()  # of its login page, if that is on another host
    idp_initiated: bool = False  # whether a login may begin at the provider's own page
    own_certificate: str = ""  # if set, assertions must be encrypted for this certificate
    own_key: str = field(default="", repr=False)

    @property
    def origins(self) -> tuple[str, ...]:
        parts = urlsplit(self.sso_url or self.metadata_url)
        return (f"{parts.scheme}://{parts.netloc}", *self.sign_in_origins)

    def as_app(self) -> dict[str, Any]:
        """The provider as a SocialApp of allauth's settings."""
        if self.metadata_url:
            idp = {"entity_id": self.entity_id, "metadata_url": self.metadata_url, "metadata_request_timeout": 8}
        else:
            idp = {"entity_id": self.entity_id, "sso_url": self.sso_url, "x509cert": self.certificate}
        advanced: dict[str, Any] = {
            "name_id_format": PERSISTENT,
            "want_attribute_statement": False,
            "allow_single_label_domains": True,
        }
        if self.own_key:
            keys = {"x509cert": self.own_certificate, "private_key": self.own_key}
            advanced |= {**keys, "want_assertion_encrypted": True}
        return {
            "provider_id": self.key, "name": self.label, "client_id": self.key,
            "settings": {"idp": idp, "advanced": advanced},
        }  # fmt: skip


OPTIONAL = (
    "subject_attribute", "username_attribute", "email_attribute", "given_name_attribute", "family_name_attribute",
    "groups_attribute",
)  # fmt: skip
OWN = ("own_certificate_file", "own_key_file")
TEXTS = {"label", "entity_id", "metadata_url", "sso_url", "certificate_file", *OWN, *OPTIONAL}


def read(text: str) -> tuple[Saml, ...]:
    """The providers of the text, in its order. Raises ImproperlyConfigured."""
    providers = tables.read(VARIABLE, text, _provider)
    if providers and importlib.util.find_spec("onelogin") is None:
        raise ImproperlyConfigured(
            f"{VARIABLE} needs python3-saml, which is not installed: pip install -r requirements/saml.txt (docs/sign-in.md)"
        )
    return providers


def _provider(table: tables.Table) -> Saml:
    table.check(TEXTS, {"sign_in_origins"}, {"idp_initiated"})
    key, values = table.key, table.values
    entity_id, metadata_url = table.needed("entity_id"), table.text("metadata_url")
    sso_url, certificate = table.text("sso_url"), ""
    if bool(metadata_url) == bool(sso_url):
        raise table.wrong(f"needs metadata_url for {key}, or sso_url and certificate_file instead of it")
    if metadata_url:
        if values.get("certificate_file"):
            raise table.wrong(f"has a certificate_file for {key}, which metadata_url tells: leave one out")
        table.address("metadata_url", metadata_url)
    else:
        table.address("sso_url", sso_url)
        certificate = _inside(table, "certificate_file", "CERTIFICATE")
    origins = tuple(each.rstrip("/") for each in values.get("sign_in_origins", ()))
    for origin in origins:
        table.address("sign_in_origins", origin)
    own_certificate = own_key = ""
    if any(table.text(name) for name in OWN):  # one needs the other
        own_certificate = _inside(table, "own_certificate_file", "CERTIFICATE")
        own_key = _inside(table, "own_key_file", "(?:RSA )?PRIVATE KEY")
    return Saml(
        key=key, label=table.text("label", key.capitalize()), entity_id=entity_id, metadata_url=metadata_url,
        sso_url=sso_url, certificate=certificate, sign_in_origins=origins,
        idp_initiated=values.get("idp_initiated", False), own_certificate=own_certificate, own_key=own_key,
        **{name: values[name] for name in OPTIONAL if name in values},
    )  # fmt: skip


def _inside(table: tables.Table, name: str, what: str) -> str:
    """The base64 text between the BEGIN and END lines of the PEM file, without spaces. Raises ImproperlyConfigured."""
    file = table.needed(name)
    try:
        text = Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise table.wrong(f"names {file} as {name} of {table.key}, which cannot be read: {error}") from None
    inside = re.search(rf"-----BEGIN {what}-----([A-Za-z0-9+/=\s]+)-----END {what}-----", text)
    if inside is None:
        kind = "certificate" if what == "CERTIFICATE" else "private key without a password"
        raise table.wrong(f"names {file} as {name} of {table.key}, which has no {kind} (PEM)")
    return "".join(inside[1].split())

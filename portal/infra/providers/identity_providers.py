"""Identity providers, for logins without the portal's own passwords. OIDC_PROVIDERS (here) and LDAP_DIRECTORIES
(portal/infra/providers/directories.py) are TOML with a table for each provider. See docs/sign-in.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from portal.infra.providers import tables

VARIABLE = "OIDC_PROVIDERS"


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """`key` is part of URLs and stored in the database: it must not change. What a provider reports about a person is stored as
    claims, whatever its protocol; `groups_claim` may be the path of a nested claim: realm_access.roles."""

    kind: ClassVar[str] = ""

    key: str
    label: str

    @property
    def protocol(self) -> str:
        """The id of the allauth provider that handles it."""
        return self.kind

    @property
    def origins(self) -> tuple[str, ...]:
        """The origins to which a browser is sent to sign in; the Content-Security-Policy must allow them."""
        return ()

    @property
    def username_claim(self) -> str:
        return "preferred_username"

    @property
    def groups_claim(self) -> str:
        return "groups"


@dataclass(frozen=True, slots=True)
class OpenIdConnect(IdentityProvider):
    kind: ClassVar[str] = "openid_connect"

    server_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    username_claim: str = "preferred_username"
    groups_claim: str = "groups"
    sign_in_origins: tuple[str, ...] = ()  # of its login page, if that is not on server_url's host

    @property
    def origins(self) -> tuple[str, ...]:
        parts = urlsplit(self.server_url)
        return (f"{parts.scheme}://{parts.netloc}", *self.sign_in_origins)

    @property
    def discovery(self) -> str:
        known = "/.well-known/" in self.server_url
        return self.server_url if known else f"{self.server_url}/.well-known/openid-configuration"

    def as_app(self) -> dict[str, Any]:
        """The provider as a SocialApp of allauth's settings."""
        settings = {
            "server_url": self.server_url,
            "scope": list(self.scopes),
            "oauth_pkce_enabled": True,
            "email_authentication": False,
        }
        return {
            "provider_id": self.key, "name": self.label, "client_id": self.client_id, "secret": self.client_secret,
            "settings": settings,
        }  # fmt: skip


TEXTS = {"label", "server_url", "client_id", "client_secret", "client_secret_file", "username_claim", "groups_claim"}
LISTS = {"scopes", "sign_in_origins"}


def read(text: str) -> tuple[OpenIdConnect, ...]:
    """The providers of the text, in its order. Raises ImproperlyConfigured."""
    return tables.read(VARIABLE, text, _provider)


def distinct(providers: Iterable[IdentityProvider]) -> tuple[IdentityProvider, ...]:
    """All providers. Raises ImproperlyConfigured if two have the same key: people of one would be taken for people of the
    other."""
    by_key: dict[str, IdentityProvider] = {}
    for each in providers:
        if each.key in by_key:
            raise ImproperlyConfigured(
                f"Two providers have the key {each.key!r}, a {by_key[each.key].kind} and a {each.kind}: rename one"
            )
        by_key[each.key] = each
    return tuple(by_key.values())


def _provider(table: tables.Table) -> OpenIdConnect:
    table.check(TEXTS, LISTS)
    key, values = table.key, table.values
    secret = table.secret("client_secret")
    server_url, client_id = table.needed("server_url"), table.needed("client_id")
    table.address("server_url", server_url)
    origins = tuple(each.rstrip("/") for each in values.get("sign_in_origins", ()))
    for origin in origins:
        table.address("sign_in_origins", origin)
    scopes = tuple(values.get("scopes", ("openid", "profile", "email")))
    if "openid" not in scopes:
        raise table.wrong(f"has scopes without openid for {key}: add it, or users cannot be identified")
    return OpenIdConnect(
        key=key, label=table.text("label", key.capitalize()), server_url=server_url.rstrip("/"),
        client_id=client_id, client_secret=secret, scopes=scopes, sign_in_origins=origins,
        username_claim=table.text("username_claim", "preferred_username"),
        groups_claim=values.get("groups_claim", "groups"),
    )  # fmt: skip

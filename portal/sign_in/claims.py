"""A provider's claims about a person, from its user info and ID token."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from portal.infra.providers.identity_providers import IdentityProvider

LONGEST = 255  # characters of a group's name; longer ones are left out
MOST = 1000  # groups of one person


def cleaned(value: Any) -> Any:
    """The claims without characters that the database cannot store: nulls and lone surrogates."""
    if isinstance(value, str):
        return value.replace("\x00", "").encode("utf-8", "ignore").decode()
    if isinstance(value, Mapping):
        return {cleaned(name): cleaned(each) for name, each in value.items()}
    return [cleaned(each) for each in value] if isinstance(value, list) else value


def groups_of(provider: IdentityProvider, data: Mapping[str, Any]) -> list[str] | None:
    """The groups, sorted. None: the provider has left them out (too many for a token), so nothing may be concluded.

    A claim that is missing means no groups: providers leave it out for those who have none.
    """
    if not provider.groups_claim:
        return []
    for part in ("userinfo", "id_token"):
        claims = data.get(part)
        if not isinstance(claims, Mapping):
            continue
        if provider.groups_claim in (claims.get("_claim_names") or {}):
            return None
        value = _inside(claims, provider.groups_claim)
        if value is not None:
            names = value if isinstance(value, list) else [value]
            texts = {name for name in names if isinstance(name, str) and name}
            return sorted(name for name in texts if len(name) <= LONGEST)[:MOST]
    return []


def _inside(claims: Mapping[str, Any], path: str) -> Any:
    """The claim of that name, else the nested one at that dotted path; None without either."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def said_at(data: Mapping[str, Any]) -> dt.datetime:
    """When the provider issued the claims: the ID token's `iat`, else now. A time in the future counts as now."""
    now = timezone.now()
    issued = (data.get("id_token") or {}).get("iat")
    if not isinstance(issued, int | float) or isinstance(issued, bool) or not 0 < issued < now.timestamp():
        return now
    return dt.datetime.fromtimestamp(issued, dt.UTC)


def text_of(data: Mapping[str, Any], claim: str) -> str:
    for part in ("userinfo", "id_token"):
        claims = data.get(part)
        value = _inside(claims, claim) if isinstance(claims, Mapping) else None
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""

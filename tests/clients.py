"""Clients of the API in tests: a person with a session, a program with a token."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

from django.utils import timezone
from rest_framework.test import APIClient

from portal.accounts.bearer_tokens import new_secret
from portal.models import ApiToken, Department, User

ALL = ("read", "submit", "quota", "admin")


def person(user: User) -> APIClient:
    client = APIClient()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def token_of(user: User, department: Department, scopes: Sequence[str] = ALL, **fields: Any) -> tuple[ApiToken, str]:
    prefix, secret, digest = new_secret()
    fields = {"name": f"{user.username}-ci", "expires_at": timezone.now() + dt.timedelta(days=1), **fields}
    row = ApiToken.objects.create(
        holder=user, department=department, prefix=prefix, digest=digest, scopes=list(scopes), **fields
    )
    return row, secret


def program(user: User, department: Department, scopes: Sequence[str] = ALL, **fields: Any) -> APIClient:
    return APIClient(HTTP_AUTHORIZATION=f"Bearer {token_of(user, department, scopes, **fields)[1]}")


def confirmed(client: Any, path: str, fields: dict[str, Any]) -> Any:
    """Sends a page's form; if the page requests a confirmation, confirms it."""
    response = client.post(path, fields)
    marks = (
        re.findall(r'name="confirmed" value="(\w+)"', response.content.decode()) if response.status_code == 409 else []
    )
    return client.post(path, fields | {"confirmed": marks[0]}) if marks else response

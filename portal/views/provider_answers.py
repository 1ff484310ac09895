"""The response to the browser for a step at an identity provider, whatever its outcome."""

from __future__ import annotations

from typing import Any

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse

from portal.errors import Problem
from portal.sign_in import identities
from portal.sign_in.adapters import ProviderFailed, failed, log

BROKEN = (
    OSError, PermissionDenied, OAuth2Error, ImproperlyConfigured, ValueError, KeyError, TypeError,
)  # fmt: skip
"""Exceptions that a provider causes if it is unreachable or its answer is invalid."""


def answer(request: HttpRequest, provider_id: str, view: Any) -> HttpResponse:
    try:
        response: HttpResponse = view(request)
    except ImmediateHttpResponse as ready:
        response = ready.response
    except Problem as problem:
        response = failed(request, problem)
    except BROKEN as error:
        log.warning("provider.failed", provider=provider_id, exception=repr(error))
        response = failed(request, ProviderFailed(provider=identities.label_of(provider_id)))
    return response

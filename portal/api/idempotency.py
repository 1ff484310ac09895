"""`Idempotency-Key`: a POST that is sent twice is carried out once and gets the same response twice.

Same body: the stored response. Other body: 422. Still in flight: 409 and Retry-After. Responses 5xx and 429 and requests for
confirmation (portal/infra/confirm.py) are not stored: the next attempt runs. How duplicates are prevented: portal/web/once.py.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api.throttle import holder_of
from portal.errors import N_, Invalid
from portal.infra.confirm import Unconfirmed
from portal.infra.crypt import decrypt
from portal.models import IdempotencyKey
from portal.web.once import InFlight, Lease, begin

HEADERS = ("Location", "ETag")
View = TypeVar("View", bound=Callable[..., Any])


def idempotent(method: View) -> View:
    """Decorates `post` of an ApiView. `self.lease` is the request's lease on its key, None without a key."""

    @functools.wraps(method)
    def post(self: Any, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        given = request.headers.get("Idempotency-Key")
        if given is None or self.flag("dry_run"):
            return method(self, request, *args, **kwargs)  # type: ignore[no-any-return]
        lease = lease_for(request, given)
        if not isinstance(lease, Lease):
            return replay(lease)
        self.lease = lease
        try:
            response: Response = method(self, request, *args, **kwargs)
        except Exception as error:
            lease.is_stored = False  # its transaction was rolled back, and the stored response with it
            try:
                response = self.handle_exception(error)
            except Exception:
                lease.drop()
                raise
        settle(lease, response)
        return response

    return post  # type: ignore[return-value]


def lease_for(request: Request, key: str) -> Lease | IdempotencyKey:
    """A lease for a new key, or the stored row of a key that has a response. Raises InFlight, OtherBody, Invalid."""
    if not (1 <= len(key) <= 255 and key.isascii() and key.isprintable()):
        raise Invalid(N_("An Idempotency-Key has 1 to 255 printable ASCII characters."), field="Idempotency-Key")
    digest = hashlib.sha256(request._request.META.get("QUERY_STRING", "").encode() + b"\0" + request.body).hexdigest()
    return begin(holder=holder_of(request), path=request.path, key=key, digest=digest)


def settle(lease: Lease, response: Response) -> None:
    """Stores a response that the action has not stored itself."""
    unconfirmed = response.status_code == 409 and response.data.get("code") == Unconfirmed.code
    if response.status_code >= 500 or response.status_code == 429 or unconfirmed:
        lease.drop()
    elif not lease.is_stored:
        headers = {name: response.headers[name] for name in HEADERS if name in response.headers}
        if response.content_type:  # before rendering, its header has Django's default
            headers["Content-Type"] = response.content_type
        with contextlib.suppress(InFlight):  # taken over: the other request's response counts
            lease.keep(response.status_code, response.data, headers)


def replay(row: IdempotencyKey) -> HttpResponse:
    headers = {"Content-Type": "application/json"} | row.headers | {"Idempotency-Replayed": "true"}
    return HttpResponse(
        decrypt(row.body, N_("The response kept for the Idempotency-Key %(name)s"), row.key),
        status=row.status,
        headers=headers,
    )

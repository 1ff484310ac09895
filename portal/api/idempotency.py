"""`Idempotency-Key`: a POST that is sent twice is carried out once and answered twice with the same answer.

A key belongs to (holder, method, path) and lives 24 hours. Same body: the stored answer. Other body: 422.
Still in flight: 409 and Retry-After. Answers 5xx and 429, and questions (portal/infra/confirm.py) are not stored: the next try
runs.

How nothing is doubled when a process dies, or is merely slow:

1. A row in its own transaction says "in flight". Its `created_at` is a lease of 60 seconds.
2. What creates something calls `Lease.keep(answer)` **inside the transaction that creates it** (`on_commit_row` of the
   actions). Row and answer commit together, so after a crash either both are there, and a retry gets the answer, or
   neither is, and a retry starts afresh once the lease is over.
3. `keep` is compare-and-set on the lease. Whoever was so slow that another took the lease over cannot commit: `keep`
   raises inside the transaction, which takes back what it had created.

An action that does not call `keep` has its answer stored right after it. If the process dies between the two, the
retry runs again: fine for what is unique by itself (a member, a token's revocation), not for what creates work.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.db import IntegrityError
from django.http import HttpResponse
from django.utils import timezone
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api.throttle import holder_of
from portal.errors import N_, Invalid, Problem
from portal.infra.confirm import Unconfirmed
from portal.infra.crypt import decrypt, encrypt
from portal.infra.locks import durable
from portal.models import IdempotencyKey

KEPT = dt.timedelta(hours=24)
LEASE = dt.timedelta(seconds=60)
HEADERS = ("Content-Type", "Location", "ETag")
View = TypeVar("View", bound=Callable[..., Any])


class InFlight(Problem):
    code = "idempotency_in_flight"
    message = N_("A request with this Idempotency-Key is still being processed. Try again in a moment.")
    retry_after = 2


class OtherBody(Problem):
    status = 422
    code = "idempotency_key_reused"
    message = N_("This Idempotency-Key was used for a different request. Use a new key for a new request.")


@dataclass
class Lease:
    """The right to answer a key; over after LEASE."""

    row: int
    since: dt.datetime
    is_stored: bool = field(default=False)

    def keep(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
        """Stores the answer for good. Raises InFlight if the lease was taken over: then roll back."""
        own_row = IdempotencyKey.objects.filter(pk=self.row, created_at=self.since, status=None)
        body = "" if data is None else encrypt(JSONRenderer().render(data).decode())  # may hold a secret shown once
        if not own_row.update(status=status, body=body, headers=headers or {}):
            raise InFlight
        self.is_stored = True

    def drop(self) -> None:
        IdempotencyKey.objects.filter(pk=self.row, created_at=self.since, status=None).delete()


def idempotent(method: View) -> View:
    """Decorates `post` of an ApiView. `self.lease` is the request's lease on its key, None without a key."""

    @functools.wraps(method)
    def post(self: Any, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        given = request.headers.get("Idempotency-Key")
        if given is None or self.flag("dry_run"):
            return method(self, request, *args, **kwargs)  # type: ignore[no-any-return]
        lease = begin(request, given)
        if not isinstance(lease, Lease):
            return replay(lease)
        self.lease = lease
        try:
            response: Response = method(self, request, *args, **kwargs)
        except Exception as error:
            lease.is_stored = False  # its transaction was rolled back, and the answer in it
            try:
                response = self.handle_exception(error)
            except Exception:
                lease.drop()
                raise
        settle(lease, response)
        return response

    return post  # type: ignore[return-value]


def begin(request: Request, key: str) -> Lease | IdempotencyKey:
    """A lease for a new key, or the stored row of an answered one. Raises InFlight, OtherBody, Invalid."""
    if not (1 <= len(key) <= 255 and key.isascii() and key.isprintable()):
        raise Invalid(N_("An Idempotency-Key has 1 to 255 printable ASCII characters."), field="Idempotency-Key")
    digest = hashlib.sha256(request._request.META.get("QUERY_STRING", "").encode() + b"\0" + request.body).hexdigest()
    name = {"holder": holder_of(request), "method": str(request.method), "path": request.path[:300], "key": key}
    for _try in range(3):
        now = timezone.now()
        try:
            with durable():
                row = IdempotencyKey.objects.create(**name, body_digest=digest, created_at=now)
            return Lease(row.pk, row.created_at)
        except IntegrityError:
            stored = IdempotencyKey.objects.filter(**name).first()
        if stored is None:
            continue  # dropped meanwhile
        if stored.created_at < now - KEPT:
            IdempotencyKey.objects.filter(pk=stored.pk, created_at=stored.created_at).delete()
            continue
        if stored.body_digest != digest:
            raise OtherBody
        if stored.status is not None:
            return stored
        return take_over(stored, now)
    raise InFlight


def take_over(row: IdempotencyKey, now: dt.datetime) -> Lease:
    """Takes over the key of a process that has died or is too slow. Raises InFlight if another one was faster."""
    abandoned = IdempotencyKey.objects.filter(pk=row.pk, created_at=row.created_at, status=None)
    if row.created_at > now - LEASE or not abandoned.update(created_at=now):
        raise InFlight
    return Lease(row.pk, now)


def settle(lease: Lease, response: Response) -> None:
    """Stores an answer that the action has not stored itself."""
    unconfirmed = response.status_code == 409 and response.data.get("code") == Unconfirmed.code
    if response.status_code >= 500 or response.status_code == 429 or unconfirmed:
        lease.drop()
    elif not lease.is_stored:
        headers = {name: response.headers[name] for name in HEADERS if name in response.headers}
        if response.content_type:
            headers["Content-Type"] = response.content_type
        with contextlib.suppress(InFlight):  # taken over: the other one's answer stands
            lease.keep(response.status_code, response.data, headers)


def replay(row: IdempotencyKey) -> HttpResponse:
    headers = {"Content-Type": "application/json"} | row.headers | {"Idempotency-Replayed": "true"}
    return HttpResponse(
        decrypt(row.body, N_("The response kept for the Idempotency-Key %(name)s"), row.key),
        status=row.status,
        headers=headers,
    )

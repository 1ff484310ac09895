"""Stored responses of POSTs, for pages and programs, so that a request that is sent twice is carried out once.

A form that adds something has a unique key (`{% once %}`), a program's request an `Idempotency-Key`
(portal/api/idempotency.py). A key belongs to (holder, method, path) and lives 24 hours.

How duplicates are prevented even if a process dies or is slow:

1. A row written in its own transaction marks the key as in flight. Its `created_at` is a lease of 60 seconds.
2. An action that creates something may call `Lease.keep(answer)` **inside the transaction that creates it** (`on_commit_row` of
   the actions). Row and response commit together, so after a crash either both exist, and a retry gets the response,
   or neither does, and a retry starts again after the lease.
3. `keep` is compare-and-set on the lease. A process so slow that another took over the lease cannot commit: `keep`
   raises inside the transaction, which rolls back what it has created.

If an action does not call `keep`, its response is stored right after it. If the process dies between the two, a retry runs the
action again: acceptable if the result is unique anyway (a member, a token's revocation) and for people, who see what exists,
but not for programs that create workloads.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework.renderers import JSONRenderer

from portal.errors import N_, Problem
from portal.infra.crypt import encrypt
from portal.infra.locks import durable
from portal.models import IdempotencyKey

KEPT = dt.timedelta(hours=24)
LEASE = dt.timedelta(seconds=60)
FIELD = "form_key"  # form field of a page
CSRF = "csrfmiddlewaretoken"  # differs on each page, so it is not compared
PATIENCE = 8.0  # s that the second of a double click waits for the first
View = TypeVar("View", bound=Callable[..., HttpResponseBase])


class InFlight(Problem):
    code = "idempotency_in_flight"
    message = N_("A request with this Idempotency-Key is still being processed. Try again in a moment.")
    retry_after = 2


class OtherBody(Problem):
    status = 422
    code = "idempotency_key_reused"
    message = N_("This Idempotency-Key was used for a different request. Use a new key for a new request.")


class FormInFlight(Problem):
    code = "form_in_flight"
    message = N_(
        "You sent this form twice, and the first one is still being processed. Nothing was done twice. Go back, reload "
        "the page and look for the result."
    )


@dataclass
class Lease:
    """The right to carry out the request with a key; expires after LEASE."""

    row: int
    since: dt.datetime
    is_stored: bool = field(default=False)

    def keep(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
        """Stores the final response. Raises InFlight if the lease was taken over: then roll back."""
        own_row = IdempotencyKey.objects.filter(pk=self.row, created_at=self.since, status=None)
        body = "" if data is None else encrypt(JSONRenderer().render(data).decode())  # may hold a secret shown once
        if not own_row.update(status=status, body=body, headers=headers or {}):
            raise InFlight
        self.is_stored = True

    def drop(self) -> None:
        IdempotencyKey.objects.filter(pk=self.row, created_at=self.since, status=None).delete()


def begin(*, holder: str, path: str, key: str, digest: str) -> Lease | IdempotencyKey:
    """A lease for a new key, or the stored row of a key that has a response.

    Args:
        holder: owner of the key, such as `user:7`.
        digest: hash of everything that was sent; a key is valid for one.

    Raises:
        InFlight: the first request with this key has no response yet.
        OtherBody: the key was used with a different request.
    """
    name = {"holder": holder, "method": "POST", "path": path[:300], "key": key}
    for _try in range(3):
        now = timezone.now()
        try:
            with durable():
                row = IdempotencyKey.objects.create(**name, body_digest=digest, created_at=now)
            return Lease(row.pk, row.created_at)
        except IntegrityError:
            stored = IdempotencyKey.objects.filter(**name).first()
        if stored is None:
            continue  # deleted in the meantime
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
    """Takes over the key of a process that has died or is too slow. Raises InFlight before the lease expires, or if another
    process was faster."""
    abandoned = IdempotencyKey.objects.filter(pk=row.pk, created_at=row.created_at, status=None)
    if row.created_at > now - LEASE or not abandoned.update(created_at=now):
        raise InFlight
    return Lease(row.pk, now)


def once(view: View) -> View:
    """Decorates a page's view whose POST adds something and redirects. The second request of a double click waits for the first
    and redirects to the same page; a form that was changed in between counts as new. Refusals are not stored.
    """

    @functools.wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method != "POST" or not request.POST.get(FIELD) or not request.user.is_authenticated:
            return view(request, *args, **kwargs)
        lease = _begin_or_wait(request)
        if isinstance(lease, IdempotencyKey):
            return HttpResponse(status=lease.status, headers=lease.headers)
        try:
            response = view(request, *args, **kwargs)
            if 300 <= response.status_code < 400:
                with contextlib.suppress(InFlight):  # taken over: the other request's response counts
                    lease.keep(response.status_code, None, {"Location": response.headers["Location"]})
            return response
        finally:
            if not lease.is_stored:
                lease.drop()

    return answer  # type: ignore[return-value]


def _begin_or_wait(request: HttpRequest) -> Lease | IdempotencyKey:
    files = [(name, [(each.name, each.size) for each in uploads]) for name, uploads in request.FILES.lists()]
    sent = [request.META["QUERY_STRING"], files, *(pair for pair in request.POST.lists() if pair[0] != CSRF)]
    digest = hashlib.sha256(repr(sent).encode()).hexdigest()
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return begin(holder=f"user:{request.user.pk}", path=request.path, key=digest, digest=digest)
        except InFlight:
            if time.monotonic() > until:
                raise FormInFlight from None
        time.sleep(0.05)

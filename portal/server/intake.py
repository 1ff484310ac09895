"""What a web process accepts before the sender is authenticated, and how much one person or address may occupy.

| | who | at most |
|---|---|---|
| a body up to SMALL | anybody | MOST_BODIES at once from one address; beyond that, as many for each authenticated sender |
| a larger one | authenticated senders only | LARGE_EACH, LARGE_ALL in all; the slowest gives way |
| a stream, or a request held open | one person (else one address) | STREAMS_EACH |
| a request for files | one person (else one address) | half of the threads for files |
| a download | the same | DOWNLOADS_EACH of DOWNLOADS_ALL |

A body has to arrive at SLOWEST bytes a second after the first START seconds, and a client has to take each part of a response
within READER seconds. Slower ones are cut off, so that nobody occupies memory, disk or threads by doing nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import IO, Any

from django.conf import settings
from django.contrib import auth
from django.core.handlers.wsgi import WSGIRequest
from django.db import close_old_connections
from rest_framework.request import Request

from portal.accounts.client_address import client_of
from portal.errors import N_, Busy, Problem, TooLarge
from portal.text.numbers import natural

SMALL = 64 * 1024  # bytes: enough for logins, accepted invitations, readiness reports
FILES = re.compile(r"/files/")  # in the paths for listing, uploading and downloading files
START, SLOWEST = 20.0, 16 * 1024  # s, bytes a second
SETTLING, HURRIED = 3.0, 256 * 1024  # s, bytes a second: a faster body keeps its slot
READER = 60.0  # s
MOST_BODIES = 32
LARGE_EACH, LARGE_ALL = 3, 8
STREAMS_EACH = 300  # one pipeline may wait for that many jobs
DOWNLOADS_EACH, DOWNLOADS_ALL = 8, 32

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


class TooSlow(Problem):
    status = 408
    code = "too_slow"
    message = N_("The request arrived too slowly. Send it again.")


class TooMany(Problem):
    """The holder has too many requests open."""

    status = 429
    code = "too_many_open"
    message = N_("You already have %(most)s of these connections open. Close some, then try again.")
    retry_after = 10


class Gone(Exception):
    """The client disconnected before the request was complete."""


class Allowance:
    """A limit on concurrent requests: `each` for one holder, `most` in all."""

    def __init__(self, each: int, most: int = 10**9) -> None:
        self.each, self.most = each, most
        self.held: Counter[str] = Counter()
        self._guard = threading.Lock()

    def used_up(self, holder: str) -> bool:
        return self.held[holder] >= self.each

    @contextlib.contextmanager
    def one(self, holder: str) -> Iterator[None]:
        """Counts one request of the holder while inside. Raises TooMany, Busy."""
        with self._guard:
            if self.held[holder] >= self.each:
                raise TooMany(most=self.each)
            if self.held.total() >= self.most:
                raise Busy
            self.held[holder] += 1
        try:
            yield
        finally:
            with self._guard:
                self.held[holder] -= 1
                if not self.held[holder]:
                    del self.held[holder]


@dataclass(eq=False, slots=True)
class Arriving:
    """A body that is being received."""

    holder: str
    begun: float = field(default_factory=lambda: time.monotonic())
    size: int = 0
    gave_way: bool = False
    timer: asyncio.Timeout | None = None  # of the part that is being received

    @property
    def rate(self) -> float:
        """Bytes a second so far."""
        return self.size / max(0.001, time.monotonic() - self.begun)

    def give_way(self) -> None:
        """Stops waiting for the rest of the body."""
        self.gave_way = True
        if self.timer is not None:
            self.timer.reschedule(0)

    async def next_part(self, receive: Receive) -> Message:
        """The next message of the body. Raises TooSlow, Gone."""
        deadline = self.begun + START + self.size / SLOWEST
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())) as self.timer:
                message = await receive()
        except TimeoutError:
            raise TooSlow from None
        finally:
            self.timer = None
        if self.gave_way:
            raise TooSlow
        if message["type"] == "http.disconnect":
            raise Gone
        return message


class LargeBodies:
    """Slots for large bodies: `each` for one holder, `most` in all. For the event loop only.

    When all slots are taken, a new body gets the slot of one that is older than SETTLING and arrives more slowly than HURRIED:
    first one of the holder with the most, then the slowest. So a slow sender loses its slot only if another one needs it.
    """

    def __init__(self, each: int, most: int) -> None:
        self.each, self.most = each, most
        self.here: list[Arriving] = []

    def of(self, holder: str) -> int:
        return sum(body.holder == holder for body in self.here)

    @contextlib.contextmanager
    def one(self, holder: str) -> Iterator[Arriving]:
        """Holds a slot while inside. Raises TooMany, Busy."""
        if self.of(holder) >= self.each:
            raise TooMany(most=self.each)
        if len(self.here) >= self.most:
            slow = [each for each in self.here if each.rate < HURRIED and time.monotonic() - each.begun > SETTLING]
            if not slow:
                raise Busy
            first = min(slow, key=lambda each: (-self.of(each.holder), each.rate))
            self.here.remove(first)
            first.give_way()
        body = Arriving(holder)
        self.here.append(body)
        try:
            yield body
        finally:
            if body in self.here:
                self.here.remove(body)


async def read(scope: Scope, receive: Receive, body: IO[bytes], limit: int, arriving: Arriving | None = None) -> int:
    """Reads the request into `body`; returns its size in bytes. Raises TooLarge (without reading if the length is announced),
    TooSlow, Gone."""
    if (announced(scope) or 0) > limit:
        raise TooLarge(limit)
    arriving, size, more = arriving or Arriving(""), 0, True
    while more:
        message = await arriving.next_part(receive)
        arriving.size = size = size + len(message.get("body", b""))
        if size > limit:
            raise TooLarge(limit)
        body.write(message.get("body", b""))
        more = message.get("more_body", False)
    body.seek(0)
    return size


def announced(scope: Scope) -> int | None:
    """The body's length according to the headers: 0 without a body, None if it is unknown."""
    headers = dict(scope["headers"])
    if b"content-length" in headers:
        return natural(headers[b"content-length"].decode("latin1").strip())
    return None if b"transfer-encoding" in headers else 0


def concerns_files(environ: dict[str, Any]) -> bool:
    """Whether the request is for files, by its address or because a form uploads some."""
    kind = str(environ.get("CONTENT_TYPE", "")).lower()
    return kind.startswith("multipart/form-data") or FILES.search(environ["PATH_INFO"]) is not None


def limit_for(environ: dict[str, Any]) -> int:
    """The maximum size in bytes of an authenticated sender's body."""
    most = settings.FILE_UPLOAD_LIMIT if concerns_files(environ) else settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return int(most) + (1 << 20)


def address_of(environ: dict[str, Any]) -> str:
    return client_of(str(environ.get("REMOTE_ADDR", "")), str(environ.get("HTTP_X_FORWARDED_FOR", "")))


def sender_of(environ: dict[str, Any]) -> str | None:
    """`user:<pk>` of the session's or token's user; None if not authenticated. Queries the database: call it in a
    thread."""
    from portal.accounts import bearer_tokens  # this module is imported before models are loaded

    request = WSGIRequest(environ)
    try:
        given = bearer_tokens.bearer_of(Request(request))
        if given is not None:
            token = bearer_tokens.live_token(given)
            fine = token is not None and bearer_tokens.address_allowed(token, address_of(environ))
            return f"user:{token.holder_id}" if token is not None and fine else None
        store = import_module(settings.SESSION_ENGINE).SessionStore
        request.session = store(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
        user = auth.get_user(request)
        return f"user:{user.pk}" if user.is_authenticated else None
    finally:
        close_old_connections()


def holder_of(request: WSGIRequest) -> str:
    """Whose allowance an answered request counts against: the user's, else the address's."""
    user = getattr(request, "user", None)
    return f"user:{user.pk}" if user is not None and user.is_authenticated else f"address:{request.META['REMOTE_ADDR']}"

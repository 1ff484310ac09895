"""Requests that are held open: event streams, long polls, followed logs. None of them occupies a thread.

A held request waits for the bell (portal/notify/event_bell.py) in the event loop. When it rings, and every few seconds without
a ring, it queries the database on one of a few shared threads. Under plain WSGI nothing can be held: a stream sends what there
is and ends (EventSource reconnects by itself), and a long poll answers at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import redis
import structlog
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.core.serializers.json import DjangoJSONEncoder
from django.db import close_old_connections, connections
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import translation
from rest_framework.request import Request

from portal.access import Actor
from portal.accounts import sessions
from portal.accounts.bearer_tokens import may_be_used
from portal.models import ApiToken, User
from portal.notify import event_bell

T = TypeVar("T")
LOOK_EVERY = 2.0  # s without a ring
SETTLE = 0.03  # s after a ring, so that a burst causes one query
KEEP_ALIVE = 15.0  # s
CHECK_EVERY = 5.0  # s
LONGEST_WAIT = 55  # s, below the usual time-out of proxies
_database = ThreadPoolExecutor(4, thread_name_prefix="streams")
_clusters = ThreadPoolExecutor(16, thread_name_prefix="followers")
_subscribing = threading.Lock()
_subscriber: threading.Thread | None = None
log = structlog.get_logger(__name__)


def can_hold(request: Request | HttpRequest) -> bool:
    """Whether the server can hold requests open: ours (portal/server/asgi_server.py) or Django's own ASGI handler."""
    return bool(request.META.get("portal.can_hold")) or isinstance(getattr(request, "_request", request), ASGIRequest)


async def look(read: Callable[[], T], *, cluster: bool = False) -> T:
    """Runs `read` in a shared thread in the reader's language, and returns its database connection at once."""
    language = translation.get_language()

    def reading() -> T:
        close_old_connections()
        try:
            with translation.override(language):
                return read()
        finally:
            connections.close_all()

    return await sync_to_async(reading, thread_sensitive=False, executor=_clusters if cluster else _database)()


@contextlib.contextmanager
def bell() -> Iterator[asyncio.Event]:
    start_subscriber()
    event = event_bell.listen()
    try:
        yield event
    finally:
        event_bell.leave(event)


async def wait_for_ring(event: asyncio.Event, seconds: float) -> None:
    """Returns after a ring of the bell or after `seconds`."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
        await asyncio.sleep(SETTLE)
    event.clear()


async def until(check: Callable[[], T | None], seconds: float) -> T | None:
    """The first result of `check` that is not None within `seconds`; None if there is none, or the process ends."""
    end = time.monotonic() + seconds
    with bell() as event:
        while True:
            result = await look(check)
            left = end - time.monotonic()
            if result is not None or left <= 0 or event_bell.closing.is_set():
                return result
            await wait_for_ring(event, min(left, LOOK_EVERY))


async def give_back() -> None:
    """Closes this thread's database connection: the stream itself needs none."""
    await sync_to_async(connections.close_all)()


def streaming(body: AsyncIterator[bytes], content_type: str, **headers: str) -> StreamingHttpResponse:
    """A held response. The language is captured here, because it is no longer active when the body runs."""
    language = translation.get_language()

    async def held() -> AsyncIterator[bytes]:
        await give_back()
        with translation.override(language):
            async for part in body:
                yield part

    response = StreamingHttpResponse(held(), content_type=content_type, headers=headers)
    response["Cache-Control"] = "no-cache, no-transform"
    response["X-Accel-Buffering"] = "no"
    return response


def message(data: Any, *, event: str = "", id: str = "") -> bytes:
    """One server-sent event."""
    head = (f"id: {id}\n" if id else "") + (f"event: {event}\n" if event else "")
    return f"{head}data: {json.dumps(data, cls=DjangoJSONEncoder, ensure_ascii=False)}\n\n".encode()


class Standing:
    """Whether the reader of a long response still has the right to it; checked again every few seconds."""

    def __init__(self, actor: Actor, *, checked: bool = True) -> None:
        """`checked`: the actor's rights were checked just now, as at the beginning of a request."""
        self._actor: Actor | None = actor
        self._checked = time.monotonic() if checked else float("-inf")

    def actor(self) -> Actor | None:
        """The reader with rights at most CHECK_EVERY old; None once the account, session or token has ended."""
        known = self._actor
        if known is not None and known.user is not None and time.monotonic() - self._checked > CHECK_EVERY:
            user = User.objects.filter(pk=known.user.pk, is_active=True).first()
            token = ApiToken.objects.filter(pk=known.token.pk).first() if known.token else None
            ended = user is None or (known.token is not None and (token is None or not may_be_used(token)))
            if user is not None and known.session:
                ended = ended or not sessions.is_live(known.session, user)
            self._actor = None if ended else Actor(user, token, known.session)
            self._checked = time.monotonic()
        return self._actor


def start_subscriber() -> None:
    """Starts the process's Redis subscriber with the first held request; the embedded demo needs none."""
    global _subscriber
    if not settings.REDIS_URL:
        return
    with _subscribing:
        if _subscriber is None or not _subscriber.is_alive():
            _subscriber = threading.Thread(target=subscribe, name="bus", daemon=True)
            _subscriber.start()


def subscribe() -> None:
    pause = 0.5
    while not event_bell.closing.is_set():
        try:
            client = redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=5)
            channel: Any
            with client, client.pubsub(ignore_subscribe_messages=True) as channel:  # type: ignore[no-untyped-call]
                channel.subscribe(event_bell.CHANNEL)
                event_bell.wake_local()  # for rings that were missed
                pause = 0.5
                while not event_bell.closing.is_set():
                    if channel.get_message(timeout=1.0) is not None:
                        event_bell.wake_local()
        except redis.RedisError as error:
            log.warning("bus.subscriber_lost", error=str(error))
            event_bell.closing.wait(pause)
            pause = min(pause * 2, 10.0)

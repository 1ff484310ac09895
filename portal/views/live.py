"""`/events/`: hints for live pages: something that the reader may see has changed, and which workload.

Pages then request their parts again, so a lost hint only costs a moment (static/portal.js).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.http import require_safe

from portal.access import Actor, actor_of
from portal.api.events import STREAM, Feed, batches, end_of_feed
from portal.models import Event
from portal.notify.events import QUEUE_MOVED
from portal.server import streams


@login_required
@require_safe
def events(request: HttpRequest) -> HttpResponseBase:
    """`?workload=` narrows the stream to one workload."""
    feed = feed_of(actor_of(request), request.GET.get("workload", "")[:26])
    if streams.can_hold(request):
        return streams.streaming(hints(feed), STREAM)
    # If nothing can be held open, the page polls; EventSource reconnects after this pause.
    return StreamingHttpResponse([b"retry: 15000\n\n"], content_type=STREAM)


def feed_of(actor: Actor, workload: str) -> Feed:
    """The reader's feed: everything the actor may see, or one workload's events including its queue position."""
    return Feed(streams.Standing(actor), workload, also=(QUEUE_MOVED,))


async def hints(feed: Feed) -> AsyncIterator[bytes]:
    position = await streams.look(end_of_feed)
    yield b"retry: 3000\n" + streams.message({}, event="open")
    async with aclosing(batches(feed, position)) as feed_batches:
        async for rows in feed_batches:
            yield streams.message(summary(rows), event="change") if rows else streams.message({}, event="still")


def summary(rows: list[Event]) -> dict[str, list[str]]:
    return {
        "kinds": sorted({row.kind for row in rows}),
        "workloads": sorted({row.workload for row in rows if row.workload}),
    }

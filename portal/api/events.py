"""`events/`: a list of events, or a stream in commit order that can be resumed."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import BigIntegerField, F, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from portal.access import Actor, visible
from portal.api.base import ApiView
from portal.api.schema import page_of
from portal.models import Event
from portal.notify import event_bell
from portal.server import streams
from portal.server.streams import Standing

STREAM = "text/event-stream"
CHUNK = 200
FIRST_PAUSE = 0.1  # s to wait for an older transaction that is about to commit; doubles until it does
STILL_HERE = b": still here\n\n"
Position = tuple[int, int]


class EventOut(serializers.ModelSerializer[Event]):
    id = serializers.SerializerMethodField(help_text="Opaque; sorts in commit order and resumes a stream.")
    department = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)

    class Meta:
        model = Event
        fields = ["id", "at", "kind", "department", "workload", "data"]

    def get_id(self, event: Event) -> str:
        return f"{event.tx}-{event.pk}"


@dataclass
class Feed:
    """The events that one reader may see, narrowed to a workload or kinds."""

    reader: Standing
    workload: str = ""
    kinds: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # kinds that concern the workload, though the events are not its own

    def rows(self, actor: Actor) -> QuerySet[Event]:
        rows = visible(actor, settled()).select_related("department")
        if self.workload:
            rows = rows.filter(Q(workload=self.workload) | Q(kind__in=self.also))
        if self.kinds:
            rows = rows.filter(kind__in=self.kinds)
        return rows

    def after(self, position: Position) -> tuple[list[Event], Position, bool] | None:
        """(rows, position of the last one, whether more will be final soon); None if the reader has lost the right to read."""
        actor = self.reader.actor()
        if actor is None:
            return None
        tx, pk = position
        rows = list(self.rows(actor).filter(Q(tx__gt=tx) | Q(tx=tx, pk__gt=pk)).order_by("tx", "pk")[:CHUNK])
        if rows:
            position = (rows[-1].tx, rows[-1].pk)
        return rows, position, len(rows) == CHUNK or unsettled()


def settled() -> QuerySet[Event]:
    """Final rows: no running transaction can still insert one before them. SQLite runs one writing transaction at a time."""
    if connection.vendor != "postgresql":
        return Event.objects.all()
    oldest = RawSQL("pg_snapshot_xmin(pg_current_snapshot())::text::bigint", [], output_field=BigIntegerField())
    return Event.objects.alias(oldest=oldest).filter(tx__lt=F("oldest"))


def unsettled() -> bool:
    if connection.vendor != "postgresql":
        return False
    last = Event.objects.order_by("tx", "pk").last()
    return last is not None and not settled().filter(pk=last.pk).exists()


def end_of_feed() -> Position:
    last = settled().order_by("tx", "pk").last()
    return (last.tx, last.pk) if last else (0, 0)


def start(given: str) -> tuple[Position, bool]:
    """Where to begin: (position, whether events after the reader's last one were deleted, which is sent as `event: reset`)."""
    if not given:
        return end_of_feed(), False
    tx, _dash, pk = given.partition("-")
    if given == "0-0" or (
        tx.isascii() and tx.isdigit() and pk.isascii() and pk.isdigit() and len(given) < 38
        and Event.objects.filter(tx=int(tx), pk=int(pk)).exists()
    ):  # fmt: skip
        return (int(tx), int(pk)), False
    return end_of_feed(), True


def opening(position: Position, reset: bool) -> bytes:
    event_id = f"{position[0]}-{position[1]}"
    return b"retry: 3000\n" + streams.message({}, event="reset" if reset else "open", id=event_id)


def as_messages(rows: list[Event]) -> Iterator[bytes]:
    """The events as server-sent events."""
    for row in rows:
        data = EventOut(row).data
        yield streams.message(data, event=row.kind, id=data["id"])


async def batches(feed: Feed, position: Position) -> AsyncGenerator[list[Event], None]:
    """New events in commit order as they become final; an empty list after KEEP_ALIVE without any.

    Ends when the reader loses the right to read them, or the process stops.
    """
    last_sent, pause = time.monotonic(), FIRST_PAUSE
    with streams.bell() as event:
        while not event_bell.closing.is_set():
            batch = await streams.look(lambda: feed.after(position))  # noqa: B023
            if batch is None:
                return
            rows, position, soon = batch
            now = time.monotonic()
            if rows or now - last_sent >= streams.KEEP_ALIVE:
                yield rows
                last_sent = now
            pause = min(pause * 2, streams.LOOK_EVERY) if soon and not rows else FIRST_PAUSE
            await streams.wait_for_ring(event, pause if soon else streams.LOOK_EVERY)


async def follow(feed: Feed, given: str) -> AsyncIterator[bytes]:
    """The live stream, continuing after the reader's last event id."""
    position, reset = await streams.look(lambda: start(given))
    yield opening(position, reset)
    async with aclosing(batches(feed, position)) as feed_batches:
        async for rows in feed_batches:
            for part in as_messages(rows):
                yield part
            if not rows:
                yield STILL_HERE


def finite(feed: Feed, given: str) -> Iterator[bytes]:
    """The present events, for servers that cannot hold a request open; EventSource reconnects by itself."""
    position, reset = start(given)
    yield opening(position, reset)
    batch = feed.after(position)
    yield from as_messages(batch[0] if batch else [])


def event_stream(request: Request, feed: Feed) -> HttpResponseBase:
    given = request.headers.get("Last-Event-ID") or request.query_params.get("after", "")
    if streams.can_hold(request):
        return streams.streaming(follow(feed, given), STREAM)
    return StreamingHttpResponse(finite(feed, given), content_type=STREAM, headers={"Cache-Control": "no-cache"})


def wants_stream(request: Request) -> bool:
    return STREAM in request.headers.get("Accept", "")


EVENT_PARAMETERS = [
    OpenApiParameter("kind", str, description="Only events of these kinds, separated by commas."),
    OpenApiParameter("after", str, description="Only events after the one with this `id`."),
    OpenApiParameter(
        "Last-Event-ID",
        str,
        OpenApiParameter.HEADER,
        description="Resumes a stream after the event with this `id`; it takes precedence over `after`.",
    ),
]
EVENT_ANSWERS = {
    (200, "application/json"): page_of(EventOut),
    (200, STREAM): OpenApiResponse(OpenApiTypes.STR, "One message an event; `event: reset` when the id has expired."),
}


class Events(ApiView):
    """Newest first as a list; with `Accept: text/event-stream` live and in commit order."""

    @extend_schema(operation_id="events_list", parameters=EVENT_PARAMETERS, responses=EVENT_ANSWERS)
    def get(self, request: Request) -> HttpResponseBase:
        return self.events("")

    def events(self, workload: str) -> HttpResponseBase:
        kinds = tuple(kind for kind in self.text("kind").split(",") if kind)
        feed = Feed(Standing(self.actor), workload, kinds)
        if wants_stream(self.request):
            return event_stream(self.request, feed)
        rows = feed.rows(self.actor)
        if self.text("after"):
            (tx, pk), reset = start(self.text("after"))
            rows = rows.none() if reset else rows.filter(Q(tx__gt=tx) | Q(tx=tx, pk__gt=pk))
        return self.page(rows, EventOut)

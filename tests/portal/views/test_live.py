"""The hints behind live pages: sent at once, only to readers with access, and without details of what happened."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.test import Client

from portal.access import Actor
from portal.models import Department, User
from portal.notify.events import QUEUE_MOVED, emit
from portal.server import streams
from portal.views.live import feed_of, hints
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)


def data_of(message: bytes) -> dict[str, Any]:
    return dict(json.loads(message.decode().split("data: ", 1)[1]))


@async_to_sync
async def hint_after(
    reader: User, department: Department, workload: str = "", narrowed: str = "", kind: str = "workload.running"
) -> dict[str, Any] | None:
    """What the reader's open stream says when something happens; None when it stays silent for a second."""
    stream: AsyncIterator[bytes] = hints(feed_of(Actor(reader), narrowed))
    assert b"event: open" in await anext(stream)
    following = asyncio.ensure_future(anext(stream))  # type: ignore[arg-type]
    await asyncio.sleep(0.1)
    await sync_to_async(emit)(kind, department=department, workload=workload, secret="not told")
    try:
        return data_of(
            await asyncio.wait_for(following, 3 if not narrowed or narrowed == workload or not workload else 1)
        )
    except TimeoutError:
        return None
    finally:
        await stream.aclose()  # type: ignore[attr-defined]


def test_member_gets_a_hint_with_kind_and_workload_only() -> None:
    vision = make.department("vision")
    hint = hint_after(make.member(vision), vision, "w1")
    assert hint == {"kinds": ["workload.running"], "workloads": ["w1"]}


def test_stranger_gets_no_hint() -> None:
    vision = make.department("vision")
    stranger = make.member(make.department("nlp"))
    assert hint_after(stranger, vision, "w1", narrowed="w1") is None


def test_stream_of_one_workload_has_no_hints_about_others() -> None:
    vision = make.department("vision")
    assert hint_after(make.member(vision), vision, "w1", narrowed="w2") is None


def test_stream_of_one_workload_has_hints_about_moves_of_the_queue() -> None:
    vision = make.department("vision")
    assert hint_after(make.member(vision), vision, narrowed="w2", kind=QUEUE_MOVED) == {
        "kinds": [QUEUE_MOVED], "workloads": [],
    }  # fmt: skip
    assert hint_after(make.member(make.department("nlp")), vision, narrowed="w2", kind=QUEUE_MOVED) is None


def test_quiet_stream_sends_keep_alive_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """As events, which the page can see: it reopens a stream that is silent for longer (static/portal.js)."""
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.1)
    monkeypatch.setattr(streams, "LOOK_EVERY", 0.05)

    reader = make.user()

    @async_to_sync
    async def receive() -> list[bytes]:
        stream: AsyncIterator[bytes] = hints(feed_of(Actor(reader), ""))
        try:
            return [await asyncio.wait_for(anext(stream), 5) for _ in range(3)]  # type: ignore[arg-type]
        finally:
            await stream.aclose()  # type: ignore[attr-defined]

    opening, *quiet = receive()
    assert b"event: open" in opening
    assert all(message.startswith(b"event: still\n") for message in quiet)


def test_stream_requires_a_login() -> None:
    assert Client().get("/events/").headers["Location"].startswith("/login/")


def test_server_that_cannot_hold_streams_ends_the_response_with_a_retry_time() -> None:
    client = Client()
    client.force_login(make.member(make.department("vision")))
    response = client.get("/events/")
    assert response.headers["Content-Type"] == "text/event-stream"
    assert b"retry:" in b"".join(response.streaming_content)  # type: ignore[arg-type]

"""The event stream: commit order, resuming, what a reader can see, and how it ends."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from django.db import connection, connections, transaction

from portal.access import Actor
from portal.api import events as stream
from portal.models import ApiToken, Department, Event, Role, User
from portal.notify import event_bell
from portal.notify.events import emit
from portal.server.streams import Standing
from tests import builders as make
from tests.clients import person, program, token_of


@pytest.fixture
def vision(db: None) -> Department:
    return make.department("vision")


@pytest.fixture
def alice(vision: Department) -> User:
    return make.member(vision, Role.MEMBER, "alice")


def create_event(kind: str, department: Department | None, **data: Any) -> Event:
    with transaction.atomic():
        row = emit(kind, department=department, **data)
    row.refresh_from_db()
    return row


def feed_of(user: User, token: ApiToken | None = None) -> stream.Feed:
    return stream.Feed(Standing(Actor(user, token)))


def messages(raw: bytes) -> list[dict[str, str]]:
    found = []
    for block in raw.decode().split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines() if not line.startswith(":")]
        if fields := {name: value for name, _, value in lines if name in {"id", "event", "data"}}:
            found.append(fields)
    return found


def read_stream(client: Any, **headers: str) -> list[dict[str, str]]:
    """The messages that a server that cannot hold requests sends at once."""
    answer = client.get("/api/v1/events/", headers={"Accept": "text/event-stream", **headers})
    assert answer["Content-Type"] == "text/event-stream"
    return messages(b"".join(answer.streaming_content))


@pytest.mark.django_db(transaction=True)
def test_event_list_is_newest_first_and_can_be_filtered(alice: User, vision: Department) -> None:
    first = create_event("workload.queued", vision, workload="w1")
    last = create_event("quota.changed", vision, pool="a100")
    page = person(alice).get("/api/v1/events/").json()["results"]
    assert [each["kind"] for each in page] == ["quota.changed", "workload.queued"]
    assert page[0]["id"] == f"{last.tx}-{last.pk}"
    assert page[0]["data"] == {"pool": "a100"}
    assert [e["workload"] for e in person(alice).get("/api/v1/events/?kind=workload.queued").json()["results"]] == [
        "w1"
    ]
    after = person(alice).get(f"/api/v1/events/?after={first.tx}-{first.pk}").json()["results"]
    assert [each["kind"] for each in after] == ["quota.changed"]


@pytest.mark.django_db(transaction=True)
def test_events_of_other_departments_are_hidden(alice: User, vision: Department) -> None:
    nlp = make.department("nlp")
    create_event("workload.queued", nlp, workload="theirs")
    create_event("cluster.changed", None)
    create_event("workload.queued", vision, workload="ours")
    assert [e["workload"] for e in person(alice).get("/api/v1/events/").json()["results"]] == ["ours"]
    operator = make.user("root", is_operator=True)
    assert len(person(operator).get("/api/v1/events/").json()["results"]) == 3
    assert len(program(operator, vision).get("/api/v1/events/").json()["results"]) == 1, (
        "a token stays in its department"
    )


@pytest.mark.django_db(transaction=True)
def test_stream_resumes_after_the_last_event_id(alice: User, vision: Department) -> None:
    rows = [create_event("a", vision, n=n) for n in range(3)]
    received = read_stream(person(alice), **{"Last-Event-ID": f"{rows[0].tx}-{rows[0].pk}"})
    assert received[0]["event"] == "open"
    assert [json.loads(each["data"])["data"]["n"] for each in received[1:]] == [1, 2]
    assert [each["id"] for each in received[1:]] == [f"{row.tx}-{row.pk}" for row in rows[1:]]


@pytest.mark.django_db(transaction=True)
def test_new_stream_starts_now_and_can_be_resumed_from_its_opening(alice: User, vision: Department) -> None:
    create_event("old", vision)
    [opening] = read_stream(person(alice))
    create_event("new", vision)
    received = read_stream(person(alice), **{"Last-Event-ID": opening["id"]})
    assert [each["event"] for each in received] == ["open", "new"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("given", ["1-999999", "x", "5", "-", "99999999999999999999-1", "²-1"])
def test_unknown_or_invalid_last_event_id_resets_the_stream(alice: User, vision: Department, given: str) -> None:
    row = create_event("a", vision)
    received = stream.opening(*stream.start(given))
    assert messages(received)[0] == {"id": f"{row.tx}-{row.pk}", "event": "reset", "data": "{}"}


@pytest.mark.concurrency
@pytest.mark.django_db(transaction=True)
def test_event_is_withheld_while_an_older_transaction_is_open(alice: User, vision: Department) -> None:
    """Otherwise a reader that has received the younger event would never receive the older one."""
    written, checked = threading.Event(), threading.Event()

    def slow() -> None:
        try:
            with transaction.atomic():
                emit("older", department=vision)
                written.set()
                assert checked.wait(20)
        finally:
            connections.close_all()

    thread = threading.Thread(target=slow)
    thread.start()
    assert written.wait(20)
    create_event("younger", vision)
    feed = feed_of(alice)
    found = feed.after((0, 0))
    assert found is not None
    assert ([row.kind for row in found[0]], found[2]) == ([], True), "withheld for now"
    assert Event.objects.filter(kind="younger").exists(), "a reader that goes by ID would have received the younger one"
    checked.set()
    thread.join()
    found = feed.after((0, 0))
    assert found is not None
    assert [row.kind for row in found[0]] == ["older", "younger"]


async def collect(feed: stream.Feed, given: str, until: Any) -> bytes:
    raw = b""
    async with asyncio.timeout(20):
        async for part in stream.follow(feed, given):
            raw += part
            if until(raw):
                break
    return raw


@pytest.mark.django_db(transaction=True)
def test_held_stream_delivers_events_created_after_it_was_opened(alice: User, vision: Department) -> None:
    def later() -> None:
        try:
            create_event("news", vision, text="héllo\n\ndata: not a new message")
        finally:
            connections.close_all()

    timer = threading.Timer(0.3, later)
    timer.start()
    raw = asyncio.run(collect(feed_of(alice), "", lambda raw: b"news" in raw))
    timer.join()
    received = messages(raw)
    assert [each["event"] for each in received] == ["open", "news"]
    assert json.loads(received[1]["data"])["data"]["text"] == "héllo\n\ndata: not a new message"


@pytest.mark.django_db(transaction=True)
def test_a_held_stream_ends_when_its_token_is_revoked(
    alice: User, vision: Department, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.server.streams.CHECK_EVERY", 0.0)
    row, _secret = token_of(alice, vision)

    def revoke() -> None:
        try:
            ApiToken.objects.filter(pk=row.pk).update(revoked_at=row.created_at)
            event_bell.ring()
        finally:
            connections.close_all()

    timer = threading.Timer(0.3, revoke)
    timer.start()
    raw = asyncio.run(collect(feed_of(alice, row), "", lambda raw: False))
    timer.join()
    assert [each["event"] for each in messages(raw)] == ["open"]


@pytest.mark.django_db(transaction=True)
def test_held_stream_ends_when_the_process_shuts_down(
    alice: User, vision: Department, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_bell, "closing", threading.Event())
    timer = threading.Timer(0.3, event_bell.close)
    timer.start()
    raw = asyncio.run(collect(feed_of(alice), "", lambda raw: False))
    timer.join()
    assert len(messages(raw)) == 1


@pytest.mark.django_db(transaction=True)
def test_quiet_stream_sends_keep_alive_comments(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portal.server.streams.KEEP_ALIVE", 0.1)
    monkeypatch.setattr("portal.server.streams.LOOK_EVERY", 0.1)
    raw = asyncio.run(collect(feed_of(alice), "", lambda raw: b": still here" in raw))
    assert raw.endswith(b": still here\n\n")


@pytest.mark.django_db(transaction=True)
def test_reading_the_feed_takes_few_queries(alice: User, vision: Department) -> None:
    create_event("a", vision)
    feed = feed_of(alice)
    feed.after((0, 0))
    with connection.execute_wrapper(counter := Counter()):
        feed.after((0, 0))
    assert counter.count <= 4


class Counter:
    count = 0

    def __call__(self, execute: Any, *args: Any) -> Any:
        self.count += 1
        return execute(*args)

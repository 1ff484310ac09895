"""Receivers that are slow in every way: they keep nobody waiting but themselves, and their owners hear of it."""

from __future__ import annotations

import datetime as dt
import gzip
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal import tasks
from portal.access import Actor
from portal.models import Department, InboxItem, Role, SendingLane, User, Webhook, WebhookDelivery
from portal.notify import notices, outbox, safe_http, sender, webhooks
from tests import builders as make
from tests.portal.notify.receiver import Receiver, listening

pytestmark = pytest.mark.django_db(transaction=True)
SHORT = 1.0  # s: the deadline where a receiver is to miss it
LONG = 100.0  # s: where it is to answer, or to be slow still, however busy the machine is


@pytest.fixture
def deadline(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    return lambda seconds: monkeypatch.setattr(safe_http, "DEADLINE", seconds)


@pytest.fixture
def receivers(settings: Any, deadline: Callable[[float], None]) -> Iterator[list[Receiver]]:
    """Two on hosts of their own, with all the time they need."""
    deadline(LONG)
    with ExitStack() as stack:
        found = [stack.enter_context(listening(address)) for address in ("127.0.0.1", "127.0.0.2")]
        settings.WEBHOOK_HOSTS = [receiver.rule for receiver in found]
        yield found
        for receiver in found:
            receiver.over.set()
        finished()


@pytest.fixture
def vision() -> Department:
    return make.department("vision")


@pytest.fixture
def olga(vision: Department) -> User:
    return make.member(vision, Role.OWNER, "olga")


def hook(olga: User, vision: Department, receiver: Receiver, name: str = "ci") -> Webhook:
    url = f"{receiver.rule}/{name}"
    return webhooks.add_webhook(actor=Actor(olga), department=vision, name=name, url=url, shape="generic")


def happens(vision: Department) -> None:
    notices.send("workload.failed", to=[], department=vision, workload="w1", name="train", reason="Error")


def finished() -> None:
    """Every thread that sends has ended."""
    for thread in threading.enumerate():
        if thread.name.startswith("sender "):
            thread.join(30)
            assert not thread.is_alive()


@pytest.mark.parametrize("manner", ["silent", "head", "body"])
def test_the_whole_of_a_delivery_has_one_deadline(
    receivers: list[Receiver], deadline: Callable[[float], None], olga: User, vision: Department, manner: str
) -> None:
    deadline(SHORT)
    receivers[0].manner = manner  # for ever: without a deadline of the whole it would never come back
    hook(olga, vision, receivers[0])
    happens(vision)
    begun = time.monotonic()
    assert outbox.send_due() == 0
    assert time.monotonic() - begun >= SHORT
    assert WebhookDelivery.objects.get().error == f"TooSlow: no complete answer within {SHORT:g} s"


def packed_twice(size: int) -> bytes:
    """So many zeros in some hundred bytes, as `Content-Encoding: gzip, gzip`."""
    return gzip.compress(gzip.compress(bytes(size)))


def test_an_answer_is_not_unpacked(receivers: list[Receiver], olga: User, vision: Department) -> None:
    """A kilobyte that was gigabytes held the memory of every sender."""
    receivers[0].packed, receivers[0].answer = "gzip, gzip", packed_twice(200 << 20)
    hook(olga, vision, receivers[0])
    happens(vision)
    tracemalloc.start()
    assert outbox.send_due() == 1
    _now, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 << 20
    assert receivers[0].received[0][1]["Accept-Encoding"] == "identity"


def test_a_name_that_is_not_found_in_time_holds_nobody_either(
    receivers: list[Receiver], deadline: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    deadline(SHORT)
    monkeypatch.setattr("portal.notify.safe_http.socket.getaddrinfo", lambda *_, **__: over.wait())
    with pytest.raises(safe_http.TooSlow):
        safe_http.post(f"{receivers[0].rule}/", b"", {})
    over.set()


def is_at_it(receiver: Receiver) -> bool:
    """Whether a thread sends to it now."""
    host = receiver.rule.split("/")[2].split(":")[0]
    return any(thread.name == f"sender {host}" for thread in threading.enumerate())


def test_the_job_returns_at_once_and_other_hosts_get_theirs_meanwhile(
    receivers: list[Receiver], olga: User, vision: Department
) -> None:
    slow, quick = receivers
    slow.manner = "body"
    hook(olga, vision, slow, "slow")
    fine = hook(olga, vision, quick, "fine")
    happens(vision)
    tasks.deliver()
    assert is_at_it(slow), "the job is back before it"
    end = time.monotonic() + LONG / 2
    while not WebhookDelivery.objects.filter(webhook=fine).exclude(sent_at=None).exists():
        assert time.monotonic() < end
    assert is_at_it(slow)
    tasks.deliver()
    tasks.deliver()
    while not slow.most_at_once:
        assert time.monotonic() < end
    assert slow.most_at_once == 1
    slow.manner = ""
    finished()


def test_one_delivery_at_a_time_goes_to_a_host_whichever_process_sends(
    receivers: list[Receiver], deadline: Callable[[float], None], olga: User, vision: Department
) -> None:
    deadline(SHORT)
    receivers[0].manner = "silent"
    for name in ("one", "two", "three"):
        hook(olga, vision, receivers[0], name)
    happens(vision)
    threads = [threading.Thread(target=sender._send, args=("127.0.0.1",), name=f"sender {n}") for n in range(3)]
    for thread in threads:
        thread.start()
    finished()
    assert len(receivers[0].received) == 3
    assert receivers[0].most_at_once == 1


def test_after_failures_in_a_row_it_is_left_alone_its_owners_are_told_and_what_waits_goes_out_when_it_is_back(
    receivers: list[Receiver], olga: User, vision: Department
) -> None:
    failing, fine = hook(olga, vision, receivers[0], "failing"), hook(olga, vision, receivers[1], "fine")
    receivers[0].status = 503
    now = timezone.now()
    for _again in range(8):
        happens(vision)
    assert outbox.send_due(now=now + dt.timedelta(seconds=1)) == 8, "those of the other"
    assert len(receivers[0].received) == outbox.OPENS_AFTER, "not one more"
    failing.refresh_from_db()
    assert failing.failures == outbox.OPENS_AFTER
    assert failing.open_until is not None
    [line] = InboxItem.objects.filter(user=olga, kind="webhook.failing")
    assert notices.sentence(line.kind, line.data).startswith(
        "The webhook failing of Vision has failed 5 times in a row (HTTP 503)"
    )
    assert not WebhookDelivery.objects.filter(kind="webhook.failing").exists()
    fine.refresh_from_db()
    assert (fine.failures, fine.open_until) == (0, None)

    assert outbox.send_due(now=failing.open_until) == 0
    assert len(receivers[0].received) == outbox.OPENS_AFTER + 1, "one try, and it is left alone again"
    failing.refresh_from_db()
    receivers[0].status = 200
    assert outbox.send_due(now=failing.open_until) == 8
    failing.refresh_from_db()
    assert (failing.failures, failing.failing_since, failing.open_until) == (0, None, None)
    assert InboxItem.objects.filter(kind="webhook.failing").count() == 1


def test_try_answers_at_once_and_the_page_tells_later(
    receivers: list[Receiver], deadline: Callable[[float], None], olga: User, vision: Department
) -> None:
    receivers[0].manner = "body"
    made = hook(olga, vision, receivers[0])
    client = Client()
    client.force_login(olga, backend="django.contrib.auth.backends.ModelBackend")
    for _again in range(3):
        page = client.post(f"/d/vision/webhooks/{made.pk}/try/", follow=True)
    assert receivers[0].received == [], "the page does not wait for it"
    assert 'hx-trigger="every 2s"' in page.content.decode()
    deadline(SHORT)
    tasks.deliver()
    finished()
    assert len(receivers[0].received) == 1, "one test at a time"
    part = client.get("/d/vision/webhooks/", headers={"HX-Request": "true"}).content.decode()
    assert "no complete answer within" in part
    assert "hx-trigger" not in part
    assert "<html" not in part
    made.refresh_from_db()
    assert made.failures == 0, "a test does not count"


def test_a_test_goes_out_while_it_is_left_alone_and_brings_it_back(
    receivers: list[Receiver], olga: User, vision: Department
) -> None:
    made = hook(olga, vision, receivers[0])
    now = timezone.now()
    Webhook.objects.filter(pk=made.pk).update(failures=9, failing_since=now, open_until=now + dt.timedelta(hours=1))
    happens(vision)
    assert outbox.send_due() == 0
    client = Client()
    client.force_login(olga, backend="django.contrib.auth.backends.ModelBackend")
    assert "Failed 9 times in a row since" in client.get("/d/vision/webhooks/").content.decode()
    webhooks.try_webhook(actor=Actor(olga), webhook=made)
    assert outbox.send_due() == 2


@pytest.mark.parametrize(("ahead", "sent"), [(0, 1), (20, 0), (3600, 1)])  # s; the last: a clock was ahead
def test_a_lane_is_anothers_no_longer_than_a_lease(
    receivers: list[Receiver], olga: User, vision: Department, ahead: int, sent: int
) -> None:
    hook(olga, vision, receivers[0])
    happens(vision)
    SendingLane.objects.create(lane="127.0.0.1", busy_until=timezone.now() + dt.timedelta(seconds=ahead))
    assert outbox.send_due() == sent

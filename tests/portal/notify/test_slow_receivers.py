"""Slow receivers: they delay no deliveries but their own, and their owners are notified."""

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
SHORT = 1.0  # s: a deadline that the receiver misses
LONG = 100.0  # s: a deadline that does not pass during the test, however busy the machine is


@pytest.fixture
def deadline(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    return lambda seconds: monkeypatch.setattr(safe_http, "DEADLINE", seconds)


@pytest.fixture
def receivers(settings: Any, deadline: Callable[[float], None]) -> Iterator[list[Receiver]]:
    """Two receivers on different hosts, with a long deadline."""
    deadline(LONG)
    with ExitStack() as stack:
        found = [stack.enter_context(listening(address)) for address in ("127.0.0.1", "127.0.0.2")]
        settings.WEBHOOK_HOSTS = [receiver.rule for receiver in found]
        yield found
        for receiver in found:
            receiver.over.set()
        wait_for_senders()


@pytest.fixture
def vision() -> Department:
    return make.department("vision")


@pytest.fixture
def olga(vision: Department) -> User:
    return make.member(vision, Role.OWNER, "olga")


def hook(olga: User, vision: Department, receiver: Receiver, name: str = "ci") -> Webhook:
    url = f"{receiver.rule}/{name}"
    return webhooks.add_webhook(actor=Actor(olga), department=vision, name=name, url=url, shape="generic")


def send_notice(vision: Department) -> None:
    notices.send("workload.failed", to=[], department=vision, workload="w1", name="train", reason="Error")


def wait_for_senders() -> None:
    """Waits until every sending thread has ended."""
    for thread in threading.enumerate():
        if thread.name.startswith("sender "):
            thread.join(30)
            assert not thread.is_alive()


@pytest.mark.parametrize("manner", ["silent", "head", "body"])
def test_one_deadline_covers_the_whole_delivery(
    receivers: list[Receiver], deadline: Callable[[float], None], olga: User, vision: Department, manner: str
) -> None:
    deadline(SHORT)
    receivers[0].manner = manner  # endless: without a deadline for the whole delivery it would never return
    hook(olga, vision, receivers[0])
    send_notice(vision)
    started = time.monotonic()
    assert outbox.send_due() == 0
    assert time.monotonic() - started >= SHORT
    assert WebhookDelivery.objects.get().error == f"TooSlow: no complete answer within {SHORT:g} s"


def packed_twice(size: int) -> bytes:
    """`size` zeros packed into some hundred bytes, for `Content-Encoding: gzip, gzip`."""
    return gzip.compress(gzip.compress(bytes(size)))


def test_compressed_response_is_not_unpacked(receivers: list[Receiver], olga: User, vision: Department) -> None:
    """Unpacked, a kilobyte can become gigabytes and exhaust the memory of the sender."""
    receivers[0].packed, receivers[0].answer = "gzip, gzip", packed_twice(200 << 20)
    hook(olga, vision, receivers[0])
    send_notice(vision)
    tracemalloc.start()
    assert outbox.send_due() == 1
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 << 20
    assert receivers[0].received[0][1]["Accept-Encoding"] == "identity"


def test_deadline_also_covers_the_resolution_of_the_host_name(
    receivers: list[Receiver], deadline: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    deadline(SHORT)
    monkeypatch.setattr("portal.notify.safe_http.socket.getaddrinfo", lambda *_, **__: over.wait())
    with pytest.raises(safe_http.TooSlow):
        safe_http.post(f"{receivers[0].rule}/", b"", {})
    over.set()


def is_being_sent_to(receiver: Receiver) -> bool:
    """Whether a thread is sending to the receiver now."""
    host = receiver.rule.split("/")[2].split(":")[0]
    return any(thread.name == f"sender {host}" for thread in threading.enumerate())


def test_job_returns_at_once_and_other_hosts_get_their_deliveries_meanwhile(
    receivers: list[Receiver], olga: User, vision: Department
) -> None:
    slow, quick = receivers
    slow.manner = "body"
    hook(olga, vision, slow, "slow")
    fine = hook(olga, vision, quick, "fine")
    send_notice(vision)
    tasks.deliver()
    assert is_being_sent_to(slow), "the job returns before the delivery ends"
    end = time.monotonic() + LONG / 2
    while not WebhookDelivery.objects.filter(webhook=fine).exclude(sent_at=None).exists():
        assert time.monotonic() < end
    assert is_being_sent_to(slow)
    tasks.deliver()
    tasks.deliver()
    while not slow.most_at_once:
        assert time.monotonic() < end
    assert slow.most_at_once == 1
    slow.manner = ""
    wait_for_senders()


def test_host_gets_one_delivery_at_a_time_from_all_processes_together(
    receivers: list[Receiver], deadline: Callable[[float], None], olga: User, vision: Department
) -> None:
    deadline(SHORT)
    receivers[0].manner = "silent"
    for name in ("one", "two", "three"):
        hook(olga, vision, receivers[0], name)
    send_notice(vision)
    threads = [threading.Thread(target=sender._send, args=("127.0.0.1",), name=f"sender {n}") for n in range(3)]
    for thread in threads:
        thread.start()
    wait_for_senders()
    assert len(receivers[0].received) == 3
    assert receivers[0].most_at_once == 1


def test_failing_webhook_is_paused_its_owners_are_notified_and_waiting_deliveries_follow(
    receivers: list[Receiver], olga: User, vision: Department
) -> None:
    failing, fine = hook(olga, vision, receivers[0], "failing"), hook(olga, vision, receivers[1], "fine")
    receivers[0].status = 503
    now = timezone.now()
    for _again in range(8):
        send_notice(vision)
    assert outbox.send_due(now=now + dt.timedelta(seconds=1)) == 8, "the deliveries of the other webhook"
    assert len(receivers[0].received) == outbox.OPENS_AFTER, "no further attempts"
    failing.refresh_from_db()
    assert failing.failures == outbox.OPENS_AFTER
    assert failing.open_until is not None
    [item] = InboxItem.objects.filter(user=olga, kind="webhook.failing")
    assert notices.sentence(item.kind, item.data).startswith(
        "The webhook failing of Vision has failed 5 times in a row (HTTP 503)"
    )
    assert not WebhookDelivery.objects.filter(kind="webhook.failing").exists()
    fine.refresh_from_db()
    assert (fine.failures, fine.open_until) == (0, None)

    assert outbox.send_due(now=failing.open_until) == 0
    assert len(receivers[0].received) == outbox.OPENS_AFTER + 1, "one attempt, then it is paused again"
    failing.refresh_from_db()
    receivers[0].status = 200
    assert outbox.send_due(now=failing.open_until) == 8
    failing.refresh_from_db()
    assert (failing.failures, failing.failing_since, failing.open_until) == (0, None, None)
    assert InboxItem.objects.filter(kind="webhook.failing").count() == 1


def test_test_button_returns_at_once_and_the_page_shows_the_result_later(
    receivers: list[Receiver], deadline: Callable[[float], None], olga: User, vision: Department
) -> None:
    receivers[0].manner = "body"
    webhook = hook(olga, vision, receivers[0])
    client = Client()
    client.force_login(olga, backend="django.contrib.auth.backends.ModelBackend")
    for _again in range(3):
        page = client.post(f"/d/vision/webhooks/{webhook.pk}/try/", follow=True)
    assert receivers[0].received == [], "the page does not wait for the delivery"
    assert 'hx-trigger="every 2s"' in page.content.decode()
    deadline(SHORT)
    tasks.deliver()
    wait_for_senders()
    assert len(receivers[0].received) == 1, "one test at a time"
    part = client.get("/d/vision/webhooks/", headers={"HX-Request": "true"}).content.decode()
    assert "no complete answer within" in part
    assert "hx-trigger" not in part
    assert "<html" not in part
    webhook.refresh_from_db()
    assert webhook.failures == 0, "a test does not count"


def test_test_delivery_is_sent_to_a_paused_webhook_and_resumes_it(
    receivers: list[Receiver], olga: User, vision: Department
) -> None:
    webhook = hook(olga, vision, receivers[0])
    now = timezone.now()
    Webhook.objects.filter(pk=webhook.pk).update(failures=9, failing_since=now, open_until=now + dt.timedelta(hours=1))
    send_notice(vision)
    assert outbox.send_due() == 0
    client = Client()
    client.force_login(olga, backend="django.contrib.auth.backends.ModelBackend")
    assert "Failed 9 times in a row since" in client.get("/d/vision/webhooks/").content.decode()
    webhooks.try_webhook(actor=Actor(olga), webhook=webhook)
    assert outbox.send_due() == 2


@pytest.mark.parametrize(
    ("busy_for", "sent"), [(0, 1), (20, 0), (3600, 1)]
)  # s; the last: written by a clock that was ahead
def test_busy_lane_blocks_sending_no_longer_than_its_lease(
    receivers: list[Receiver], olga: User, vision: Department, busy_for: int, sent: int
) -> None:
    hook(olga, vision, receivers[0])
    send_notice(vision)
    SendingLane.objects.create(lane="127.0.0.1", busy_until=timezone.now() + dt.timedelta(seconds=busy_for))
    assert outbox.send_due() == sent

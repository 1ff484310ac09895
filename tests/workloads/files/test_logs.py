"""Logs, from the cluster and from storage: every byte once, and bytes that are not kept are reported."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.clients import person
from tests.workloads.conftest import Bed
from workloads.files.logs import PART, keep_logs, read_log
from workloads.models import Attempt, AttemptLog, Workload
from workloads.runtime.base import LogChunk, RunRef, last_lines

pytestmark = pytest.mark.django_db(transaction=True)


class OneLog:
    """A driver that has one log."""

    def __init__(self, log: bytes) -> None:
        self.log = log

    def logs(self, ref: Any, *, tail: int, rank: int, limit: int) -> LogChunk:
        data = last_lines(self.log[-limit:], tail)
        return LogChunk(data, len(self.log) - len(data), end=True)


def lines(seed: int, size: int) -> bytes:
    """Lines of every length, with bytes that are not valid UTF-8."""
    chance, text = random.Random(seed), b""
    while len(text) < size:
        text += chance.randbytes(chance.choice((0, 3, 80, 5000, 300_000))).replace(b"\n", b"\r") + b"\n"
    return text[:size]


def attempt_with(bed: Bed, log: bytes) -> Attempt:
    attempt = bed.submit(bed.alice, bed.vision, "pass").attempts.select_related("workload", "cluster").get()
    keep_logs(attempt, OneLog(log), RunRef("x", "", ""))  # type: ignore[arg-type]
    return attempt


@pytest.mark.parametrize("seed", range(4))
def test_log_read_in_parts_of_any_size_has_every_byte_once(bed: Bed, seed: int) -> None:
    chance, log = random.Random(seed), lines(seed, 3 * PART + 777)
    attempt, got, offset = attempt_with(bed, log), b"", 0
    while True:
        chunk = read_log(attempt, offset=offset, limit=chance.choice((1, 1000, PART - 1, PART, PART + 1, 5 * PART)))
        assert (chunk.offset, chunk.first) == (offset, 0)
        got, offset = got + chunk.data, offset + len(chunk.data)
        if chunk.end:
            break
        assert chunk.data
    assert got == log
    assert read_log(attempt, offset=len(log) + 5) == LogChunk(b"", len(log) + 5, end=True)


def test_tail_of_a_stored_log_is_its_end_for_lines_of_any_length(bed: Bed) -> None:
    log = b"early\n" * 1000 + b"\n".join(b"%d" % n * 100_000 for n in range(30)) + b"\nlast\n"
    attempt = attempt_with(bed, log)
    assert len(log) > 4 * PART
    for count, limit in ((1, 100), (2, 1000), (31, PART), (32, 16 * PART), (10**6, PART), (10**6, 64 * PART), (0, 100)):
        chunk = read_log(attempt, tail=count, limit=limit)
        wanted = last_lines(log[-limit:], count)
        assert (chunk.data, chunk.offset, chunk.end) == (wanted, len(log) - len(wanted), True), (count, limit)


def test_log_stored_by_an_older_portal_can_still_be_read(bed: Bed) -> None:
    attempt = bed.submit(bed.alice, bed.vision, "pass").attempts.select_related("workload", "cluster").get()
    AttemptLog.objects.create(attempt=attempt, rank=0, start=100, data=zlib.compress(b"a\nb\nc\n"))
    assert read_log(attempt) == LogChunk(b"a\nb\nc\n", 100, end=True, first=100)
    assert read_log(attempt, offset=102, limit=2) == LogChunk(b"b\n", 102, end=False, first=100)
    assert read_log(attempt, tail=2) == LogChunk(b"b\nc\n", 102, end=True, first=100)


def test_limit_of_64_mib_is_shared_by_the_ranks_of_a_run(settings: Any) -> None:
    from workloads.files.logs import bytes_kept

    assert bytes_kept(1) == settings.LOG_KEPT == 64 << 20
    assert bytes_kept(4) == 16 << 20
    assert bytes_kept(512) == 1 << 20


CHATTERS = "import sys\nfor n in range({count}): print(f'{{n:07}}' + 'x' * 92)\nprint('the end')"


@pytest.fixture
def chatty(bed: Bed) -> Workload:
    """A job with 2.5 MB of lines of 100 bytes that has ended and was removed from the cluster."""
    job = bed.submit(bed.alice, bed.vision, CHATTERS.format(count=25_000))
    bed.until(lambda: bed.state(job) == "succeeded" and job.attempts.get().removed_at is not None)
    return job


def body(answer: Any) -> bytes:
    assert answer.status_code == 200
    return b"".join(answer.streaming_content) if answer.streaming else answer.content


def test_api_returns_the_whole_log_unless_a_part_is_requested(bed: Bed, chatty: Workload) -> None:
    client, address = person(bed.alice), f"/api/v1/workloads/{chatty.public_id}/logs/"
    log = body(client.get(address))
    assert log == b"".join(b"%07d%s\n" % (n, b"x" * 92) for n in range(25_000)) + b"the end\n"
    assert body(client.get(f"{address}?tail=20000")) == b"".join(log.splitlines(keepends=True)[-20_000:])
    got, offset, end = b"", 0, "0"
    while end == "0":
        answer = client.get(f"{address}?offset={offset}")
        assert (answer["X-Log-Start"], len(answer.content) <= 1 << 20) == (str(offset), True)
        got, offset, end = got + answer.content, int(answer["X-Log-Offset"]), answer["X-Log-End"]
    assert got == log
    assert "X-Log-Lost" not in answer
    whole = as_browser(bed).get(page(chatty) + "?download=1")
    assert body(whole) == log


def as_browser(bed: Bed) -> Client:
    client = Client()
    client.force_login(bed.alice)
    return client


def page(job: Workload) -> str:
    return reverse("workloads:log", args=["vision", job.public_id])


def test_log_panel_shows_the_end_first_and_loads_earlier_whole_lines(bed: Bed, chatty: Workload) -> None:
    client = as_browser(bed)
    whole = body(client.get(page(chatty) + "?download=1"))
    answer = client.get(page(chatty))
    got, start = answer.content, int(answer["X-Log-Start"])
    assert (answer["X-Log-End"], int(answer["X-Log-Offset"])) == ("1", len(whole))
    assert got.endswith(b"the end\n")
    while start:
        answer = client.get(f"{page(chatty)}?before={start}")
        assert int(answer["X-Log-Offset"]) == start
        assert whole[: int(answer["X-Log-Start"])][-1:] in (b"", b"\n")
        got, start = answer.content + got, int(answer["X-Log-Start"])
    assert got == whole


def test_bytes_that_are_not_kept_are_reported(bed: Bed, settings: Any) -> None:
    settings.LOG_KEPT = 1 << 20
    job = bed.submit(bed.alice, bed.vision, CHATTERS.format(count=30_000))
    bed.until(lambda: bed.state(job) == "succeeded" and job.attempts.get().removed_at is not None)
    lost = 3_000_008 - (1 << 20)
    answer = person(bed.alice).get(f"/api/v1/workloads/{job.public_id}/logs/")
    assert (answer["X-Log-Lost"], answer["X-Log-Start"]) == (str(lost), str(lost))
    assert len(body(answer)) == 1 << 20
    assert as_browser(bed).get(page(job))["X-Log-Lost"] == str(lost)
    download = body(as_browser(bed).get(page(job) + "?download=1"))
    assert download.startswith(f"[The first {lost} bytes of this log are not kept.]\n".encode())
    assert download.endswith(b"the end\n")


def test_log_of_a_run_removed_meanwhile_is_read_from_storage(
    bed: Bed, chatty: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is stored and its run removed between the search for a stored log and the request to the cluster."""
    attempt = chatty.attempts.select_related("workload", "cluster").get()
    rows = AttemptLog.objects.filter(attempt=attempt)
    hidden = list(rows.values_list("pk", "rank"))
    assert hidden
    rows.update(rank=99)

    class Forgets:
        def logs(self, *_: Any, **__: Any) -> LogChunk:
            from workloads.runtime.base import NoSuchRun

            AttemptLog.objects.filter(attempt=attempt).update(rank=0)
            raise NoSuchRun("gone")

    monkeypatch.setattr("workloads.files.logs.driver_for", lambda cluster: Forgets())
    assert read_log(attempt, offset=100, limit=7).data == b"0000001"

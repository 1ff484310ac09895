"""What a notebook's server says of people at work, and servers that say nothing of use."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.portal.notify.receiver import listening
from tests.workloads.measurement.bed import serving
from workloads.idle.rule import Activity
from workloads.notebooks import activity
from workloads.notebooks.activity import NotSaid, Server, read
from workloads.runtime.base import RunRef

NOON = dt.datetime(2026, 11, 2, 12, tzinfo=dt.UTC)


def kernel(state: str = "idle", at: str = "2026-11-02T12:00:00.123456Z") -> dict[str, Any]:
    """As `GET api/kernels` of Jupyter Server 2.14 has it."""
    return {"id": "1c7f", "name": "python3", "last_activity": at, "execution_state": state, "connections": 1}


def terminal(at: str = "2026-11-02T11:00:00Z") -> dict[str, Any]:
    return {"name": "1", "last_activity": at}


def test_a_kernel_that_computes_is_busy_and_the_last_message_counts() -> None:
    found = read([kernel(), kernel(at="2026-11-02T10:00:00Z")], [terminal("2026-11-02T12:30:00Z")])
    assert found == Activity(False, NOON + dt.timedelta(minutes=30))
    assert read([kernel(), kernel("busy")], []).busy
    assert read([], []) == Activity(False, None)


@pytest.mark.parametrize("row", [{},
                                 {"last_activity": "soon", "execution_state": "idle"}, {"last_activity": "2026-11-02T12:00:00Z"},
                                 {"last_activity": "2026-13-40T12:00:00Z", "execution_state": "idle"},
                                 {"last_activity": "2026-11-02T12:00:00", "execution_state": "idle"}])  # fmt: skip
def test_what_is_not_as_jupyter_has_it_is_not_known(row: dict[str, Any]) -> None:
    with pytest.raises(NotSaid):
        read([row], [])


class At:
    """A driver that knows where the server is."""

    def __init__(self, url: str) -> None:
        self.url = url

    def endpoint(self, _ref: RunRef) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 80)


def ask(url: str) -> Activity | None:
    driver: Any = At(url)
    return activity._ask(Server(1, driver, RunRef("w-1", "gqp", "1"), "/notebooks/x/", "secret"))


def test_it_is_asked_with_its_secret_and_without_leaving_a_trace_of_activity() -> None:
    seen: list[tuple[str, str]] = []

    def answer(path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        seen.append((path, headers["Authorization"]))
        rows = [kernel()] if "kernels" in path else []
        return (200 if "kernels" in path else 404), {}, json.dumps(rows).encode()

    with serving(answer) as url:
        assert ask(url) == Activity(False, NOON + dt.timedelta(microseconds=123456))
    paths = ["/notebooks/x/api/kernels?no_track_activity=1", "/notebooks/x/api/terminals?no_track_activity=1"]
    assert seen == [(path, "token secret") for path in paths]


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"<html>"), (200, b"{}"), (200, b"[1]"), (403, b"[]"), (302, b"[]"), (500, b""), (200, b"[" + b" " * 2**21 + b"]")],
)  # fmt: skip
def test_a_server_that_says_anything_else_is_not_known(status: int, body: bytes) -> None:
    with serving(lambda _path, _headers: (status, {"Location": "http://127.0.0.1:1/"}, body)) as url:
        assert ask(url) is None


def test_an_answer_is_not_unpacked() -> None:
    body = gzip.compress(gzip.compress(json.dumps([kernel()]).encode() + b" " * (200 << 20)))
    tracemalloc.start()
    with serving(lambda _path, _headers: (200, {"Content-Encoding": "gzip, gzip"}, body)) as url:
        assert ask(url) is None
    _now, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 << 20


def test_a_head_that_comes_a_byte_at_a_time_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "DEADLINE", 1.0)
    with listening() as receiver:
        receiver.manner = "head"
        begun = time.monotonic()
        assert ask(receiver.rule) is None
        assert time.monotonic() - begun < 30, "it would drip for ever"


def test_a_server_that_is_away_is_not_known(tmp_path: Path) -> None:
    assert ask("http://127.0.0.1:9") is None

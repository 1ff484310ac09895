"""User activity as a notebook's server reports it, and servers whose reply is unusable."""

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
from workloads.notebooks.activity import Server, UnknownActivity, read
from workloads.runtime.base import RunRef

NOON = dt.datetime(2026, 11, 2, 12, tzinfo=dt.UTC)


def kernel(state: str = "idle", at: str = "2026-11-02T12:00:00.123456Z") -> dict[str, Any]:
    """An entry of `GET api/kernels` of Jupyter Server 2.14."""
    return {"id": "1c7f", "name": "python3", "last_activity": at, "execution_state": state, "connections": 1}


def terminal(at: str = "2026-11-02T11:00:00Z") -> dict[str, Any]:
    return {"name": "1", "last_activity": at}


def test_busy_kernel_makes_the_notebook_busy_and_the_latest_activity_counts() -> None:
    found = read([kernel(), kernel(at="2026-11-02T10:00:00Z")], [terminal("2026-11-02T12:30:00Z")])
    assert found == Activity(False, NOON + dt.timedelta(minutes=30))
    assert read([kernel(), kernel("busy")], []).busy
    assert read([], []) == Activity(False, None)


@pytest.mark.parametrize("row", [{},
                                 {"last_activity": "soon", "execution_state": "idle"}, {"last_activity": "2026-11-02T12:00:00Z"},
                                 {"last_activity": "2026-13-40T12:00:00Z", "execution_state": "idle"},
                                 {"last_activity": "2026-11-02T12:00:00", "execution_state": "idle"}])  # fmt: skip
def test_unrecognised_kernel_entry_counts_as_unknown(row: dict[str, Any]) -> None:
    with pytest.raises(UnknownActivity):
        read([row], [])


class FixedEndpoint:
    """A driver that returns the server's address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def endpoint(self, _ref: RunRef) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 80)


def ask_activity(url: str) -> Activity | None:
    driver: Any = FixedEndpoint(url)
    return activity._ask(Server(1, driver, RunRef("w-1", "gqp", "1"), "/notebooks/x/", "secret"))


def test_queries_send_the_token_and_are_not_tracked_as_activity() -> None:
    requests: list[tuple[str, str]] = []

    def answer(path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        requests.append((path, headers["Authorization"]))
        rows = [kernel()] if "kernels" in path else []
        return (200 if "kernels" in path else 404), {}, json.dumps(rows).encode()

    with serving(answer) as url:
        assert ask_activity(url) == Activity(False, NOON + dt.timedelta(microseconds=123456))
    paths = ["/notebooks/x/api/kernels?no_track_activity=1", "/notebooks/x/api/terminals?no_track_activity=1"]
    assert requests == [(path, "token secret") for path in paths]


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"<html>"), (200, b"{}"), (200, b"[1]"), (403, b"[]"), (302, b"[]"), (500, b""), (200, b"[" + b" " * 2**21 + b"]")],
)  # fmt: skip
def test_unrecognised_server_reply_counts_as_unknown(status: int, body: bytes) -> None:
    with serving(lambda _path, _headers: (status, {"Location": "http://127.0.0.1:1/"}, body)) as url:
        assert ask_activity(url) is None


def test_compressed_reply_is_not_decompressed() -> None:
    body = gzip.compress(gzip.compress(json.dumps([kernel()]).encode() + b" " * (200 << 20)))
    tracemalloc.start()
    with serving(lambda _path, _headers: (200, {"Content-Encoding": "gzip, gzip"}, body)) as url:
        assert ask_activity(url) is None
    _now, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 << 20


def test_slowly_dripping_response_header_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "DEADLINE", 1.0)
    with listening() as receiver:
        receiver.manner = "head"
        begun = time.monotonic()
        assert ask_activity(receiver.rule) is None
        assert time.monotonic() - begun < 30, "it would drip forever"


def test_unreachable_server_counts_as_unknown(tmp_path: Path) -> None:
    assert ask_activity("http://127.0.0.1:9") is None

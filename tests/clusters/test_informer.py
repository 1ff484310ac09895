"""The reflector with an API server that misbehaves as real ones do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from workloads.kubernetes import informer
from workloads.kubernetes.informer import Reflector
from workloads.runtime.base import Unreachable


def item(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"uid": name, "resourceVersion": version}}


class Script:
    """Scripted responses of `list` and `watch`, in order; sets `stop` after the last one."""

    def __init__(self, stop: threading.Event, lists: list[Any], watches: list[Any]) -> None:
        self.stop, self.lists, self.watches = stop, lists, watches
        self.requests: list[str] = []

    def list(self, path: str, **query: Any) -> Any:
        self.requests.append("list")
        return self._next(self.lists)

    def watch(self, path: str, version: str, seconds: int, **query: Any) -> Iterator[dict[str, Any]]:
        self.requests.append(f"watch {version}")
        yield from self._next(self.watches)
        if not self.watches:
            self.stop.set()

    def _next(self, script: list[Any]) -> Any:
        response = script.pop(0)
        if isinstance(response, Exception):
            raise response
        return response


def follow(monkeypatch: pytest.MonkeyPatch, lists: list[Any], watches: list[Any]) -> tuple[list[str], list[str]]:
    """The reported changes (uid@version), and the requests made."""
    monkeypatch.setattr(informer, "LONGEST_PAUSE", 0.01)
    stop = threading.Event()
    script, reported = Script(stop, lists, watches), []

    def read(document: dict[str, Any]) -> str:
        return f"{document['metadata']['uid']}@{document['metadata']['resourceVersion']}"

    def report(document: str, gone: bool) -> None:
        reported.append(f"{document} gone" if gone else document)

    Reflector(script, "/api/v1/pods", "", read, report, stop).run()  # type: ignore[arg-type]
    return reported, script.requests


def event(kind: str, name: str, version: str) -> dict[str, Any]:
    return {"type": kind, "object": item(name, version)}


EXPIRED = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}


def test_watch_starts_at_the_version_of_the_list_and_continues_where_the_last_one_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    reported, requests = follow(
        monkeypatch, [([item("a", "1")], "5")], [[event("MODIFIED", "a", "6"), bookmark], [event("DELETED", "a", "10")]]
    )
    assert reported == ["a@1", "a@6", "a@10 gone"]
    assert requests == ["list", "watch 5", "watch 9"]


def test_expired_version_causes_a_new_list_and_only_differences_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ([item("same", "1"), item("changed", "2"), item("gone", "3")], "5")
    second = ([item("same", "1"), item("changed", "7"), item("new", "8")], "20")
    reported, requests = follow(monkeypatch, [first, second], [[EXPIRED], [event("ADDED", "later", "21")]])
    assert reported == ["same@1", "changed@2", "gone@3", "gone@3 gone", "changed@7", "new@8", "later@21"]
    assert requests == ["list", "watch 5", "list", "watch 20"]


def test_broken_watch_is_resumed_without_a_new_list(monkeypatch: pytest.MonkeyPatch) -> None:
    reported, requests = follow(monkeypatch, [([], "5")], [Unreachable("cut"), [event("ADDED", "a", "6")]])
    assert (reported, requests) == (["a@6"], ["list", "watch 5", "watch 5"])


def test_unreachable_cluster_is_retried_until_it_responds(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [Unreachable("no response"), Unreachable("still no response"), ([item("a", "1")], "5")]
    reported, requests = follow(monkeypatch, lists, [[event("MODIFIED", "a", "6")]])
    assert reported == ["a@1", "a@6"]
    assert requests == ["list", "list", "list", "watch 5"]

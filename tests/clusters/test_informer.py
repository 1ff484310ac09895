"""The reflector against an API server that misbehaves as real ones do."""

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
    """Answers of `list` and `watch`, one after the other; sets `stop` when it is at its end."""

    def __init__(self, stop: threading.Event, lists: list[Any], watches: list[Any]) -> None:
        self.stop, self.lists, self.watches = stop, lists, watches
        self.asked: list[str] = []

    def list(self, path: str, **query: Any) -> Any:
        self.asked.append("list")
        return self._next(self.lists)

    def watch(self, path: str, version: str, seconds: int, **query: Any) -> Iterator[dict[str, Any]]:
        self.asked.append(f"watch {version}")
        yield from self._next(self.watches)
        if not self.watches:
            self.stop.set()

    def _next(self, script: list[Any]) -> Any:
        answer = script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def follow(monkeypatch: pytest.MonkeyPatch, lists: list[Any], watches: list[Any]) -> tuple[list[str], list[str]]:
    """What was told (uid@version), and what was asked."""
    monkeypatch.setattr(informer, "LONGEST_PAUSE", 0.01)
    stop = threading.Event()
    script, told = Script(stop, lists, watches), []

    def read(seen: dict[str, Any]) -> str:
        return f"{seen['metadata']['uid']}@{seen['metadata']['resourceVersion']}"

    def tell(seen: str, gone: bool) -> None:
        told.append(f"{seen} gone" if gone else seen)

    Reflector(script, "/api/v1/pods", "", read, tell, stop).run()  # type: ignore[arg-type]
    return told, script.asked


def event(kind: str, name: str, version: str) -> dict[str, Any]:
    return {"type": kind, "object": item(name, version)}


EXPIRED = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}


def test_a_watch_begins_at_the_lists_version_and_goes_on_where_the_last_one_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    told, asked = follow(
        monkeypatch, [([item("a", "1")], "5")], [[event("MODIFIED", "a", "6"), bookmark], [event("DELETED", "a", "10")]]
    )
    assert told == ["a@1", "a@6", "a@10 gone"]
    assert asked == ["list", "watch 5", "watch 9"]


def test_a_version_that_expired_lists_again_and_tells_only_the_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ([item("same", "1"), item("changed", "2"), item("gone", "3")], "5")
    second = ([item("same", "1"), item("changed", "7"), item("new", "8")], "20")
    told, asked = follow(monkeypatch, [first, second], [[EXPIRED], [event("ADDED", "later", "21")]])
    assert told == ["same@1", "changed@2", "gone@3", "gone@3 gone", "changed@7", "new@8", "later@21"]
    assert asked == ["list", "watch 5", "list", "watch 20"]


def test_a_broken_stream_is_taken_up_again_without_a_new_list(monkeypatch: pytest.MonkeyPatch) -> None:
    told, asked = follow(monkeypatch, [([], "5")], [Unreachable("cut"), [event("ADDED", "a", "6")]])
    assert (told, asked) == (["a@6"], ["list", "watch 5", "watch 5"])


def test_a_cluster_that_is_away_is_asked_again_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [Unreachable("away"), Unreachable("still away"), ([item("a", "1")], "5")]
    told, asked = follow(monkeypatch, lists, [[event("MODIFIED", "a", "6")]])
    assert told == ["a@1", "a@6"]
    assert asked == ["list", "list", "list", "watch 5"]

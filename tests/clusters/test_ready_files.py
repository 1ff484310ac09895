"""Who is asked for the file that says "ready", and what a container that does not answer may cost."""

from __future__ import annotations

import time
from typing import Any

import pytest

from workloads.kubernetes import ready_files
from workloads.kubernetes.manifests import KIND, RECLAIM_AT, SUBMISSION, Options
from workloads.runtime.base import Unreachable


def pod(name: str, kind: str = "service", notice: str = "2031-01-01T00:00:00Z", **meta: Any) -> dict[str, Any]:
    marks = {"labels": {KIND: kind}, "annotations": {SUBMISSION: name, RECLAIM_AT: notice}}
    status = {"containerStatuses": [{"state": {"running": {}}}]}
    return {"metadata": {"name": name, "namespace": "vision"} | marks | meta, "status": status}


class Answers:
    """In place of a container: what its name says."""

    asked: list[str]

    def __init__(self, api: Any, path: str, container: str, command: Any, timeout: float) -> None:
        self.name, self.timeout = path.rpartition("/")[2], timeout
        self.asked.append(self.name)
        if self.name == "unreachable":
            raise Unreachable("no route")

    def output(self) -> Any:
        if self.name == "hangs":
            time.sleep(self.timeout)
        if self.name != "ready":
            raise Unreachable("exit code 1")
        return iter(())

    def close(self) -> None: ...


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    Answers.asked = []
    monkeypatch.setattr(ready_files, "Exec", Answers)
    return Answers.asked


def said(*pods: dict[str, Any], options: Options | None = None) -> frozenset[str]:
    return ready_files.said_ready(None, pods, options or Options())  # type: ignore[arg-type]


def test_only_a_service_that_runs_and_has_notice_is_asked(asked: list[str]) -> None:
    ended = pod("ended") | {"status": {"containerStatuses": [{"state": {"terminated": {}}}]}}
    leaving = pod("leaving", deletionTimestamp="2031-01-01T00:00:00Z")
    others = (pod("a-job", kind="job"), pod("without-notice", notice=""), ended, leaving, pod("new") | {"status": {}})
    assert said(pod("ready"), *others) == {"ready"}
    assert asked == ["ready"]
    assert said(pod("ready"), options=Options(ready_probe_seconds=0)) == frozenset()
    assert asked == ["ready"]


def test_what_does_not_answer_has_said_nothing_and_holds_nobody_up(asked: list[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(ready_files, "WITHIN", 0.5)
    begun = time.monotonic()
    assert said(pod("hangs"), pod("unreachable"), pod("not-yet"), pod("ready")) == {"ready"}
    assert time.monotonic() - begun < 5
    assert sorted(asked) == ["hangs", "not-yet", "ready", "unreachable"]

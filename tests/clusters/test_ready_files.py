"""Which containers are checked for the ready file, and that unresponsive ones do not delay the others."""

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


class FakeExec:
    """Replaces the command in a container; the pod's name determines the result."""

    checked: list[str]

    def __init__(self, api: Any, path: str, container: str, command: Any, timeout: float) -> None:
        self.name, self.timeout = path.rpartition("/")[2], timeout
        self.checked.append(self.name)
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
def checked_pods(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    FakeExec.checked = []
    monkeypatch.setattr(ready_files, "Exec", FakeExec)
    return FakeExec.checked


def ready_pods(*pods: dict[str, Any], options: Options | None = None) -> frozenset[str]:
    return ready_files.reported_ready(None, pods, options or Options())  # type: ignore[arg-type]


def test_only_running_services_under_notice_are_checked(checked_pods: list[str]) -> None:
    ended = pod("ended") | {"status": {"containerStatuses": [{"state": {"terminated": {}}}]}}
    leaving = pod("leaving", deletionTimestamp="2031-01-01T00:00:00Z")
    others = (pod("a-job", kind="job"), pod("without-notice", notice=""), ended, leaving, pod("new") | {"status": {}})
    assert ready_pods(pod("ready"), *others) == {"ready"}
    assert checked_pods == ["ready"]
    assert ready_pods(pod("ready"), options=Options(ready_probe_seconds=0)) == frozenset()
    assert checked_pods == ["ready"]


def test_unresponsive_containers_count_as_not_ready_and_delay_no_others(
    checked_pods: list[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(ready_files, "WITHIN", 0.5)
    started = time.monotonic()
    assert ready_pods(pod("hangs"), pod("unreachable"), pod("not-yet"), pod("ready")) == {"ready"}
    assert time.monotonic() - started < 5
    assert sorted(checked_pods) == ["hangs", "not-yet", "ready", "unreachable"]

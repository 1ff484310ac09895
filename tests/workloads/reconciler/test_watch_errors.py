"""No error ends a thread of the watcher, and none keeps a database connection while it waits."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection

from quotas.models import Cluster
from tests import builders as make
from workloads.clusters import drivers
from workloads.reconciler import watch
from workloads.runtime.base import Look
from workloads.runtime.errors import Unreachable

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]
ERRORS = [
    Unreachable("no response"),
    OperationalError("gone"),
    InterfaceError("connection already closed"),
    KeyError("metadata"),
]


class FailingDriver:
    """Its watch fails with each of the errors in turn, then reports a change and continues."""

    def __init__(self) -> None:
        self.errors = list(ERRORS)
        self.watching, self.connected = threading.Event(), list[bool]()

    def watch(self, on_change: Any, over: threading.Event) -> None:
        self.connected.append(connection.connection is not None)
        if self.errors:
            raise self.errors.pop(0)
        on_change(Look.NODES)
        self.watching.set()
        over.wait(60)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, FailingDriver, threading.Event]]:
    driver, closing, row = FailingDriver(), threading.Event(), make.cluster("here")

    def reading_driver(cluster: Cluster) -> Any:
        Cluster.objects.count()  # as when a driver is created again after a change of its cluster
        return drivers.Lending(driver)  # type: ignore[arg-type]

    monkeypatch.setattr(watch, "driver_for", reading_driver)
    monkeypatch.setattr(watch.random, "uniform", lambda low, high: 0.01)
    yield row, driver, closing
    closing.set()


def test_watch_starts_again_after_every_kind_of_error(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row, driver, closing = cluster
    hints, hint_given = Counter[str](), threading.Event()

    def wake(name: str, **_: object) -> None:
        hints[name] += 1
        if hints[name] == 1:
            raise KeyError(name)
        hint_given.set()

    monkeypatch.setattr(watch, "wake", wake)
    thread = watch.ClusterWatch(row, closing)
    thread.start()
    assert driver.watching.wait(60), driver.errors
    assert driver.connected == [False] * (len(ERRORS) + 1)
    end = time.monotonic() + 60
    while not hint_given.wait(0.1):  # changes while a hint is given are part of it
        assert time.monotonic() < end, "the thread that gives hints ended with its first error"
        thread._on_change(Look.RUNS)
    assert thread.is_alive()
    closing.set()
    thread.join(30)


def test_only_the_listing_that_changed_is_requested(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """First both listings, since changes may have been missed; then, for example, a change of nodes causes no listing of runs."""
    row, driver, closing = cluster
    driver.errors.clear()
    hints: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(watch, "wake", lambda name, **_: hints.put(name))
    thread = watch.ClusterWatch(row, closing)
    thread.start()
    assert {hints.get(timeout=60), hints.get(timeout=60)} == set(Look)
    assert driver.watching.wait(60)
    for look in (*Look, Look.RUNS, Look.NODES, Look.RUNS):
        while not hints.empty():  # hints of the watch, which reported a change meanwhile
            hints.get()
        thread._on_change(look)
        while (hint := hints.get(timeout=60)) != look:
            assert hint is Look.NODES, "no change of a run was reported"
    closing.set()
    thread.join(30)

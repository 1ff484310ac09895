"""No thread of the watcher ends because something went wrong, and none keeps a connection while it waits."""

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
    Unreachable("away"),
    OperationalError("gone"),
    InterfaceError("connection already closed"),
    KeyError("metadata"),
]


class Moody:
    """Its watch fails in each of the ways in turn, then tells of a change and goes on."""

    def __init__(self) -> None:
        self.errors = list(ERRORS)
        self.watching, self.connected = threading.Event(), list[bool]()

    def watch(self, tell: Any, over: threading.Event) -> None:
        self.connected.append(connection.connection is not None)
        if self.errors:
            raise self.errors.pop(0)
        tell(Look.NODES)
        self.watching.set()
        over.wait(60)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Moody, threading.Event]]:
    driver, closing, row = Moody(), threading.Event(), make.cluster("here")

    def reading_driver(cluster: Cluster) -> Any:
        Cluster.objects.count()  # as a driver of which something was changed is made anew
        return drivers.Lending(driver)  # type: ignore[arg-type]

    monkeypatch.setattr(watch, "driver_for", reading_driver)
    monkeypatch.setattr(watch.random, "uniform", lambda low, high: 0.01)
    yield row, driver, closing
    closing.set()


def test_whatever_goes_wrong_the_next_watch_begins(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row, driver, closing = cluster
    hints, told = Counter[str](), threading.Event()

    def wake(name: str, **_: object) -> None:
        hints[name] += 1
        if hints[name] == 1:
            raise KeyError(name)
        told.set()

    monkeypatch.setattr(watch, "wake", wake)
    thread = watch.ClusterWatch(row, closing)
    thread.start()
    assert driver.watching.wait(60), driver.errors
    assert driver.connected == [False] * (len(ERRORS) + 1)
    end = time.monotonic() + 60
    while not told.wait(0.1):  # what moves while a hint is given is part of it
        assert time.monotonic() < end, "the thread that gives hints ended with its first error"
        thread._on_change(Look.RUNS)
    assert thread.is_alive()
    closing.set()
    thread.join(30)


def test_only_the_listing_that_is_due_is_asked_for(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At first both, since nobody knows what was missed; then what others run on a node, say, leads to no listing of the runs."""
    row, driver, closing = cluster
    driver.errors.clear()
    hints: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(watch, "wake", lambda name, **_: hints.put(name))
    thread = watch.ClusterWatch(row, closing)
    thread.start()
    assert {hints.get(timeout=60), hints.get(timeout=60)} == set(Look)
    assert driver.watching.wait(60)
    for look in (*Look, Look.RUNS, Look.NODES, Look.RUNS):
        while not hints.empty():  # of the watch that told of a change meanwhile
            hints.get()
        thread._on_change(look)
        while (told := hints.get(timeout=60)) != look:
            assert told is Look.NODES, "nobody told of a run"
    closing.set()
    thread.join(30)

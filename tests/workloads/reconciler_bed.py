"""Test bed of the reconciler: a cluster in memory that records its calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.utils import timezone

from portal.access import Actor
from portal.background import hint_queue
from quotas.models import Pool
from quotas.planning.run_pass import run_pass
from tests import builders as make
from tests.clusters.fakes import InMemoryCluster, Life
from workloads import actions
from workloads.clusters.drivers import Lending
from workloads.models import Image, Workload
from workloads.reconciler.next_steps import Seen
from workloads.reconciler.planner import Planner
from workloads.reconciler.reconcile import note_running, sort_work, start
from workloads.reconciler.workers import Workers
from workloads.requests.request import WorkloadRequest
from workloads.runtime.base import Observed, Phase, Refused, RunSpec, Unreachable


class Watched(InMemoryCluster):
    """Records the specs it gets. Refuses runs with "refused" in the command, and is unreachable for those with "away"."""

    def __init__(self) -> None:
        super().__init__("memory", (), lambda spec: Life())
        self.specs: list[RunSpec] = []
        self.answers = False  # whether it is reachable also for "away"

    def ensure(self, spec: RunSpec) -> None:
        self.specs.append(spec)
        if "refused" in spec.command:
            raise Refused("no", code="refused")
        if "away" in spec.command and not self.answers:
            raise Unreachable("away")
        super().ensure(spec)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched()
    monkeypatch.setattr("workloads.reconciler.reconcile.driver_for", lambda row: Lending(watched))
    return watched


@pytest.fixture
def pool(db: None) -> Pool:
    Image.objects.create(name="python:3.11", title="Python")
    return make.pool("a100", cards=8, notice=0, grace=0)


@pytest.fixture
def alice(pool: Pool) -> Actor:
    vision = make.department("vision")
    make.quota(vision, pool, 8)
    return Actor(make.member(vision))


def submit(alice: Actor, pool: Pool, command: str = "train") -> Workload:
    assert alice.user is not None
    request = WorkloadRequest(kind="job", name=command, pool=pool, image=Image.objects.get(), command=(command,))
    return actions.submit(actor=alice, department=alice.user.memberships.get().department, request=request)


def admitted(pool: Pool) -> list[str]:
    with hint_queue.collected() as hints:
        run_pass(group_id=pool.group_id)
    return [str(ids["claim"]) for _name, ids in hints if "claim" in ids]


@pytest.fixture
def creators() -> Any:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def running(spec: RunSpec) -> Observed:
    return Observed(spec.ref, spec.workload_id, 1, Phase.RUNNING, node="a100-n1", cards=(1,))


def start_all(claims: Collection[str], creators: ThreadPoolExecutor) -> dict[str, bool]:
    """Starts admitted claims as a worker does; returns those that could not be started."""
    work = sort_work(claims)
    return dict.fromkeys(work.alone, True) | start(work.admitted, creators)


def tell(*runs: Observed) -> list[str]:
    """Handles observed runs as a worker does; returns the claims that have to be reconciled one by one."""
    work = sort_work(sightings={run.ref.submission_id: Seen(timezone.now(), run) for run in runs})
    note_running(work.running)
    return list(work.alone.values())


@contextlib.contextmanager
def at_work() -> Iterator[Workers]:
    """Runs a planner and workers, as `manage.py watch` does."""
    closing, workers = threading.Event(), Workers()
    hint_queue.take(0.1)  # announces that hints are taken
    planner = Planner(closing, workers)
    workers.start()
    planner.start()
    try:
        yield workers
    finally:
        closing.set()
        planner.join(5)
        workers.stop()


def state(workload: Workload) -> str:
    return Workload.objects.get(pk=workload.pk).state


def eventually(fact: Any, seconds: float = 20) -> None:
    end = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if fact():
            return
        end.wait(0.05)
    pytest.fail("it did not happen")

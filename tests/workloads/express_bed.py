"""A bed for tests of what makes the portal quick: a cluster in memory that remembers what it was asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from portal.access import Actor
from portal.background import hint_queue
from quotas.models import Cluster, Pool
from quotas.planning.run_pass import run_pass
from tests import builders as make
from tests.clusters.fakes import InMemoryCluster, Life
from workloads import actions
from workloads.clusters.drivers import Lending
from workloads.models import Image, Workload
from workloads.reconciler import sightings, starting
from workloads.requests.request import WorkloadRequest
from workloads.runtime.base import Observed, Phase, Refused, RunSpec, Unreachable


class Watched(InMemoryCluster):
    """Remembers what it was asked for, and refuses or is away for those named so."""

    def __init__(self) -> None:
        super().__init__("memory", (), lambda spec: Life())
        self.specs: list[RunSpec] = []

    def ensure(self, spec: RunSpec) -> None:
        self.specs.append(spec)
        if "refused" in spec.command:
            raise Refused("no", code="refused")
        if "away" in spec.command:
            raise Unreachable("away")
        super().ensure(spec)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Watched:
    made = Watched()
    for module in (starting, sightings):
        monkeypatch.setattr(module, "driver_for", lambda row: Lending(made))
    monkeypatch.setattr("workloads.reconciler.reconcile.driver_for", lambda row: Lending(made))
    return made


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
    with hint_queue.kept() as hints:
        run_pass(group_id=pool.group_id)
    return [str(ids["claim"]) for _name, ids in hints if "claim" in ids]


@pytest.fixture
def creators() -> Any:
    with ThreadPoolExecutor(4) as made:
        yield made


def running(pool: Pool, spec: RunSpec) -> tuple[Cluster, Observed]:
    return pool.group.cluster, Observed(spec.ref, spec.workload_id, 1, Phase.RUNNING, node="a100-n1", cards=(1,))


def at_once(key: object, act: Callable[[], object]) -> None:
    act()


def state(workload: Workload) -> str:
    return Workload.objects.get(pk=workload.pk).state


def eventually(fact: Any, seconds: float = 20) -> None:
    end = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if fact():
            return
        end.wait(0.05)
    pytest.fail("it did not happen")

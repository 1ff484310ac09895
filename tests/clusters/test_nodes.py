"""Nodes come, go, are cordoned, fall silent and lose devices: what the pools and the work on them make of it."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from portal.crypt import encrypt
from quotas.models import Card, Claim, ClaimState, Cluster, ClusterKind, Pool
from tests import builders as make
from tests.clusters import realcluster
from tests.clusters.realcluster import Admin
from tests.workloads.conftest import Bed
from workloads import inventory
from workloads.clusters.base import Observed
from workloads.clusters.kubernetes import KubernetesCluster
from workloads.drivers import driver_for
from workloads.models import Attempt, Image, Workload

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
MERGE = "application/merge-patch+json"


@dataclass(kw_only=True)
class NodeBed(Bed):
    """A simulated node of four cards that nobody else has; `silent` ones are kept by no kubelet, not even KWOK's."""

    admin: Admin
    name: str

    @property
    def node(self) -> str:
        return f"/api/v1/nodes/{self.name}"

    def patch(self, body: dict[str, Any], sub: str = "") -> None:
        answer = self.admin.call("PATCH", self.node + sub, body, MERGE)
        assert answer["kind"] == "Node", answer

    def pod(self, workload: Workload) -> dict[str, Any]:
        attempt = workload.attempts.order_by("number")[0]
        found = self.admin.call("GET", f"/api/v1/namespaces/{attempt.namespace}/pods/{attempt.run_name}")
        return dict(found)

    def running(self) -> Workload:
        job = self.submit(self.alice, self.vision, "train")
        self.until(lambda: self.state(job) == "running", 60)
        return job

    def program(self, text: str) -> tuple[str, ...]:
        return ("python3", text)


def node(name: str, managed: bool) -> dict[str, Any]:
    has = {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "4"}
    labels = {"nvidia.com/gpu.product": f"GPU-of-{name}", "nvidia.com/gpu.count": "4", "kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"} if managed else {}},
        "status": {"capacity": has, "allocatable": has, "conditions": [ready("True")]},
    }


def ready(status: str, since: dt.timedelta = dt.timedelta()) -> dict[str, str]:
    at = (dt.datetime.now(dt.UTC) - since).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"type": "Ready", "status": status, "reason": "Test", "lastTransitionTime": at, "lastHeartbeatTime": at}


@pytest.fixture
def bed(transactional_db: None, admin: Admin, portal_account: str, tmp_path: Path) -> Iterator[NodeBed]:
    name = realcluster.unique("loss")
    admin.call("POST", "/api/v1/nodes", node(name, managed=True))
    options = {"namespace_prefix": f"{name}-", "volume": "emptyDir"}
    cluster = Cluster.objects.create(
        name=name, kind=ClusterKind.KUBERNETES, connection=encrypt(portal_account), options=options
    )
    inventory.refresh(cluster)
    pool = Pool.objects.get(product=f"GPU-of-{name}")
    vision, nlp = make.department("vision"), make.department("nlp")
    make.quota(vision, pool, 4)
    image = Image.objects.create(name="python:3.11", title="Python")
    yield NodeBed(
        cluster, pool, vision, nlp, make.member(vision), make.member(nlp), image, tmp_path, admin=admin, name=name
    )
    driver = driver_for(cluster)
    admin.call("DELETE", f"/api/v1/nodes/{name}")
    for run in driver.observe():
        path = f"/api/v1/namespaces/{run.ref.namespace}/pods/{run.ref.name}"
        admin.call("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
        admin.call("DELETE", f"{path}?gracePeriodSeconds=0")
    admin.call("DELETE", f"/api/v1/namespaces/{name}-vision")
    driver.api.close()  # type: ignore[attr-defined]


def test_what_ran_on_a_node_that_was_removed_is_queued_again_as_lost(bed: NodeBed) -> None:
    job = bed.running()
    bed.admin.call("DELETE", bed.node)
    inventory.refresh(bed.cluster)
    assert not bed.cluster.nodes.get(name=bed.name).present
    assert bed.state(job) == "running", "it may still run until the control plane has ended it"
    bed.until(lambda: bed.state(job) == "queued", 120)
    first, second = job.attempts.order_by("number")
    assert (first.outcome, first.exit_code, job.reclaims) == ("lost", None, 0)
    assert (second.claim.state, first.claim.state) == (ClaimState.PENDING, ClaimState.RELEASED)
    bed.until(lambda: bed.pod(job).get("code") == 404)


def test_a_node_that_falls_silent_keeps_its_work_until_the_operators_time_is_over(bed: NodeBed) -> None:
    job = bed.running()
    bed.patch({"metadata": {"annotations": {"kwok.x-k8s.io/node": None}}})  # its kubelet is gone
    bed.patch({"status": {"conditions": [ready("Unknown", dt.timedelta(minutes=10))]}}, "/status")
    inventory.refresh(bed.cluster)
    assert "not ready" in bed.cluster.nodes.get(name=bed.name).held_back
    bed.turn()
    assert bed.state(job) == "running"
    options = bed.cluster.options | {"lost_after": 300}
    Cluster.objects.filter(pk=bed.cluster.pk).update(options=options)
    bed.until(lambda: bed.state(job) == "queued")
    first = job.attempts.order_by("number")[0]
    assert (first.outcome, first.reason) == ("lost", "NodeLost")
    assert "deletionTimestamp" in bed.pod(job)["metadata"], "should the node come back, it ends at once"
    bed.turn()
    assert Attempt.objects.get(pk=first.pk).removed_at is None, "it is watched until it is known to be gone"
    assert Claim.objects.get(attempt__number=2).state == ClaimState.PENDING


def test_a_lost_device_makes_its_pool_short_and_a_repaired_one_full_again(bed: NodeBed) -> None:
    def healthy() -> int:
        return Card.objects.filter(pool=bed.pool, healthy=True).count()

    assert healthy() == 4
    bed.patch({"status": {"allocatable": {"nvidia.com/gpu": "3"}}}, "/status")
    inventory.refresh(bed.cluster)
    assert healthy() == 3
    late = bed.submit(bed.alice, bed.vision, "train", cards=4)
    bed.turn()
    assert bed.state(late) == "queued"
    bed.patch({"status": {"allocatable": {"nvidia.com/gpu": "4"}}}, "/status")
    inventory.refresh(bed.cluster)
    assert healthy() == 4
    bed.until(lambda: bed.state(late) == "running")


def test_the_watch_tells_of_a_cordon_a_device_and_a_run_within_seconds(bed: NodeBed) -> None:
    driver, stop = driver_for(bed.cluster), threading.Event()
    assert isinstance(driver, KubernetesCluster)
    told: list[Observed | None] = []
    threading.Thread(target=driver.watch, args=(told.append, stop), daemon=True).start()
    time.sleep(2)
    with contextlib.closing(_Stop(stop)):
        for change in (
            lambda: bed.patch({"spec": {"unschedulable": True}}),
            lambda: bed.patch({"spec": {"unschedulable": None}}),
            lambda: bed.patch({"status": {"allocatable": {"nvidia.com/gpu": "2"}}}, "/status"),
            lambda: bed.patch({"status": {"allocatable": {"nvidia.com/gpu": "4"}}}, "/status"),
        ):
            told.clear()
            change()
            _soon(lambda: None in told)
        bed.patch({"metadata": {"labels": {"nobody": "cares"}}})
        job = bed.running()
        _soon(lambda: job.public_id in [run.workload_id for run in told if run])


@dataclass
class _Stop:
    event: threading.Event

    def close(self) -> None:
        self.event.set()


def _soon(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not fact():
        assert time.monotonic() < end, "nothing was told within 10 s"
        time.sleep(0.05)

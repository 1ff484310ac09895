"""A portal with its own simulated node, which tests can remove, cordon, or take devices from."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from portal.infra.crypt import encrypt
from quotas.models import Cluster, ClusterKind, Pool
from tests import builders as make
from tests.clusters import realcluster
from tests.clusters.realcluster import Admin
from tests.workloads.conftest import Bed
from workloads.clusters.drivers import driver_for
from workloads.models import Image, Workload
from workloads.nodes import inventory

MERGE = "application/merge-patch+json"


@dataclass(kw_only=True)
class NodeBed(Bed):
    """A bed with its own simulated node of four cards."""

    admin: Admin
    name: str

    @property
    def node(self) -> str:
        return f"/api/v1/nodes/{self.name}"

    def patch(self, body: dict[str, Any], sub: str = "") -> None:
        response = self.admin.call("PATCH", self.node + sub, body, MERGE)
        assert response["kind"] == "Node", response

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
    resources = {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "4"}
    labels = {"nvidia.com/gpu.product": f"GPU-of-{name}", "nvidia.com/gpu.count": "4", "kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"} if managed else {}},
        "status": {"capacity": resources, "allocatable": resources, "conditions": [ready("True")]},
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

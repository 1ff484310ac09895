"""Every sharing system on a real API server: submitted by REST, written into the pod, bound to its node, read back.

The nodes are KWOK's. The vendors' schedulers, extenders and plugins do not run there, so the test simulates them: it binds
pods that name such a scheduler, and writes on the pod (or claim) what the vendor would. Pods of the default scheduler
are bound by the real one, which also finds the devices of claims, by their CEL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest

from portal.access import Actor
from portal.infra.crypt import encrypt
from portal.models import User
from quotas.models import Cluster, ClusterKind, Node, Pool
from quotas.planning.run_pass import run_pass
from tests import builders as make
from tests.clients import program
from tests.clusters import realcluster
from tests.clusters.beds import eventually
from tests.clusters.realcluster import Admin
from tests.sharing.table import NODES, Live, Stopped, Table, tables
from workloads import actions
from workloads.clusters.drivers import driver_for
from workloads.models import Attempt, Image, Workload
from workloads.nodes import inventory
from workloads.reconciler.reconcile import reconcile_cluster
from workloads.sharing.nodes import quantity

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]

MERGE = "application/merge-patch+json"
DYNAMIC = "/apis/resource.k8s.io/v1"
TOLERATE = [{"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}]
CLASSES = {
    "gpu.nvidia.com": "gpu",
    "mig.nvidia.com": "mig",
}  # what NVIDIA's driver installs: name → type of its devices


def name_of(node: str | Mapping[str, Any]) -> str:
    return node if isinstance(node, str) else f"{node['metadata']['name']}-changed"


LIVES = [
    pytest.param(table, live, id=f"{live.system or table.system}-on-{name_of(live.node)}")
    for table in tables().values()
    for live in table.live
]


@dataclass
class Site:
    """A separate portal on the shared cluster; its one department can use one node."""

    admin: Admin
    cluster: Cluster
    pool: Pool
    node: str
    alice: User

    @property
    def row(self) -> Node:
        return Node.objects.get(name=self.node)

    @property
    def client(self) -> Any:
        return program(self.alice, self.alice.memberships.get().department, ("read", "submit"))

    def submit(self, body: dict[str, Any]) -> Any:
        request = {
            "name": "probe", "pool": self.pool.slug, "image": "test.local/busybox:1", "command": ["sleep", "600"],
            "cpu": 0.1, "memory_mib": 64, **body,
        }  # fmt: skip
        return self.client.post("/api/v1/departments/vision/workloads/", request)

    def turn(self) -> None:
        run_pass(group_id=self.pool.group_id)
        reconcile_cluster(Cluster.objects.get(pk=self.cluster.pk))

    def until(self, condition: Any) -> Any:
        def turn_and_check() -> Any:
            self.turn()
            return condition()

        return eventually(turn_and_check, 100)

    def path(self) -> str:
        attempt = Attempt.objects.latest("pk")
        return f"/api/v1/namespaces/{attempt.namespace}/pods/{attempt.run_name}"

    def pod(self) -> dict[str, Any]:
        found = self.admin.call("GET", self.path())
        return found if found.get("kind") == "Pod" else {}


@pytest.fixture
def provided_node(admin: Admin) -> Iterator[Callable[[str | Mapping[str, Any]], str]]:
    """Provides a node: those of the kit exist, any other is created and deleted after the test."""
    created: list[str] = []

    def provide(node: str | Mapping[str, Any]) -> str:
        if isinstance(node, str):
            return node
        name = realcluster.unique("node")
        document = deepcopy(dict(node))
        slices = document.pop("resourceSlices", [])
        document["metadata"]["name"] = document["metadata"]["labels"]["kubernetes.io/hostname"] = name
        create(admin, "/api/v1/nodes", document)
        created.append(f"/api/v1/nodes/{name}")
        for number, resource_slice in enumerate(slices):
            resource_slice["metadata"] = {"name": f"{name}-{number}"}
            resource_slice["spec"]["nodeName"] = resource_slice["spec"]["pool"]["name"] = name
            create(admin, f"{DYNAMIC}/resourceslices", resource_slice)
            created.append(f"{DYNAMIC}/resourceslices/{name}-{number}")
        return name

    yield provide
    for path in created:
        admin.call("DELETE", path)


def create(admin: Admin, path: str, document: Mapping[str, Any]) -> None:
    response = admin.call("POST", path, document)
    assert response["kind"] == document["kind"] or response.get("reason") == "AlreadyExists", response


@pytest.fixture(scope="module")
def device_classes(admin: Admin) -> None:
    """The device classes are not deleted: other tests on the cluster may be using them."""
    for name, kind in CLASSES.items():
        expression = f"device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == '{kind}'"
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        create(admin, f"{DYNAMIC}/deviceclasses", body)


@pytest.fixture
def sites(admin: Admin, portal_account: str, provided_node: Any, device_classes: None) -> Iterator[Any]:
    opened: list[Site] = []

    def site(system: str, node: str, **more: Any) -> Site:
        name = realcluster.unique("share")
        options = {
            "volume": "emptyDir",
            "image_pull_policy": "Never",
            "namespace_prefix": f"{name}-",
            "tolerations": TOLERATE,
        }
        cluster = Cluster.objects.create(
            name=name,
            kind=ClusterKind.KUBERNETES,
            connection=encrypt(portal_account),
            options=options | more,
        )
        inventory.refresh(cluster)
        pool = Pool.objects.filter(cards__node__name=node, sharing=system).distinct().first()
        Node.objects.exclude(name=node).update(drained=True)
        vision = make.department("vision")
        if pool is not None:
            make.quota(vision, pool, pool.nominal)
        Image.objects.create(name="test.local/busybox:1", title="Busybox")
        opened.append(Site(admin, cluster, pool, node, make.member(vision)))
        return opened[-1]

    yield site
    for one in opened:
        driver = driver_for(one.cluster)
        for run in driver.observe():
            with contextlib.suppress(Exception):
                driver.stop(run.ref, 0)
                driver.remove(run.ref)
        admin.call("DELETE", f"/api/v1/namespaces/{one.cluster.options['namespace_prefix']}vision")


def simulate_vendor(site: Site, live: Live) -> None:
    """Acts as the vendor's scheduler and plugin: binds the pod and records its card."""
    meta = site.pod()["metadata"]
    if live.scheduler != "default-scheduler":
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "uid": meta["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": site.node},
        }
        response = site.admin.call("POST", f"{site.path()}/binding", binding)
        assert response.get("status") in ("Success", None), response
    marks = {kind: live.plays[kind] for kind in ("annotations", "labels") if kind in live.plays}
    if marks:
        site.admin.call("PATCH", site.path(), {"metadata": marks}, MERGE)
    if devices := live.plays.get("devices"):
        pod = eventually(lambda: (found := site.pod()) and found["status"].get("phase") == "Running" and found)
        resources = [{"resourceID": device, "health": "Healthy"} for device in devices]
        statuses = pod["status"]["containerStatuses"]
        statuses[0]["allocatedResourcesStatus"] = [{"name": next(iter(live.limits)), "resources": resources}]
        response = site.admin.call("PATCH", f"{site.path()}/status", {"status": {"containerStatuses": statuses}}, MERGE)
        assert response.get("kind") == "Pod", response


def claims(site: Site) -> list[dict[str, Any]]:
    """The ResourceClaims of the department's namespace."""
    namespace = Attempt.objects.latest("pk").namespace
    return list(site.admin.call("GET", f"{DYNAMIC}/namespaces/{namespace}/resourceclaims")["items"])


def selector_of(claim: Mapping[str, Any]) -> str:
    (request,) = claim["spec"]["devices"]["requests"]
    return str(request["exactly"]["selectors"][0]["cel"]["expression"])


@pytest.mark.parametrize(("table", "live"), LIVES)
def test_valid_request_runs_and_reports_its_card_and_an_invalid_one_is_refused(
    table: Table, live: Live, sites: Any, provided_node: Any
) -> None:
    site = sites(live.system or table.system, provided_node(live.node), **live.options)
    invalid = site.submit(dict(live.bad))
    assert invalid.status_code == 422, invalid.json()
    (error,) = [error for error in invalid.json()["errors"] if error["attr"] == live.blamed]
    assert live.said in error["detail"]
    assert Workload.objects.count() == 0

    created = site.submit(dict(live.body))
    assert created.status_code == 202, created.json()
    pod = site.until(site.pod)
    container = pod["spec"]["containers"][0]
    limits = {name: amount for name, amount in container["resources"]["limits"].items() if "/" in name}
    assert {name: quantity(amount) for name, amount in limits.items()} == {
        name: quantity(amount)
        for name, amount in live.limits.items()  # the server writes 3000 as 3k
    }
    assert pod["spec"].get("schedulerName", "default-scheduler") == live.scheduler
    assert live.annotations.items() <= pod["metadata"]["annotations"].items()
    assert live.labels.items() <= pod["metadata"]["labels"].items()
    simulate_vendor(site, live)
    workload = Workload.objects.get()

    def running() -> bool:
        workload.refresh_from_db()
        return bool(workload.state == "running")

    site.until(running)
    attempt = workload.attempts.get()
    assert attempt.node == site.node
    if live.claims:
        assert [selector_of(claim) for claim in claims(site)] == [live.claims]
    run = eventually(
        lambda: next((r for r in driver_for(site.cluster).observe() if len(r.cards) == len(live.cards)), None)
    )
    assert run.cards == live.cards
    actions.cancel(actor=Actor(site.alice), workload=workload)
    site.until(lambda: Workload.objects.get().state == "cancelled")


def test_workloads_of_a_department_with_the_same_share_use_the_card_of_one_claim(
    sites: Any, provided_node: Any
) -> None:
    site = sites("dra", provided_node(NODES["dra-a100-80"]))
    lab = {"setup": {"extra": {"share": "lab"}}}
    invalid = site.submit({"setup": {"extra": {"share": "Our Lab"}}})
    assert (invalid.status_code, invalid.json()["errors"][0]["attr"]) == (422, "share")
    for name in ("one", "two"):
        assert site.submit({"name": name, **lab}).status_code == 202
    assert site.submit({"name": "alone"}).status_code == 202
    site.until(lambda: Workload.objects.filter(state="running").count() == 3)

    runs = {run.ref.name: run.cards for run in driver_for(site.cluster).observe()}
    cards = {a.workload.name: runs[a.run_name] for a in Attempt.objects.select_related("workload")}
    assert cards["one"] == cards["two"] != cards["alone"]
    (shared,) = [claim for claim in claims(site) if claim["metadata"]["name"] == "share-lab"]
    assert len(shared["status"]["reservedFor"]) == len(shared["metadata"]["ownerReferences"]) == 2
    assert set(Attempt.objects.values_list("node", flat=True)) == {site.node}


HELD = [pytest.param(key, one, id=one.node) for key, table in tables().items() for one in table.held]


@pytest.mark.parametrize(("key", "stopped"), HELD)
def test_held_back_node_runs_nothing_and_gives_its_reason_until_it_is_repaired(
    key: str, stopped: Stopped, sites: Any, provided_node: Any, admin: Admin
) -> None:
    site = sites(key, provided_node(NODES[stopped.node]))
    row = site.row
    found = next(f for f in tables()[key].found if f.node == stopped.node)
    assert (row.sharing, row.held_back, row.takes_pods) == (key, found.held_back, False)
    assert stopped.said in row.held_back
    assert not row.cards.filter(healthy=True).exists()
    if not stopped.pool:
        assert site.pool is None, "it cannot be requested"
        return
    invalid = site.submit({**stopped.body, "env": {"NVIDIA_VISIBLE_DEVICES": "all"}})
    assert (invalid.status_code, invalid.json()["errors"][0]["attr"]) == (422, "env")
    created = site.submit(dict(stopped.body))
    assert created.status_code == 202, created.json()
    site.turn()
    body = site.client.get(created["Location"]).json()
    assert (body["state"], body["position"]) == ("queued", 1)
    assert body["reasons"], body
    assert not Attempt.objects.exclude(admitted_at=None).exists()
    for part, path in (("metadata", ""), ("status", "/status")):
        if part in stopped.mended:
            admin.call("PATCH", f"/api/v1/nodes/{site.node}{path}", {part: stopped.mended[part]}, MERGE)
    inventory.refresh(site.cluster)
    site.until(lambda: Workload.objects.get().state == "running")
    assert Attempt.objects.get().node == site.node

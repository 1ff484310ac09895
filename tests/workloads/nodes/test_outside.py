"""Pods outside quota, which the portal did not start: their cards are not allocated to claims until the pods end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.access import Actor
from portal.models import Role
from quotas.board import usage_now
from quotas.board.card_map import pool_overview
from quotas.board.invariants import violations
from quotas.board.usage_now import read
from quotas.models import Card, Claim, Cluster, Node, OutsidePod, Pool
from quotas.planning.run_pass import run_pass
from quotas.planning.snapshot import load_snapshot
from tests import builders as make
from workloads.models import Image
from workloads.nodes import inventory
from workloads.requests.request import WorkloadRequest
from workloads.requests.verdict import Impossible, refuse_impossible, verdict_of
from workloads.runtime.base import CardInfo, NodeInfo
from workloads.runtime.base import OutsidePod as ReportedPod

pytestmark = pytest.mark.django_db
A100 = "NVIDIA-A100-SXM4-80GB"


def outside_pod(name: str, node: str = "n1", kind: str = "StatefulSet", **limits: str) -> ReportedPod:
    resources = {"limits": {key.replace("__", "/").replace("_", "."): value for key, value in limits.items()}}
    pod = {"spec": {"nodeName": node, "containers": [{"resources": resources}]}, "status": {"phase": "Running"}}
    return ReportedPod(f"uid-{name}", node, "legacy", name, kind, pod)


def gpus(count: int) -> dict[str, str]:
    return {"nvidia_com__gpu": str(count)}


class World:
    """A cluster that lists the nodes and outside pods given by the test."""

    def __init__(self) -> None:
        cards = tuple(CardInfo(index, 1, uuid=f"GPU-{index}") for index in range(8))
        self.listed = [
            NodeInfo(name, "whole", A100, "card", 1, cards, cpu_milli=64_000, memory_mib=512_000, pods=110)
            for name in ("n1", "n2")
        ]
        self.outside_pods: list[ReportedPod] = []

    def nodes(self) -> tuple[NodeInfo, ...]:
        return tuple(self.listed)

    def outside(self) -> tuple[ReportedPod, ...]:
        return tuple(self.outside_pods)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(inventory, "driver_for", lambda _cluster: world)
    return world


@pytest.fixture
def cluster(world: World) -> Cluster:
    cluster = make.cluster("gpu")
    inventory.refresh(cluster)
    return cluster


@pytest.fixture
def pool(cluster: Cluster) -> Pool:
    return Pool.objects.get()


def refresh(cluster: Cluster) -> int:
    return inventory.refresh(Cluster.objects.get(pk=cluster.pk))


def outside_by_card(node: str = "n1") -> list[int]:
    return list(Card.objects.filter(node__name=node).order_by("index").values_list("outside", flat=True))


def test_cards_of_outside_pods_are_not_free_until_the_pods_end(world: World, cluster: Cluster, pool: Pool) -> None:
    world.outside_pods = [outside_pod("train-0", **gpus(3))]
    assert refresh(cluster) == 1
    assert refresh(cluster) == 0, "a second refresh changes nothing"
    assert outside_by_card() == [0, 0, 0, 0, 0, 1, 1, 1]
    [view] = pool_overview(read([pool]))
    assert (view.free, view.present, view.outside, view.missing, view.largest) == (13, 13, 3, 3, 8)
    [planned] = load_snapshot(pool.group, now=timezone.now()).pools
    assert sum(card.capacity for node in planned.nodes or () for card in node.cards) == 13
    world.outside_pods = []
    assert refresh(cluster) == 1
    assert OutsidePod.objects.count() == 0
    assert usage_now.free(usage_now.read(), pool.pk) == 16


def test_planning_pass_never_places_claims_on_cards_of_outside_pods(world: World, cluster: Cluster, pool: Pool) -> None:
    vision = make.department("vision")
    make.quota(vision, pool, 16)
    world.outside_pods = [outside_pod("a", "n1", **gpus(6)), outside_pod("b", "n2", **gpus(7))]
    refresh(cluster)
    claims = [make.claim(vision, pool, 1) for _ in range(4)] + [make.claim(vision, pool, 2)]
    run_pass(group_id=pool.group_id)
    states = [Claim.objects.get(pk=claim.pk).state for claim in claims]
    assert states.count("holding") == 3
    assert list(violations()) == []
    taken = {
        (p["node"], c) for claim in Claim.objects.filter(state="holding") for p in claim.placement for c in p["cards"]
    }
    assert taken == {("n1", 0), ("n1", 1), ("n2", 0)}


def test_cards_of_portal_workloads_are_not_counted_for_outside_pods(world: World, cluster: Cluster, pool: Pool) -> None:
    vision = make.department("vision")
    make.quota(vision, pool, 8)
    make.holding(vision, pool, 2, placement=[{"pod": 0, "node": "n1", "cards": [6, 7]}])
    world.outside_pods = [outside_pod("a", **gpus(3))]
    refresh(cluster)
    assert outside_by_card() == [0, 0, 0, 1, 1, 1, 0, 0]


def test_cpu_memory_and_pod_slots_of_all_outside_pods_on_gpu_nodes_count(
    world: World, cluster: Cluster, pool: Pool
) -> None:
    world.outside_pods = [
        outside_pod("agent", kind="DaemonSet", cpu="4", memory="12000Mi"),
        outside_pod("web", cpu="10500m", memory="1Gi"),
        outside_pod("elsewhere", "cpu-node", cpu="10"),
    ]
    refresh(cluster)
    first, second = (load_snapshot(pool.group, now=timezone.now()).pools[0].nodes or ())[:2]
    assert (first.cpu_milli, first.memory_mib, first.pods) == (49_500, 498_976, 108)
    assert (second.cpu_milli, second.pods) == (64_000, 110)
    assert OutsidePod.objects.count() == 0, "only those with a GPU are listed"
    pool.refresh_from_db()
    assert pool.with_a_card == (7_500, 62_500), "what a DaemonSet uses permanently comes with no card"


def test_pool_occupied_by_outside_pods_is_short_as_after_losing_a_node(
    world: World, cluster: Cluster, pool: Pool
) -> None:
    vision = make.department("vision")
    make.quota(vision, pool, 16)
    world.outside_pods = [outside_pod("a", "n1", **gpus(8)), outside_pod("b", "n2", **gpus(4))]
    refresh(cluster)
    [view] = pool_overview(read([pool]))
    assert (view.short_by, view.missing) == (12, 12)
    image = Image.objects.create(name="python:3", title="Python")
    request = WorkloadRequest(kind="job", name="x", pool=pool, image=image, command=("python",), units_per_pod=8)
    actor = Actor(make.member(vision, Role.MEMBER))
    verdict = verdict_of(actor=actor, department=vision, request=request)
    assert verdict.decision == "wait"
    assert "12 cards of the pool are offline." in verdict.lines
    assert [each.units_per_pod for each in verdict.alternatives] == [4]
    refuse_impossible(request.workload(vision, actor.user, now=timezone.now()), request, now=timezone.now())


def test_outside_use_of_card_parts_and_mig_instances_counts_in_the_pools_unit(world: World, cluster: Cluster) -> None:
    cards = tuple(CardInfo(index, 15_360) for index in range(2))
    cut = tuple(CardInfo(index, 8) for index in range(2))
    world.listed = [
        NodeInfo("t4", "memory", "Tesla-T4", "MiB", 15_360, cards),
        NodeInfo("mig", "mig", A100, "slice", 8, cut, mig="A100-80GB", instances={"1g.10gb": 14}),
    ]
    world.outside_pods = [
        outside_pod("infer", "t4", **{"aliyun_com__gpu-mem": "4"}),
        outside_pod("small", "mig", **{"nvidia_com__mig-1g_10gb": "3"}),
    ]
    Cluster.objects.update(kind="kubernetes")  # whose plugins count in GiB
    refresh(cluster)
    views = {view.pool.sharing: view for view in pool_overview(read())}
    assert (views["memory"].outside, views["memory"].free) == (4_096, 2 * 15_360 - 4_096)
    assert (views["mig"].outside, views["mig"].free, views["mig"].present) == (3, 11, 11)
    assert views["mig"].rows[0].instances[0].free == 11


def test_all_users_see_the_amount_outside_quota_but_only_operators_see_the_pods(
    client: Client, world: World, cluster: Cluster, pool: Pool
) -> None:
    world.outside_pods = [outside_pod("secret-project-0", **gpus(3))]
    refresh(cluster)
    vision = make.department("vision")
    client.force_login(make.member(vision, Role.MEMBER))
    page = client.get(f"/pools/{pool.slug}/").content.decode()
    assert "3 cards outside quota" in page
    assert "secret-project-0" not in page
    assert "legacy" not in page
    body = client.get(f"/api/v1/pools/{pool.slug}/").json()
    assert (body["outside"], body["free"], body["present"]) == (3, 13, 13)
    assert "secret-project-0" not in str(body)
    client.force_login(make.user(is_operator=True))
    page = client.get(f"/pools/{pool.slug}/").content.decode()
    assert "secret-project-0" in page
    assert "StatefulSet" in page


def test_metrics_report_units_outside_quota(client: Client, world: World, cluster: Cluster, pool: Pool) -> None:
    from quotas.metrics import collect

    world.outside_pods = [outside_pod("a", **gpus(2))]
    refresh(cluster)
    [units] = [metric for metric in collect() if metric.name == "portal_pool_units"]
    found = {sample.labels["kind"]: sample.value for sample in units.samples}
    assert (found["outside"], found["free"], found["present"]) == (2, 14, 14)


def test_refresh_killed_between_two_nodes_is_completed_by_the_next_one(
    world: World, cluster: Cluster, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workloads.nodes import outside

    world.outside_pods = [outside_pod("a", "n1", **gpus(1)), outside_pod("b", "n2", **gpus(2))]
    write, calls = outside._write, []

    def once(node: Node, seen: Any) -> None:
        if calls:
            raise SystemExit
        calls.append(node.name)
        write(node, seen)

    monkeypatch.setattr(outside, "_write", once)
    with pytest.raises(SystemExit):
        refresh(cluster)
    assert sum(outside_by_card("n1")) + sum(outside_by_card("n2")) in (1, 2)
    monkeypatch.setattr(outside, "_write", write)
    refresh(cluster)
    assert (sum(outside_by_card("n1")), sum(outside_by_card("n2"))) == (1, 2)


def test_a_pod_that_moved_to_another_node_counts_there(world: World, cluster: Cluster) -> None:
    world.outside_pods = [outside_pod("a", "n1", **gpus(2))]
    refresh(cluster)
    world.outside_pods = [replace(outside_pod("a", "n2", **gpus(2)), uid="uid-other")]
    refresh(cluster)
    assert (sum(outside_by_card("n1")), sum(outside_by_card("n2"))) == (0, 2)


def test_request_too_large_for_the_pool_is_impossible_even_with_outside_pods(
    world: World, cluster: Cluster, pool: Pool
) -> None:
    vision = make.department("vision")
    make.quota(vision, pool, 16)
    world.outside_pods = [outside_pod("a", "n1", **gpus(2))]
    refresh(cluster)
    image = Image.objects.create(name="python:3", title="Python")
    request = WorkloadRequest(kind="job", name="x", pool=pool, image=image, command=("python",), units_per_pod=17)
    with pytest.raises(Impossible):
        refuse_impossible(request.workload(vision, None, now=timezone.now()), request, now=timezone.now())


@pytest.mark.parametrize("listed", [True, False], ids=["uuid of a listed card", "device known by its name only"])
def test_pods_that_share_a_resource_claim_count_its_device_once(world: World, cluster: Cluster, listed: bool) -> None:
    world.listed = [replace(node, sharing="dra") for node in world.listed]
    refresh(cluster)
    uuid = "GPU-3" if listed else "gpu-x"
    devices = [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": uuid}}}]
    result = {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}
    claim = {"metadata": {"name": "c"}, "status": {"allocation": {"devices": {"results": [result]}}}}
    slices = [{"spec": {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"}, "devices": devices}}]

    def sharing(name: str) -> ReportedPod:
        pod = outside_pod(name)
        named = {**pod.pod["spec"], "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}
        return replace(pod, pod={**pod.pod, "spec": named, "resourceClaims": [claim], "resourceSlices": slices})

    world.outside_pods = [sharing("a"), sharing("b"), sharing("c")]
    refresh(cluster)
    assert sum(outside_by_card()) == 1
    assert sorted(OutsidePod.objects.values_list("name", "units")) == [("a", 1), ("b", 0), ("c", 0)]
    world.outside_pods = world.outside_pods[1:]
    refresh(cluster)
    assert sum(outside_by_card()) == 1
    assert sorted(OutsidePod.objects.values_list("name", "units")) == [("b", 1), ("c", 0)]
    world.outside_pods = []
    refresh(cluster)
    assert sum(outside_by_card()) == 0

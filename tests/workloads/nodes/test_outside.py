"""Pods that the portal did not start: what they have is not given away, and comes back when they go."""

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
from workloads.runtime.base import OutsidePod as Stranger

pytestmark = pytest.mark.django_db
A100 = "NVIDIA-A100-SXM4-80GB"


def stranger(name: str, node: str = "n1", kind: str = "StatefulSet", **limits: str) -> Stranger:
    resources = {"limits": {key.replace("__", "/").replace("_", "."): value for key, value in limits.items()}}
    pod = {"spec": {"nodeName": node, "containers": [{"resources": resources}]}, "status": {"phase": "Running"}}
    return Stranger(f"uid-{name}", node, "legacy", name, kind, pod)


def gpus(count: int) -> dict[str, str]:
    return {"nvidia_com__gpu": str(count)}


class World:
    """A cluster that lists what the test says."""

    def __init__(self) -> None:
        cards = tuple(CardInfo(index, 1, uuid=f"GPU-{index}") for index in range(8))
        self.listed = [
            NodeInfo(name, "whole", A100, "card", 1, cards, cpu_milli=64_000, memory_mib=512_000, pods=110)
            for name in ("n1", "n2")
        ]
        self.strangers: list[Stranger] = []

    def nodes(self) -> tuple[NodeInfo, ...]:
        return tuple(self.listed)

    def outside(self) -> tuple[Stranger, ...]:
        return tuple(self.strangers)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(inventory, "driver_for", lambda _cluster: made)
    return made


@pytest.fixture
def cluster(world: World) -> Cluster:
    cluster = make.cluster("gpu")
    inventory.refresh(cluster)
    return cluster


@pytest.fixture
def pool(cluster: Cluster) -> Pool:
    return Pool.objects.get()


def look(cluster: Cluster) -> int:
    return inventory.refresh(Cluster.objects.get(pk=cluster.pk))


def by_card(node: str = "n1") -> list[int]:
    return list(Card.objects.filter(node__name=node).order_by("index").values_list("outside", flat=True))


def test_what_others_have_is_no_capacity_and_comes_back_when_they_go(
    world: World, cluster: Cluster, pool: Pool
) -> None:
    world.strangers = [stranger("train-0", **gpus(3))]
    assert look(cluster) == 1
    assert look(cluster) == 0, "a second look changes nothing"
    assert by_card() == [0, 0, 0, 0, 0, 1, 1, 1]
    [view] = pool_overview(read([pool]))
    assert (view.free, view.present, view.outside, view.missing, view.largest) == (13, 13, 3, 3, 8)
    [told] = load_snapshot(pool.group, now=timezone.now()).pools
    assert sum(card.left for node in told.nodes or () for card in node.cards) == 13
    world.strangers = []
    assert look(cluster) == 1
    assert OutsidePod.objects.count() == 0
    assert usage_now.free(usage_now.read(), pool.pk) == 16


def test_the_plan_gives_nobody_a_card_that_others_have(world: World, cluster: Cluster, pool: Pool) -> None:
    vision = make.department("vision")
    make.quota(vision, pool, 16)
    world.strangers = [stranger("a", "n1", **gpus(6)), stranger("b", "n2", **gpus(7))]
    look(cluster)
    claims = [make.claim(vision, pool, 1) for _ in range(4)] + [make.claim(vision, pool, 2)]
    run_pass(group_id=pool.group_id)
    states = [Claim.objects.get(pk=claim.pk).state for claim in claims]
    assert states.count("holding") == 3
    assert list(violations()) == []
    taken = {
        (p["node"], c) for claim in Claim.objects.filter(state="holding") for p in claim.placement for c in p["cards"]
    }
    assert taken == {("n1", 0), ("n1", 1), ("n2", 0)}


def test_our_own_work_keeps_its_cards_whoever_else_is_there(world: World, cluster: Cluster, pool: Pool) -> None:
    vision = make.department("vision")
    make.quota(vision, pool, 8)
    make.holding(vision, pool, 2, placement=[{"pod": 0, "node": "n1", "cards": [6, 7]}])
    world.strangers = [stranger("a", **gpus(3))]
    look(cluster)
    assert by_card() == [0, 0, 0, 1, 1, 1, 0, 0]


def test_cpu_memory_and_pods_of_all_others_on_a_gpu_node_count(world: World, cluster: Cluster, pool: Pool) -> None:
    world.strangers = [
        stranger("agent", kind="DaemonSet", cpu="4", memory="12000Mi"),
        stranger("web", cpu="10500m", memory="1Gi"),
        stranger("elsewhere", "cpu-node", cpu="10"),
    ]
    look(cluster)
    first, second = (load_snapshot(pool.group, now=timezone.now()).pools[0].nodes or ())[:2]
    assert (first.cpu_milli, first.memory_mib, first.pods) == (49_500, 498_976, 108)
    assert (second.cpu_milli, second.pods) == (64_000, 110)
    assert OutsidePod.objects.count() == 0, "only those with a GPU are listed"
    pool.refresh_from_db()
    assert pool.with_a_card == (7_500, 62_500), "what stands there for good comes with no card"


def test_a_pool_that_others_have_taken_is_short_like_after_a_lost_node(
    world: World, cluster: Cluster, pool: Pool
) -> None:
    vision = make.department("vision")
    make.quota(vision, pool, 16)
    world.strangers = [stranger("a", "n1", **gpus(8)), stranger("b", "n2", **gpus(4))]
    look(cluster)
    [view] = pool_overview(read([pool]))
    assert (view.short_by, view.missing) == (12, 12)
    image = Image.objects.create(name="python:3", title="Python")
    request = WorkloadRequest(kind="job", name="x", pool=pool, image=image, command=("python",), units_per_pod=8)
    actor = Actor(make.member(vision, Role.MEMBER))
    told = verdict_of(actor=actor, department=vision, request=request)
    assert told.decision == "wait"
    assert "12 cards of the pool are offline." in told.lines
    assert [each.units_per_pod for each in told.alternatives] == [4]
    refuse_impossible(request.workload(vision, actor.user, now=timezone.now()), request, now=timezone.now())


def test_parts_of_cards_and_instances_count_in_their_unit(world: World, cluster: Cluster) -> None:
    cards = tuple(CardInfo(index, 15_360) for index in range(2))
    cut = tuple(CardInfo(index, 8) for index in range(2))
    world.listed = [
        NodeInfo("t4", "memory", "Tesla-T4", "MiB", 15_360, cards),
        NodeInfo("mig", "mig", A100, "slice", 8, cut, mig="A100-80GB", instances={"1g.10gb": 14}),
    ]
    world.strangers = [
        stranger("infer", "t4", **{"aliyun_com__gpu-mem": "4"}),
        stranger("small", "mig", **{"nvidia_com__mig-1g_10gb": "3"}),
    ]
    Cluster.objects.update(kind="kubernetes")  # whose plugins count in GiB
    look(cluster)
    views = {view.pool.sharing: view for view in pool_overview(read())}
    assert (views["memory"].outside, views["memory"].free) == (4_096, 2 * 15_360 - 4_096)
    assert (views["mig"].outside, views["mig"].free, views["mig"].present) == (3, 11, 11)
    assert views["mig"].rows[0].instances[0].free == 11


def test_everybody_sees_how_much_and_operators_who(client: Client, world: World, cluster: Cluster, pool: Pool) -> None:
    world.strangers = [stranger("secret-project-0", **gpus(3))]
    look(cluster)
    vision = make.department("vision")
    client.force_login(make.member(vision, Role.MEMBER))
    page = client.get(f"/pools/{pool.slug}/").content.decode()
    assert "3 cards outside quota" in page
    assert "secret-project-0" not in page
    assert "legacy" not in page
    told = client.get(f"/api/v1/pools/{pool.slug}/").json()
    assert (told["outside"], told["free"], told["present"]) == (3, 13, 13)
    assert "secret-project-0" not in str(told)
    client.force_login(make.user(is_operator=True))
    page = client.get(f"/pools/{pool.slug}/").content.decode()
    assert "secret-project-0" in page
    assert "StatefulSet" in page


def test_metrics_tell_what_is_outside(client: Client, world: World, cluster: Cluster, pool: Pool) -> None:
    from quotas.metrics import collect

    world.strangers = [stranger("a", **gpus(2))]
    look(cluster)
    [units] = [metric for metric in collect() if metric.name == "portal_pool_units"]
    found = {sample.labels["kind"]: sample.value for sample in units.samples}
    assert (found["outside"], found["free"], found["present"]) == (2, 14, 14)


def test_a_look_that_is_killed_between_two_nodes_is_made_up_for(
    world: World, cluster: Cluster, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workloads.nodes import outside

    world.strangers = [stranger("a", "n1", **gpus(1)), stranger("b", "n2", **gpus(2))]
    written, times = outside._write, []

    def once(node: Node, seen: Any) -> None:
        if times:
            raise SystemExit
        times.append(node.name)
        written(node, seen)

    monkeypatch.setattr(outside, "_write", once)
    with pytest.raises(SystemExit):
        look(cluster)
    assert sum(by_card("n1")) + sum(by_card("n2")) in (1, 2)
    monkeypatch.setattr(outside, "_write", written)
    look(cluster)
    assert (sum(by_card("n1")), sum(by_card("n2"))) == (1, 2)


def test_a_pod_that_moved_to_another_node_counts_there(world: World, cluster: Cluster) -> None:
    world.strangers = [stranger("a", "n1", **gpus(2))]
    look(cluster)
    world.strangers = [replace(stranger("a", "n2", **gpus(2)), uid="uid-other")]
    look(cluster)
    assert (sum(by_card("n1")), sum(by_card("n2"))) == (0, 2)


def test_what_can_never_run_is_told_as_never_though_others_are_there(
    world: World, cluster: Cluster, pool: Pool
) -> None:
    vision = make.department("vision")
    make.quota(vision, pool, 16)
    world.strangers = [stranger("a", "n1", **gpus(2))]
    look(cluster)
    image = Image.objects.create(name="python:3", title="Python")
    request = WorkloadRequest(kind="job", name="x", pool=pool, image=image, command=("python",), units_per_pod=17)
    with pytest.raises(Impossible):
        refuse_impossible(request.workload(vision, None, now=timezone.now()), request, now=timezone.now())


@pytest.mark.parametrize(
    "told", [True, False], ids=["a card of the node", "a device that is told apart by its name only"]
)
def test_pods_that_share_a_claim_have_its_device_once(world: World, cluster: Cluster, told: bool) -> None:
    world.listed = [replace(node, sharing="dra") for node in world.listed]
    look(cluster)
    uuid = "GPU-3" if told else "gpu-x"
    devices = [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": uuid}}}]
    result = {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}
    claim = {"metadata": {"name": "c"}, "status": {"allocation": {"devices": {"results": [result]}}}}
    slices = [{"spec": {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"}, "devices": devices}}]

    def sharing(name: str) -> Stranger:
        pod = stranger(name)
        named = {**pod.pod["spec"], "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}
        return replace(pod, pod={**pod.pod, "spec": named, "resourceClaims": [claim], "resourceSlices": slices})

    world.strangers = [sharing("a"), sharing("b"), sharing("c")]
    look(cluster)
    assert sum(by_card()) == 1
    assert sorted(OutsidePod.objects.values_list("name", "units")) == [("a", 1), ("b", 0), ("c", 0)]
    world.strangers = world.strangers[1:]
    look(cluster)
    assert sum(by_card()) == 1
    assert sorted(OutsidePod.objects.values_list("name", "units")) == [("b", 1), ("c", 0)]
    world.strangers = []
    look(cluster)
    assert sum(by_card()) == 0

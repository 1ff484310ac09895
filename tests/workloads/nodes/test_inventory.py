"""Nodes → cards → pools, for every sharing system, as nodes appear, change and disappear."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils import timezone

from portal.access import Actor, NotVisible
from portal.errors import Invalid
from portal.templatetags import portal as tags
from portal.text import words
from quotas.models import Card, Cluster, Node, Pool
from quotas.planning.snapshot import load_snapshot
from tests import builders as make
from workloads import sharing
from workloads.demo.nodes import NODES
from workloads.embedded.command import node_from
from workloads.nodes import inventory, pools
from workloads.runtime.base import CardInfo, NodeInfo, Offer, as_json

pytestmark = pytest.mark.django_db
DATA = Path(__file__).parents[2] / "cluster/data/kwok_gpu_nodes.yaml"
A100 = "NVIDIA-A100-SXM4-80GB"


class Listing:
    """A driver that lists the nodes given by the test."""

    def __init__(self, *nodes: NodeInfo) -> None:
        self.found = nodes

    def nodes(self) -> tuple[NodeInfo, ...]:
        return self.found


@pytest.fixture
def cluster() -> Cluster:
    return make.cluster("gpu")


@pytest.fixture
def refresh(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    def refresh(*nodes: NodeInfo) -> int:
        monkeypatch.setattr(inventory, "driver_for", lambda _cluster: Listing(*nodes))
        return inventory.refresh(Cluster.objects.get(pk=cluster.pk))

    return refresh


def whole(name: str = "n1", count: int = 8, healthy: int = 8) -> NodeInfo:
    cards = tuple(CardInfo(i, 1, healthy=i < healthy, memory_mib=81920) for i in range(count))
    return NodeInfo(name, "whole", A100, "card", 1, cards, because="it advertises nvidia.com/gpu")


def cut(name: str = "n1", count: int = 8, **fields: Any) -> NodeInfo:
    cards = tuple(CardInfo(i, 8) for i in range(count))
    return NodeInfo(name, "mig", A100, "slice", 8, cards, mig="A100-80GB", instances={"1g.10gb": 7 * count}, **fields)


def sliced(name: str, replicas: int) -> NodeInfo:
    cards = tuple(CardInfo(i, replicas, memory_mib=15360) for i in range(4))
    return NodeInfo(name, "timeslicing", "Tesla-T4", "replica", replicas, cards)


def test_every_kind_of_node_joins_its_pool_and_a_second_refresh_changes_nothing(refresh: Any) -> None:
    documents = list(yaml.safe_load_all(DATA.read_text()))
    nodes = [document for document in documents if document and document["kind"] == "Node"]
    slices = [document for document in documents if document and document["kind"] == "ResourceSlice"]
    infos = [info for node in sharing.with_slices(nodes, slices) if (info := sharing.discover(node))]
    assert len(infos) >= 22
    assert refresh(*infos) == len(infos)
    assert refresh(*infos) == 0
    for info in infos:
        node = Node.objects.get(name=info.name)
        assert (node.sharing, node.because, node.held_back) == (info.sharing, info.because[:200], info.held_back[:300])
        for offer in pools.servable(info):
            cards = Card.objects.filter(node=node, pool__sharing=offer.sharing).select_related("pool__group")
            assert cards.count() == len(offer.cards), info.name
            assert {card.pool.product for card in cards if card.pool} == {offer.product}
        groups = set(Card.objects.filter(node=node, pool__isnull=False).values_list("pool__group", flat=True))
        assert len(groups) <= 1, "pools that share a node are planned together"


def test_reasons_are_stored_as_translatable_messages_with_parameters(refresh: Any) -> None:
    node = {
        "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": A100}},
        "spec": {"unschedulable": True},
        "status": {"capacity": {"nvidia.com/gpu": "2"}, "allocatable": {"nvidia.com/gpu": "2"}},
    }
    info = sharing.discover(node)
    assert info is not None
    refresh(info)
    row = Node.objects.get()
    assert row.because_of["message"] % row.because_of["params"] == row.because
    assert [each["message"] for each in row.held_back_by] == ["cordoned"]


def test_nominal_capacity_stays_when_cards_turn_unhealthy_or_are_no_longer_listed(refresh: Any) -> None:
    refresh(whole(count=8))
    pool = Pool.objects.get()
    assert (pool.nominal, pool.card_mib) == (8, 81920)
    refresh(whole(count=8, healthy=7))
    refresh(whole(count=7, healthy=7))
    assert refresh(whole(count=7, healthy=7)) == 0
    pool.refresh_from_db()
    assert pool.nominal == 8
    assert Card.objects.filter(healthy=True).count() == 7


def test_capacity_moves_between_pools_when_a_node_changes_its_mode(refresh: Any) -> None:
    refresh(whole("n1"), whole("n2"))
    cards = Pool.objects.get(sharing="whole")
    assert cards.nominal == 16
    refresh(cut("n1"), whole("n2"))
    slices = Pool.objects.get(sharing="mig")
    cards.refresh_from_db()
    assert (cards.nominal, slices.nominal) == (8, 64)
    assert Card.objects.filter(node__name="n1").values_list("pool", flat=True).distinct().get() == slices.pk
    refresh(whole("n1"), whole("n2"))
    cards.refresh_from_db()
    slices.refresh_from_db()
    assert (cards.nominal, slices.nominal) == (16, 0)


def test_cards_with_different_replica_counts_form_different_pools(refresh: Any) -> None:
    refresh(sliced("a", 4), sliced("b", 4), sliced("c", 10))
    assert sorted(Pool.objects.values_list("units_per_card", "nominal")) == [(4, 32), (10, 40)]
    assert sorted(Pool.objects.values_list("name", flat=True)) == [
        "Tesla-T4 (timeslicing × 10)",
        "Tesla-T4 (timeslicing × 4)",
    ]


def test_names_of_equal_pools_in_two_clusters_differ_by_cluster(refresh: Any) -> None:
    refresh(whole("n1"))
    other = make.cluster("annex")
    inventory.refresh(other)
    names = dict(Pool.objects.values_list("group__cluster__name", "name"))
    assert names == {"gpu": f"{A100} (whole)", "annex": f"{A100} (whole), annex"}


def test_whole_cards_on_a_mig_node_have_their_own_pool_in_the_same_group(refresh: Any) -> None:
    refresh(whole("n1"))
    beside = Offer("whole", A100, "card", 1, tuple(CardInfo(i, 1) for i in range(4)))
    mixed = NodeInfo(
        "n2", "mig", A100, "slice", 8, tuple(CardInfo(i, 8) for i in range(4, 8)), mig="A100-80GB",
        instances={"1g.10gb": 28}, beside=(beside,),
    )  # fmt: skip
    refresh(whole("n1"), cut("n3"))  # both pools exist, each in its own group
    assert len(set(Pool.objects.values_list("group", flat=True))) == 2
    refresh(whole("n1"), cut("n3"), mixed)
    assert len(set(Pool.objects.values_list("group", flat=True))) == 1
    assert Card.objects.filter(node__name="n2", pool__sharing="whole").count() == 4


def test_operators_create_pools_by_hand_when_the_cluster_asks_first(refresh: Any, cluster: Cluster) -> None:
    Cluster.objects.update(options={"new_pools": "ask"})
    info = sliced("a", 4)
    refresh(info)
    assert refresh(info) == 0
    assert not Pool.objects.exists()
    [offered] = pools.unpooled(Node.objects.prefetch_related("cards").select_related("cluster"))
    assert (offered.key, offered.nodes, offered.cards) == ("gpu/Tesla-T4/timeslicing/4", ("a",), 4)
    operator = Actor(make.user("op", is_operator=True))
    with pytest.raises(NotVisible):
        pools.make_pool(actor=Actor(make.user("eve")), kind=offered, name="T4", slug="t4")
    with pytest.raises(Invalid):
        pools.make_pool(actor=operator, kind=offered, name="T4", slug="T 4")
    pool = pools.make_pool(actor=operator, kind=offered, name="T4, a quarter each", slug="t4-quarter")
    assert refresh(info) == 1
    pool.refresh_from_db()
    assert (pool.nominal, pool.cards.count()) == (16, 4)
    assert pools.unpooled(Node.objects.prefetch_related("cards").select_related("cluster")) == []


def test_cards_of_unknown_products_form_no_pool_even_if_equal_in_size(refresh: Any) -> None:
    def shared(name: str, mib: int) -> NodeInfo:
        return NodeInfo(name, "memory", "", "MiB", mib, (CardInfo(0, mib, memory_mib=mib),))

    refresh(shared("v100-1", 15360), shared("v100-2", 15360), shared("a100", 80896))
    assert not Pool.objects.exists()


def test_messages_quoted_inside_a_reason_are_translated_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = as_json(node_from(NODES[-1]).held_back_by[0])
    assert tags.note(reason).endswith("HAMi and Time-slicing (its nvidia.com/gpu.sharing-strategy is time-slicing)")
    monkeypatch.setattr(words, "_", lambda text: f"<{text}>")
    assert tags.note(reason).endswith(
        "<HAMi> and <Time-slicing> (<its nvidia.com/gpu.sharing-strategy is time-slicing>)>"
    )


def test_pod_limit_and_devices_of_a_node_reach_the_scheduler_snapshot(refresh: Any) -> None:
    refresh(replace(whole(), pods=29, devices={"rdma/hca": 4}))
    assert refresh(replace(whole(), pods=29, devices={"rdma/hca": 4})) == 0
    [pool] = load_snapshot(Pool.objects.get().group, now=timezone.now()).pools
    assert [(node.pods, dict(node.devices)) for node in pool.nodes or ()] == [(29, {"rdma/hca": 4})]
    assert refresh(replace(whole(), pods=58)) == 1


def test_cpu_and_memory_per_card_are_the_smallest_share_among_the_pools_nodes(refresh: Any) -> None:
    refresh(replace(whole("n1"), cpu_milli=64_000, memory_mib=512_000), replace(whole("n2"), cpu_milli=60_000))
    pool = Pool.objects.get()
    assert pool.with_a_card == (7_500, 64_000)
    Pool.objects.update(beside_percent=80)
    pool.refresh_from_db()
    assert pool.with_a_card == (6_000, 51_200)
    [planned] = load_snapshot(pool.group, now=timezone.now()).pools
    assert (planned.cpu_per_card, planned.memory_per_card) == (6_000, 51_200)
    refresh(replace(whole("n1"), cpu_milli=64_000, memory_mib=512_000))
    pool.refresh_from_db()
    assert pool.cpu_per_card == 8_000, "a node that is gone no longer counts"


def test_node_with_two_kinds_of_cards_divides_its_cpu_among_all_cards(refresh: Any) -> None:
    half = whole("n1", count=4)
    beside = Offer("mig", A100, "slice", 8, tuple(CardInfo(i, 8) for i in range(4, 8)), {"1g.10gb": 28}, "A100-80GB")
    refresh(replace(half, cpu_milli=64_000, beside=(beside,)))
    assert {pool.with_a_card for pool in Pool.objects.all()} == {(8_000, 0)}

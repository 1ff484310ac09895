"""Nodes of cloud providers, which have labels of their own: how cards are shared, their product, and which nodes are held
back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sharing.test_discovery import assert_valid
from tests.sharing.test_field import of_field
from workloads import sharing
from workloads.nodes.pools import key_of, servable
from workloads.runtime.base import NodeInfo
from workloads.sharing import SYSTEMS, Request, Settings
from workloads.sharing.clouds import product_of

GKE = "cloud.google.com/gke-"
TYPE = "node.kubernetes.io/instance-type"
UNKNOWN = "no label names the product of its cards: set nvidia.com/gpu.product on the node, or pin the product"


def node(gpus: int | str = 8, name: str = "n1", **labels: str) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": str(gpus)}
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": ready},
    }


def gke(gpus: int | str, **labels: str) -> dict[str, Any]:
    names = {"clients": "max-shared-clients-per-gpu", "strategy": "gpu-sharing-strategy", "count": "accelerator-count",
             "partition": "gpu-partition-size", "accelerator": "accelerator"}  # fmt: skip
    return node(gpus, **{GKE + names[key]: value for key, value in labels.items()})


def discovered(node_object: dict[str, Any], overrides: Settings | None = None) -> NodeInfo:
    info = sharing.discover(node_object, overrides)
    assert info is not None
    assert_valid(info)
    return info


class TestGke:
    def test_shared_clients_of_a_card_are_its_replicas(self) -> None:
        (info,) = of_field("gke-time-sharing")
        assert (info.sharing, info.product, info.units_per_card, len(info.cards), info.held_back) == (
            "timeslicing", "nvidia-tesla-t4-SHARED", 48, 1, "",
        )  # fmt: skip
        patch = SYSTEMS["timeslicing"].manifest(Request(info.product, 1), Settings())
        assert patch.limits == {"nvidia.com/gpu": "1"}
        assert patch.node_selector == {f"{GKE}accelerator": "nvidia-tesla-t4"}

    @pytest.mark.parametrize(
        ("labels", "gpus", "system", "units", "cards", "held"),
        [
            ({"strategy": "time-sharing", "clients": "4"}, 8, "timeslicing", 4, 2, ""),
            ({"strategy": "mps", "clients": "10", "count": "1"}, 10, "mps", 10, 1, ""),
            ({"strategy": "mps", "clients": "3"}, 24, "mps", 3, 8, ""),
            ({"strategy": "none"}, 8, "whole", 1, 8, ""),
            ({}, 8, "whole", 1, 8, ""),
            (
                {"strategy": "time-sharing", "clients": "4", "count": "3"},
                8,
                "timeslicing",
                2,
                3,
                "cannot be divided evenly",
            ),
            (
                {"strategy": "time-sharing", "clients": "5", "count": "2"},
                8,
                "timeslicing",
                4,
                2,
                "labels say 5 per card",
            ),
            ({"strategy": "time-sharing"}, 8, "timeslicing", 1, 0, "its labels do not say on how many cards"),
            (
                {"strategy": "time-sharing", "clients": "many"},
                8,
                "timeslicing",
                1,
                0,
                "its labels do not say on how many cards",
            ),
            ({"strategy": "sideways", "clients": "4"}, 8, "whole", 1, 8, "gpu-sharing-strategy is sideways"),
        ],
    )
    def test_sharing_is_read_from_the_labels(
        self, labels: dict[str, str], gpus: int, system: str, units: int, cards: int, held: str
    ) -> None:
        info = discovered(gke(gpus, accelerator="nvidia-l4", **labels))
        assert (info.sharing, info.units_per_card, len(info.cards)) == (system, units, cards)
        assert held in info.held_back
        assert bool(held) == bool(info.held_back)

    @pytest.mark.parametrize(
        ("accelerator", "size", "gpus", "cards", "table"),
        [
            ("nvidia-tesla-a100", "1g.5gb", 14, 2, "A100-40GB"),
            ("nvidia-a100-80gb", "3g.40gb", 16, 8, "A100-80GB"),
            ("nvidia-h100-80gb", "7g.80gb", 8, 8, "H100-80GB"),
            ("nvidia-h100-mega-80gb", "1g.20gb", 32, 8, "H100-80GB"),
            ("nvidia-h200-141gb", "1g.18gb", 56, 8, "H200-141GB"),
            ("nvidia-rtx-pro-6000", "1g.24gb", 4, 1, "RTX-PRO-6000-96GB"),
            ("nvidia-gb200", "1g.23gb", 28, 4, "GB200-186GB"),
        ],
    )
    def test_partitions_are_mig_instances(self, accelerator: str, size: str, gpus: int, cards: int, table: str) -> None:
        info = discovered(gke(gpus, accelerator=accelerator, partition=size))
        assert (info.sharing, dict(info.instances), len(info.cards), info.mig, info.held_back) == (
            "mig", {size: gpus}, cards, table, "",
        )  # fmt: skip
        patch = SYSTEMS["mig"].manifest(Request(info.product, 1, profile=size), Settings())
        assert (patch.limits, patch.node_selector) == ({"nvidia.com/gpu": "1"}, {f"{GKE}accelerator": accelerator})

    def test_time_sliced_partitions_are_not_served(self) -> None:
        labels = {"partition": "1g.5gb", "strategy": "time-sharing", "clients": "2"}
        info = discovered(gke(14, accelerator="nvidia-tesla-a100", **labels))
        assert "time-sliced, which is not supported" in info.held_back

    def test_labels_of_gpu_feature_discovery_do_not_hide_the_sharing(self) -> None:
        node_object = gke(48, accelerator="nvidia-tesla-t4", strategy="time-sharing", clients="48")
        node_object["metadata"]["labels"] |= {
            "nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.replicas": "1",
            "nvidia.com/gpu.sharing-strategy": "none",
        }  # fmt: skip
        info = discovered(node_object)
        assert (info.sharing, info.units_per_card, len(info.cards), info.held_back) == ("timeslicing", 48, 1, "")

    def test_labels_of_the_node_are_kept_unchanged(self) -> None:
        node_object = gke(8, accelerator="nvidia-l4", strategy="mps", clients="4")
        assert dict(discovered(node_object).labels) == node_object["metadata"]["labels"]


class TestProduct:
    @pytest.mark.parametrize(
        ("labels", "product"),
        [
            ({f"{GKE}accelerator": "nvidia-tesla-a100", TYPE: "a2-highgpu-8g"}, "nvidia-tesla-a100"),
            ({TYPE: "p4d.24xlarge"}, "NVIDIA-A100-SXM4-40GB"),
            ({TYPE: "p4de.24xlarge", "k8s.amazonaws.com/accelerator": "nvidia-tesla-a100"}, "NVIDIA-A100-SXM4-80GB"),
            ({TYPE: "g4dn.12xlarge"}, "Tesla-T4"),
            ({TYPE: "ml.p5.48xlarge"}, "NVIDIA-H100-80GB-HBM3"),
            ({TYPE: "p5en.48xlarge"}, "NVIDIA-H200"),
            ({TYPE: "g6e.xlarge"}, "NVIDIA-L40S"),
            ({TYPE: "g5.xlarge"}, "NVIDIA-A10G"),
            ({"beta.kubernetes.io/instance-type": "p3.16xlarge"}, "Tesla-V100-SXM2-16GB"),
            ({TYPE: "g6f.large"}, ""),  # an eighth of a card
            ({TYPE: "Standard_NC24ads_A100_v4"}, "NVIDIA-A100-80GB-PCIe"),
            ({TYPE: "Standard_ND96asr_v4"}, "NVIDIA-A100-SXM4-40GB"),
            ({TYPE: "Standard_NC4as_T4_v3"}, "Tesla-T4"),
            ({TYPE: "Standard_NC40ads_H100_v5"}, "NVIDIA-H100-NVL"),
            ({TYPE: "Standard_ND96isr_H200_v5"}, "NVIDIA-H200"),
            ({TYPE: "Standard_NV6ads_A10_v5"}, ""),  # a sixth of a card
            ({TYPE: "Standard_D4s_v5"}, ""),
            ({TYPE: "BM.GPU4.8"}, "NVIDIA-A100-SXM4-40GB"),
            ({TYPE: "BM.GPU.A100-v2.8"}, "NVIDIA-A100-SXM4-80GB"),
            ({TYPE: "VM.GPU.A10.2"}, "NVIDIA-A10"),
            ({TYPE: "BM.GPU.H100.8"}, "NVIDIA-H100-80GB-HBM3"),
            ({"eks.amazonaws.com/instance-gpu-name": "l40s"}, "NVIDIA-L40S"),
            (
                {"karpenter.k8s.aws/instance-gpu-name": "a100", "karpenter.k8s.aws/instance-gpu-memory": "81920"},
                "NVIDIA-A100-SXM4-80GB",
            ),
            ({"karpenter.k8s.aws/instance-gpu-name": "a100"}, ""),  # of unknown memory
            ({"k8s.amazonaws.com/accelerator": "true"}, ""),
            ({"k8s.amazonaws.com/accelerator": "nvidia-tesla-a10g"}, "NVIDIA-A10G"),
            ({"aliyun.accelerator/nvidia_name": "Tesla V100-SXM2-32GB"}, "Tesla-V100-SXM2-32GB"),
            ({"gpu.nvidia.com/model": "A100_PCIE_80GB"}, "A100-PCIE-80GB"),
            ({"kubernetes.azure.com/accelerator": "nvidia"}, ""),
        ],
    )
    def test_product_comes_from_the_labels_of_the_cloud(self, labels: dict[str, str], product: str) -> None:
        assert product_of(labels) == product
        info = discovered(node(8, **labels))
        assert (info.product, info.held_back) == (product, "" if product else UNKNOWN)

    def test_product_of_gpu_feature_discovery_takes_precedence(self) -> None:
        info = discovered(node(8, **{TYPE: "p4d.24xlarge", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}))
        assert info.product == "NVIDIA-A100-SXM4-80GB"

    def test_two_products_without_gpu_feature_discovery_are_told_apart(self) -> None:
        a100, t4 = of_field("two-products-no-gfd")
        assert {a100.product, t4.product} == {"nvidia-tesla-a100", "nvidia-tesla-t4"}
        assert {key_of(offer) for offer in servable(a100)}.isdisjoint(key_of(offer) for offer in servable(t4))

    def test_product_set_by_the_operator_takes_precedence(self) -> None:
        overrides = Settings(products={"n1": "NVIDIA-L20", "rack=a": "NVIDIA-L40"})
        info = discovered(node(8), overrides)
        assert (info.product, info.held_back) == ("NVIDIA-L20", "")
        assert discovered(node(8, name="n2", rack="a"), overrides).product == "NVIDIA-L40"
        assert discovered(node(8, **{"nvidia.com/gpu.product": "NVIDIA-L4"}), overrides).product == "NVIDIA-L20"

    def test_product_set_by_the_operator_keeps_sharing_and_partitions(self) -> None:
        overrides = Settings(products={"n1": "NVIDIA-A100-SXM4-40GB"})
        cut = discovered(gke(14, accelerator="nvidia-x9", partition="1g.5gb"), overrides)
        assert (cut.product, cut.mig) == ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100-40GB")
        shared = discovered(gke(8, accelerator="nvidia-x9", strategy="mps", clients="4"), overrides)
        assert (shared.product, shared.held_back) == ("NVIDIA-A100-SXM4-40GB-SHARED", "")
        (hami,) = of_field("hami-2.7-colon-annotation")
        assert hami.product == "NVIDIA-GeForce-RTX-3090"


NAMES: dict[str, list[str]] = {
    "nvidia.com/gpu.product": ["Tesla-T4", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H20", "Tesla-T4-SHARED", "", " ",
                               "NVIDIA-H20-MIG-1g.12gb"],
    "nvidia.com/gpu.count": ["1", "8", "0", "-1", "x", "9999999"],
    "nvidia.com/gpu.memory": ["15360", "97871", "0", "1e3", "x"],
    "nvidia.com/gpu.replicas": ["1", "4", "0", "x"],
    "nvidia.com/gpu.sharing-strategy": ["none", "time-slicing", "mps", ""],
    "nvidia.com/mig.config.state": ["success", "pending"],
    f"{GKE}accelerator": ["nvidia-tesla-t4", "nvidia-a100-80gb", ""],
    f"{GKE}accelerator-count": ["1", "2", "x"],
    f"{GKE}gpu-sharing-strategy": ["time-sharing", "mps", "none", "sideways"],
    f"{GKE}max-shared-clients-per-gpu": ["1", "4", "48", "0", "many", "٤"],
    f"{GKE}gpu-partition-size": ["1g.10gb", "3g.40gb", "1g", ""],
    TYPE: ["p4d.24xlarge", "g4dn.xlarge", "Standard_NC4as_T4_v3", "m5.large", ""],
    "eks.amazonaws.com/instance-gpu-name": ["t4", "a100", "?"],
    "eks.amazonaws.com/instance-gpu-memory": ["16384", "40960", "x"],
    "aliyun.accelerator/nvidia_name": ["Tesla-V100-SXM2-16GB", ""],
    "k8s.amazonaws.com/accelerator": ["true", "nvidia-tesla-t4"],
    "gpu": ["on", "off"],
    "gpushare": ["true"],
    "SharedGPU": ["true"],
}  # fmt: skip
AMOUNTS: dict[str, list[str]] = {
    "nvidia.com/gpu": ["0", "1", "4", "8", "48", "20", "-1", "x", "1e9"],
    "nvidia.com/gpu.shared": ["0", "8", "x"],
    "nvidia.com/mig-1g.10gb": ["0", "7", "56", "x"],
    "nvidia.com/mig-1g.12gb": ["56"],
    "nvidia.com/mig-1g.24gb.me.all": ["1"],
    "nvidia.com/mig-what": ["3"],
    "aliyun.com/gpu-mem": ["60", "x"],
    "aliyun.com/gpu-count": ["4", "0"],
    "tencent.com/vcuda-core": ["400", "150"],
    "tencent.com/vcuda-memory": ["236"],
    "volcano.sh/vgpu-number": ["40"],
    "volcano.sh/gpu-number": ["4"],
}
REGISTERS = ["", "[]", "[{}]", ":", ",,,,,,:", "{", "GPU-0,10,24576,100,NVIDIA-NVIDIA GeForce RTX 3090,0,true,0,hami-core:",
             "GPU-0,10,24576,500,NVIDIA-Tesla T4,0,true:", "GPU-0,10,x,100,T4,0,true:GPU-1",
             '[{"id": "GPU-0", "devmem": 15360, "devcore": 100, "type": "NVIDIA-Tesla T4", "health": true}]']  # fmt: skip


def some(of: dict[str, list[str]], most: int) -> st.SearchStrategy[dict[str, str]]:
    pair = st.sampled_from([(name, value) for name, values in of.items() for value in values])
    return st.lists(pair, max_size=most).map(dict)


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    """A node with any mixture of labels, amounts and registers of all systems and clouds."""
    labels, capacity = draw(some(NAMES, 7)), draw(some(AMOUNTS, 4))
    less = draw(some({name: ["0", "1"] for name in capacity}, 2)) if capacity else {}
    notes = {"hami.io/node-nvidia-register": draw(st.sampled_from(REGISTERS))} if draw(st.booleans()) else {}
    host = {"cpu": "64", "memory": "512Gi"}
    return {
        "metadata": {"name": "n1", "labels": labels, "annotations": notes},
        "status": {"capacity": host | capacity, "allocatable": host | capacity | less},
    }


@settings(max_examples=600)
@given(nodes())
def test_any_node_is_consistent_or_held_back_with_a_reason(node_object: dict[str, Any]) -> None:
    info = sharing.discover(node_object)
    assert_valid(info)
    if info is None or info.held_back:
        assert info is None or all(str(note) for note in info.held_back_by)
        return
    assert info.offers
    for offer in info.offers:
        assert offer.product.partition("-MIG-")[0].removesuffix("-SHARED").strip()
        assert any(card.healthy for card in offer.cards)
        assert all(card.units > 0 for card in offer.cards)
    if info.sharing in ("whole", "timeslicing", "mps"):
        resource = (
            "nvidia.com/gpu.shared"
            if info.sharing != "whole" and not info.product.endswith("-SHARED")
            else "nvidia.com/gpu"
        )
        allocatable = int(node_object["status"]["allocatable"].get(resource, "0"))
        assert sum(card.units for card in info.cards if card.healthy) <= allocatable


@settings(max_examples=300)
@given(nodes(), nodes())
def test_two_products_never_have_the_same_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    """A pool is found by `key_of`: every node that it serves has its product, and no product is empty."""
    infos = [info for info in map(sharing.discover, (one, other)) if info is not None]
    keys: dict[Any, str] = {}
    for info in infos:
        for offer in servable(info):
            assert keys.setdefault(key_of(offer), offer.product) == offer.product
            assert offer.product.strip() or info.held_back

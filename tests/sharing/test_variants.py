"""Nodes as other clusters have them: other products, counts and units, labels of other versions, incomplete changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from tests.sharing.table import NODES, node
from workloads import sharing
from workloads.sharing import Settings

PRODUCT, COUNT, REPLICAS = "nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu.replicas"
STRATEGY, GPU, SHARED = "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu", "nvidia.com/gpu.shared"
WHOLE, SLICED, RENAMED = "dgx-a100-80-whole-0", "t4x4-timeslice-shared", "t4x4-timeslice-renamed"
MIXED, SINGLE = "dgx-a100-80-mig-mixed", "dgx-a100-40-mig-single"
MEM, MEMS = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
REGISTER = "hami.io/node-nvidia-register"


def cut(product: str, count: int, **instances: int) -> dict[str, Any]:
    """A node under strategy mixed with other instances, and the labels that count them."""
    own = [f"nvidia.com/mig-{name}" for name in ("1g.10gb", "2g.20gb", "3g.40gb")]
    new = {f"nvidia.com/mig-{name.replace('_', '.')}": str(amount) for name, amount in instances.items()}
    removed: dict[str, str | None] = {f"{name}.count": None for name in own}
    labels = removed | {f"{name}.count": amount for name, amount in new.items()}
    return node(
        MIXED, labels={**labels, PRODUCT: product, COUNT: str(count)}, amounts={**dict.fromkeys(own), **new}
    )  # fmt: skip


def single(product: str, count: int) -> dict[str, Any]:
    return node(SINGLE, labels={PRODUCT: product, COUNT: str(count)}, amounts={GPU: str(count)})


def registered(**changes: Any) -> dict[str, Any]:
    card = {"id": "GPU-0", "count": 10, "devmem": 46068, "devcore": 100, "type": "NVIDIA L20", "health": True}
    return node("hami-a100-40", notes={REGISTER: json.dumps([card | changes])}, amounts={GPU: "10"})


def dynamic(**attributes: Any) -> dict[str, Any]:
    """The node with ResourceSlices, where an attribute of all its devices is changed; None removes it."""
    changed = deepcopy(NODES["dra-a100-80"])
    for device in changed["resourceSlices"][0]["spec"]["devices"]:
        for name, value in attributes.items():
            device["attributes"].pop(name, None)
            if value is not None:
                device["attributes"][name] = {"string": value}
    return changed


MIB = Settings(gpu_mem_unit="MiB")
SERVED: dict[str, tuple[Mapping[str, Any], Settings, tuple[str, str, int, int, int]]] = {
    # → system, product, units of a card, cards, healthy ones
    "L20, whole": (node(WHOLE, labels={PRODUCT: "NVIDIA-L20"}), Settings(), ("whole", "NVIDIA-L20", 1, 8, 8)),
    "GH200, one card without labels for its number and strategy": (
        node(WHOLE, labels={PRODUCT: "NVIDIA-GH200-480GB", COUNT: None, STRATEGY: None}, amounts={GPU: "1"}),
        Settings(), ("whole", "NVIDIA-GH200-480GB", 1, 1, 1),
    ),
    "L20, two replicas on each": (
        node(SLICED, labels={PRODUCT: "NVIDIA-L20-SHARED", COUNT: "8", REPLICAS: "2"}),
        Settings(), ("timeslicing", "NVIDIA-L20-SHARED", 2, 8, 8),
    ),
    "time-sliced, before the strategy label is set": (
        node(SLICED, labels={STRATEGY: None}), Settings(), ("timeslicing", "Tesla-T4-SHARED", 4, 4, 4),
    ),
    "renamed resource, before the strategy label is set": (
        node(RENAMED, labels={STRATEGY: None}), Settings(), ("timeslicing", "Tesla-T4", 4, 4, 4),
    ),
    "H200 with MPS, one card lost": (
        node(
            "h100x8-mps-10", labels={PRODUCT: "NVIDIA-H200-SHARED", REPLICAS: "7"}, amounts={GPU: "56"},
            usable={GPU: "49"},
        ),
        Settings(), ("mps", "NVIDIA-H200-SHARED", 7, 8, 7),
    ),
    "H200, balanced": (
        cut("NVIDIA-H200", 8, **{"1g_18gb": 16, "2g_35gb": 8, "3g_71gb": 8}), Settings(), ("mig", "NVIDIA-H200", 8, 8, 8),
    ),
    "B200": (cut("NVIDIA-B200", 2, **{"1g_23gb": 14}), Settings(), ("mig", "NVIDIA-B200", 8, 2, 2)),
    "A30, mixed": (cut("NVIDIA-A30", 2, **{"1g_6gb": 4, "2g_12gb": 2}), Settings(), ("mig", "NVIDIA-A30", 4, 2, 2)),
    "A30, single": (single("NVIDIA-A30-MIG-1g.6gb", 8), Settings(), ("mig", "NVIDIA-A30-MIG-1g.6gb", 4, 2, 2)),
    "A30, single, its cards counted by the operator": (
        single("NVIDIA-A30-MIG-1g.6gb", 8), Settings(cards={"dgx-a100-40-mig-single": 2}),
        ("mig", "NVIDIA-A30-MIG-1g.6gb", 4, 2, 2),
    ),
    "with its media engine, single": (
        single("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me", 8),
        Settings(), ("mig", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me", 8, 8, 8),
    ),
    "gpushare on A100": (
        node("gpushare-v100x4", amounts={MEM: "632", MEMS: "8"}), Settings(), ("memory", "Tesla-V100-SXM2-16GB", 79 * 1024, 8, 8),
    ),
    "gpushare in MiB": (node("gpushare-v100x4", amounts={MEM: "64540"}), MIB, ("memory", "Tesla-V100-SXM2-16GB", 16135, 4, 4)),
    "vCUDA on V100": (
        node("gpumanager-t4x4", amounts={"tencent.com/vcuda-core": "800", "tencent.com/vcuda-memory": "1024"}),
        Settings(), ("vcuda", "Tesla-T4", 32768, 8, 8),
    ),
    "HAMi on L20": (registered(), Settings(), ("hami", "NVIDIA-L20", 46068, 1, 1)),
    "HAMi of a version that puts the vendor first": (
        registered(type="NVIDIA-Tesla V100-SXM2-32GB", devmem=32768), Settings(),
        ("hami", "Tesla-V100-SXM2-32GB", 32768, 1, 1),
    ),
    "Volcano's vGPU on V100, one card unhealthy": (
        node("volcano-vgpu-t4x4", notes={"volcano.sh/node-vgpu-register": "".join(
            f"GPU-{i},10,32768,NVIDIA-Tesla V100,{'false' if i else 'true'},hami-core:" for i in range(2)
        )}),
        Settings(), ("volcano-vgpu", "Tesla-V100", 32768, 2, 1),
    ),
    "KubeShare, cards counted by GPU feature discovery": (
        node("kubeshare-v100x4", labels={COUNT: "4", PRODUCT: "Tesla-V100"}), Settings(),
        ("kubeshare", "Tesla-V100", 100, 4, 4),
    ),
    "DRA without a product name": (
        dynamic(productName=None), Settings(), ("dra", "NVIDIA-A100-SXM4-80GB", 1, 8, 8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SERVED)
def test_variant_of_a_node_is_served(name: str) -> None:
    changed, settings, expected = SERVED[name]
    info = sharing.discover(changed, settings)
    assert info is not None
    assert info.held_back == ""
    healthy = sum(card.healthy for card in info.cards)
    assert (info.sharing, info.product, info.units_per_card, len(info.cards), healthy) == expected


HELD: dict[str, tuple[Mapping[str, Any], Settings, str, str]] = {
    "two products behind one label": (
        node(WHOLE, labels={COUNT: "4"}), Settings(), "whole",
        "8 of nvidia.com/gpu, but its nvidia.com/gpu.count is 4: cards of several products, or shared",
    ),
    "replicas of cards whose labels say that they are whole": (
        node(WHOLE, labels={REPLICAS: "4"}), Settings(), "whole", "its nvidia.com/gpu.replicas is 4: its cards may be shared",
    ),
    "HAMi without its annotation": (
        node("hami-a100-40", notes={REGISTER: None}), Settings(), "hami", f"{REGISTER} lists no card",
    ),
    "HAMi that partitions its cards": (registered(mode="mig"), Settings(), "hami",
     "its cards are partitioned on demand, which is not supported"),
    "replicas that cannot be divided evenly": (
        node(SLICED, labels={COUNT: "3"}), Settings(), "timeslicing",
        "16 of nvidia.com/gpu cannot be divided evenly among 3 cards",
    ),
    "other number of replicas than the label says": (
        node(SLICED, amounts={GPU: "32"}), Settings(), "timeslicing",
        "32 of nvidia.com/gpu on 4 cards, but its labels say 4 per card",
    ),
    "renamed resource, and whole cards still offered": (
        node(RENAMED, amounts={GPU: "4"}), Settings(), "timeslicing",
        "it offers both nvidia.com/gpu and nvidia.com/gpu.shared: the same cards are counted twice",
    ),
    "time-sliced instances": (
        node(MIXED, amounts={"nvidia.com/mig-1g.10gb": None, "nvidia.com/mig-1g.10gb.shared": "64"}), Settings(), "mig",
        "its instances are time-sliced, which is not supported",
    ),
    "change incomplete": (
        node(MIXED, amounts={"nvidia.com/mig-3g.40gb": "0"}), Settings(), "mig",
        "change incomplete: its labels say 8 of nvidia.com/mig-3g.40gb, it advertises 0",
    ),
    "change incomplete, strategy single": (
        node(SINGLE, amounts={GPU: "48"}), Settings(), "mig",
        "change incomplete: its labels say 56 of nvidia.com/gpu, it advertises 48",
    ),
    "more instances of a profile than fit": (
        cut("NVIDIA-A100-SXM4-80GB", 2, **{"2g_20gb": 8}), Settings(), "mig",
        "it has 8 of 2g.20gb, but 2 partitioned cards hold at most 6",
    ),
    "unknown number of partitioned cards": (node(MIXED, labels={COUNT: None}), Settings(), "mig",
     "its labels do not say how many cards are partitioned"),
    "MiB read as GiB": (
        node("gpushare-v100x4", amounts={MEM: "64540"}), Settings(), "memory",
        "16522240 MiB for a card is implausible: check gpu_mem_unit",
    ),
    "GiB read as MiB": (node("gpushare-v100x4"), MIB, "memory", "15 MiB for a card is implausible: check gpu_mem_unit"),
    "more than the database can store": (
        node("gpushare-v100x4", amounts={MEM: "2000000000"}), Settings(), "memory",
        "512000000000 MiB for a card is implausible: check gpu_mem_unit",
    ),
    "gpushare on different cards": (
        node("gpushare-v100x4", amounts={MEM: "61"}), Settings(), "memory",
        "61 of aliyun.com/gpu-mem cannot be divided evenly among 4 cards",
    ),
    "gpushare without its plugin": (
        node("gpushare-v100x4", amounts={MEM: None, MEMS: None}), Settings(), "memory", "its device plugin offers nothing",
    ),
    "gpu-manager that was removed": (
        node("gpumanager-t4x4", amounts={"tencent.com/vcuda-core": "0", "tencent.com/vcuda-memory": "0"}), Settings(),
        "vcuda", "its device plugin offers nothing",
    ),
    "cGPU that counts compute in another unit": (
        node("ack-cgpu-core-mem-v100x4", amounts={"aliyun.com/gpu-core.percentage": "100"}), Settings(), "ack-core",
        "100 of aliyun.com/gpu-core.percentage is not 100 for each of 4 cards",
    ),
    "GPUs of virtual machines, without the label": (
        node("kubevirt-vgpu-a10x2", labels={"nvidia.com/gpu.workload.config": None, "nvidia.com/vgpu.config": None}),
        Settings(), "vgpu", "not used: its GPUs serve virtual machines (nvidia.com/NVIDIA_A10-12Q)",
    ),
    "DRA of two products": (
        dynamic(productName="NVIDIA A100-SXM4-80GB") | {"resourceSlices": [
            *NODES["dra-a100-80"]["resourceSlices"], *dynamic(productName="NVIDIA H200")["resourceSlices"],
        ]},
        Settings(), "dra", "it has cards of different products: NVIDIA-A100-SXM4-80GB, NVIDIA-H200",
    ),
    "resource of a removed plugin": (
        {"metadata": {"name": "n"}, "status": {"capacity": {"nvidia.com/gpu": "0"}, "allocatable": {}}}, Settings(), "",
        "it has a GPU that is not offered: its device plugin is not ready",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_inconsistent_node_is_held_back_with_the_reason(name: str) -> None:
    changed, settings, system, reason = HELD[name]
    info = sharing.discover(changed, settings)
    assert info is not None
    assert (info.sharing, info.held_back) == (system, reason)

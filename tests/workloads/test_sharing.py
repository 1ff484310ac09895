"""Which sharing system a node offers, and how each is asked for. Nodes as in tests/cluster/data/kwok_gpu_nodes.yaml."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from quotas.engine.mig import PRODUCTS
from workloads import sharing
from workloads.clusters.base import NodeInfo
from workloads.sharing import Held, Request, Settings, memory, mig, whole

FILE = Path(__file__).parents[1] / "cluster/data/kwok_gpu_nodes.yaml"
NODES = {n["metadata"]["name"]: n for n in yaml.safe_load_all(FILE.read_text()) if n and n["kind"] == "Node"}
SETTINGS = Settings()


def node(name: str, **labels: str) -> dict[str, Any]:
    changed = deepcopy(NODES[name])
    changed["metadata"]["labels"].update({key.replace("__", "/"): value for key, value in labels.items()})
    return changed


def found(name: str, **labels: str) -> NodeInfo:
    info = sharing.discover(node(name, **labels))
    assert info is not None
    return info


class TestDerivation:
    def test_a_node_without_any_gpu_is_not_in_the_inventory(self) -> None:
        plain = {
            "metadata": {"name": "cpu-1"},
            "spec": {},
            "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}},
        }
        assert sharing.discover(plain) is None

    def test_a_cordoned_or_unready_node_is_held_back(self) -> None:
        cordoned = node("dgx-a100-80-whole-0")
        cordoned["spec"]["unschedulable"] = True
        info = sharing.discover(cordoned)
        assert info is not None
        assert info.held_back == "cordoned"
        unready = node("dgx-a100-80-whole-0")
        since = {"reason": "NodeStatusUnknown", "lastTransitionTime": "2031-01-01T00:00:00Z"}
        unready["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", **since}]
        info = sharing.discover(unready)
        assert info is not None
        assert info.held_back == "not ready since 2031-01-01T00:00:00Z: NodeStatusUnknown"

    def test_cpu_and_memory_of_the_node_are_in_millicores_and_mib(self) -> None:
        info = found("dgx-a100-80-whole-0")
        assert (info.cpu_milli, info.memory_mib) == (256_000, 2_113_344_560 // 1024)

    def test_an_invalid_mig_layout_is_held_back(self) -> None:
        info = found("dgx-a100-40-mig-single", **{"nvidia.com__gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-INVALID"})
        assert "cut unevenly" in info.held_back
        assert dict(info.instances) == {}


class TestWholeCards:
    def test_an_unhealthy_device_is_quarantined(self) -> None:
        cards = found("dgx-a100-80-whole-1gpu-lost").cards
        assert [card.healthy for card in cards] == [True] * 7 + [False]

    def test_are_asked_for_by_resource_and_product(self) -> None:
        patch = whole.manifest(Request("NVIDIA-A100-SXM4-80GB", 4), SETTINGS)
        assert patch.limits == {"nvidia.com/gpu": "4"}
        assert patch.node_selector == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}

    @pytest.mark.parametrize("name", ["NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD", "CUDA_DISABLE_CONTROL"])
    def test_do_not_let_the_user_choose_the_cards(self, name: str) -> None:
        (problem,) = whole.validate(Request("A100", 1, env={name: "all", "EPOCHS": "3"}), SETTINGS)
        assert (problem.field, problem.code, problem.params) == ("env", "reserved_variable", {"name": name})


class TestMig:
    def test_of_the_single_strategy_counts_cards_not_instances(self) -> None:
        info = found("dgx-a100-40-mig-single")
        assert (len(info.cards), info.units_per_card, info.mig) == (8, 8, "A100-40GB")
        assert dict(info.instances) == {"1g.5gb": 56}
        patch = mig.manifest(Request(info.product, 1, profile="1g.5gb"), SETTINGS)
        assert patch.limits == {"nvidia.com/gpu": "1"}
        assert patch.node_selector == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}

    def test_of_the_mixed_strategy_has_a_resource_for_each_profile(self) -> None:
        info = found("dgx-a100-80-mig-mixed")
        assert dict(info.instances) == {"1g.10gb": 16, "2g.20gb": 8, "3g.40gb": 8}
        patch = mig.manifest(Request(info.product, 4, profile="3g.40gb"), SETTINGS)
        assert patch.limits == {"nvidia.com/mig-3g.40gb": "1"}

    def test_leaves_whole_cards_beside_to_their_own_pool(self) -> None:
        info = found("dgx-a100-40-mig-custom")
        assert [card.index for card in info.cards] == [4, 5, 6, 7]
        (beside,) = info.beside
        assert (beside.sharing, beside.unit, [card.index for card in beside.cards]) == ("whole", "card", [0, 1, 2, 3])

    def test_a_media_profile_is_written_with_a_dot_in_the_resource(self) -> None:
        patch = mig.manifest(Request("NVIDIA-A100-SXM4-80GB", 1, profile="1g.10gb+me"), SETTINGS)
        assert patch.limits == {"nvidia.com/mig-1g.10gb.me": "1"}
        cut = node("dgx-a100-80-mig-mixed")
        for of in ("capacity", "allocatable"):
            cut["status"][of]["nvidia.com/mig-1g.10gb.me"] = "2"
        info = sharing.discover(cut)
        assert info is not None
        assert info.instances["1g.10gb+me"] == 2

    def test_an_unknown_profile_is_refused_with_the_list(self) -> None:
        (problem,) = mig.validate(Request("NVIDIA-A100-SXM4-80GB", 1, profile="1g.5gb"), SETTINGS)
        assert (problem.field, problem.code) == ("profile", "no_such_profile")
        assert "3g.40gb" in problem.detail

    def test_units_that_are_not_the_profiles_size_and_several_pods_are_refused(self) -> None:
        request = Request("NVIDIA-A100-SXM4-80GB", 3, pods=2, profile="3g.40gb")
        assert [problem.code for problem in mig.validate(request, SETTINGS)] == ["no_peers", "wrong_size"]

    def test_every_product_label_has_a_table_of_profiles(self) -> None:
        assert set(mig.TABLES.values()) <= set(PRODUCTS)
        assert {table: mig.slices(table) for table in set(mig.TABLES.values())} == {
            table: 4 if table == "A30" else 8 for table in set(mig.TABLES.values())
        }


class TestMemory:
    def test_a_card_has_the_plugins_whole_gib(self) -> None:
        info = found("gpushare-v100x4")
        assert [(card.units, card.healthy) for card in info.cards] == [(15 * 1024, True)] * 4
        assert (info.unit, info.units_per_card) == ("MiB", 15 * 1024)

    def test_a_card_that_is_gone_is_quarantined(self) -> None:
        lost = node("gpushare-v100x4")
        lost["status"]["allocatable"]["aliyun.com/gpu-mem"] = "45"
        info = sharing.discover(lost)
        assert info is not None
        assert [card.healthy for card in info.cards] == [True, True, True, False]

    def test_is_asked_for_in_the_clusters_unit(self) -> None:
        request = Request("", 4096)
        assert memory.manifest(request, SETTINGS).limits == {"aliyun.com/gpu-mem": "4"}
        assert memory.manifest(request, Settings(gpu_mem_unit="MiB")).limits == {"aliyun.com/gpu-mem": "4096"}

    def test_that_is_no_whole_gib_is_refused_with_the_step(self) -> None:
        (problem,) = memory.validate(Request("", 1500), SETTINGS)
        assert (problem.code, problem.params) == ("not_a_multiple", {"step": 1024, "asked": 1500, "unit": "MiB"})
        assert memory.validate(Request("", 1500), Settings(gpu_mem_unit="MiB")) == ()

    def test_is_read_back_from_the_annotation(self) -> None:
        pod = {"metadata": {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "2"}}}
        assert memory.read_back(pod) == (Held("2"),)
        assert memory.read_back({"metadata": {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "-1"}}}) == ()
        assert memory.read_back({"metadata": {}}) == ()

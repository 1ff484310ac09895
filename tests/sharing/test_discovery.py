"""Discovery, whatever the sharing system: which nodes are in the inventory, which are held back, and nodes with invalid
contents."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.mig_profiles import PRODUCTS
from tests.sharing.table import NODES, node, tables
from workloads import sharing
from workloads.runtime.base import NodeInfo
from workloads.sharing import SYSTEMS, Settings, mig, mps
from workloads.sharing.nodes import LARGEST, MOST_CARDS

GARBAGE: list[Any] = [
    "",
    "x",
    "-4",
    "4.5",
    "1e99",
    "9" * 40,
    "NaN",
    "٤",
    None,
    -4,
    10**30,
    3.5,
    True,
    [],
    ["8"],
    {"a": 1},
]
ALL = Settings(pins={"kai-a100-80": "kai"}, cards={"SharedGPU=true": 4})


class TestInventory:
    def test_node_without_a_gpu_is_left_out(self) -> None:
        amounts = {"cpu": "4", "memory": "16Gi"}
        cpu_node = {"metadata": {"name": "cpu-1"}, "spec": {}, "status": {"capacity": amounts, "allocatable": amounts}}
        assert sharing.discover(cpu_node) is None

    def test_node_whose_gpu_is_not_offered_is_held_back(self) -> None:
        info = sharing.discover(node("dgx-a100-80-whole-0", amounts={"nvidia.com/gpu": None}))
        assert info is not None
        assert (info.sharing, info.cards) == ("", ())
        assert info.held_back == "it has a GPU that is not offered: its device plugin is not ready"

    def test_cordoned_or_unready_node_is_held_back(self) -> None:
        cordoned = node("dgx-a100-80-whole-0")
        cordoned["spec"]["unschedulable"] = True
        unready = node("dgx-a100-80-whole-0")
        since = {"reason": "NodeStatusUnknown", "lastTransitionTime": "2031-01-01T00:00:00Z"}
        unready["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", **since}]
        reasons = [info.held_back for info in map(sharing.discover, (cordoned, unready)) if info is not None]
        assert reasons == ["cordoned", "not ready since 2031-01-01T00:00:00Z: NodeStatusUnknown"]

    def test_ready_node_with_other_conditions_is_not_held_back(self) -> None:
        ready = node("dgx-a100-80-whole-0")
        ready["status"]["conditions"] = [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": "True"},
        ]
        info = sharing.discover(ready)
        assert info is not None
        assert info.held_back == ""

    def test_cpu_is_counted_in_millicores_and_memory_in_mib(self) -> None:
        info = sharing.discover(NODES["dgx-a100-80-whole-0"])
        assert info is not None
        assert (info.cpu_milli, info.memory_mib) == (256_000, 2_113_344_560 // 1024)

    def test_discovery_does_not_depend_on_node_names(self) -> None:
        for name, kit in NODES.items():
            renamed = deepcopy(kit)
            renamed["metadata"]["name"] = "n-1"
            original, renamed_node = sharing.discover(kit), sharing.discover(renamed)
            assert original is not None
            assert renamed_node is not None
            assert (original.sharing, original.cards, original.held_back) == (
                renamed_node.sharing,
                renamed_node.cards,
                renamed_node.held_back,
            ), name


class TestShares:
    def test_mps_replica_has_its_part_of_memory_and_threads_rounded_down(self) -> None:
        assert mps.share(81559, 10) == (8155, 10)
        assert mps.share(15360, 3) == (5120, 33)

    def test_every_table_of_mig_profiles_belongs_to_a_family(self) -> None:
        assert {key for _, tables in mig.FAMILIES.values() for key in tables.values()} >= set(PRODUCTS)
        of_four = {"A30", "RTX-PRO-6000-96GB"}
        assert {table: mig.slices(table) for table in PRODUCTS} == {t: 4 if t in of_four else 8 for t in PRODUCTS}


def assert_valid(info: NodeInfo | None) -> None:
    """All values can be stored in the database and planned with."""
    if info is None:
        return
    assert info.sharing in {*SYSTEMS, ""}
    assert 1 <= info.units_per_card <= LARGEST
    assert len(info.product) <= 100
    for offer in info.offers:
        assert len(offer.cards) <= MOST_CARDS
        for card in offer.cards:
            assert 0 <= card.units <= LARGEST
            assert 0 <= card.index <= MOST_CARDS
            assert card.units <= offer.units_per_card
    assert all(0 < count <= LARGEST for count in info.instances.values())
    assert 0 <= (info.cpu_milli or 0) <= LARGEST
    assert 0 <= (info.memory_mib or 0) <= LARGEST
    if not info.cards:
        assert info.held_back


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    paths = [path] if path else []
    if isinstance(value, dict):
        return paths + [found for key, inner in value.items() for found in leaves(inner, (*path, key))]
    if isinstance(value, list):
        return paths + [found for index, inner in enumerate(value) for found in leaves(inner, (*path, index))]
    return paths


def put(tree: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        if not (isinstance(tree, dict) and key in tree) and not (isinstance(tree, list) and key < len(tree)):
            return
        tree = tree[key]
    if isinstance(tree, dict) or (isinstance(tree, list) and path[-1] < len(tree)):
        tree[path[-1]] = value


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A node of the kit with some parts removed, replaced by garbage, or taken from another node."""
    changed = deepcopy(NODES[draw(st.sampled_from(sorted(NODES)))])
    other = NODES[draw(st.sampled_from(sorted(NODES)))]
    for _ in range(draw(st.integers(1, 6))):
        path = draw(st.sampled_from(leaves(changed)))
        match draw(st.sampled_from(["garbage", "text", "gone", "mix"])):
            case "garbage":
                put(changed, path, draw(st.sampled_from([*GARBAGE, "2000000000"])))
            case "text":
                put(changed, path, draw(st.text(max_size=30)))
            case "gone":
                put(changed, path, None)
            case _:
                for part in ("capacity", "allocatable"):
                    if isinstance(changed.get("status"), dict) and isinstance(changed["status"].get(part), dict):
                        changed["status"][part].update(other["status"][part])
    return changed


@settings(max_examples=250)
@given(mutated())
def test_malformed_node_is_discovered_without_an_exception(changed: Any) -> None:
    for overrides in (Settings(), ALL, Settings(gpu_mem_unit="MiB", volcano_memory_factor=1000)):
        assert_valid(sharing.discover(changed, overrides))


@settings(max_examples=80)
@given(st.sampled_from(sorted(SYSTEMS)), mutated())
def test_malformed_node_pinned_to_any_system_raises_no_exception(key: str, changed: Any) -> None:
    name = changed["metadata"].get("name") if isinstance(changed.get("metadata"), dict) else None
    if isinstance(name, str):
        assert_valid(sharing.discover(changed, Settings(pins={name: key}, cards={name: 4})))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=80)
@given(JSON, JSON, JSON)
def test_arbitrary_json_raises_no_exception(metadata: Any, status: Any, anything: Any) -> None:
    assert_valid(
        sharing.discover({"metadata": metadata, "status": status, "spec": anything, "resourceSlices": anything})
    )
    assert_valid(
        sharing.discover({"metadata": {"annotations": {"hami.io/node-nvidia-register": json.dumps(anything)}}})
    )
    for system in SYSTEMS.values():
        assert isinstance(system.read_back({"metadata": metadata, "status": status, "spec": anything}), tuple)


def advertised() -> list[tuple[str, str]]:
    """Every GPU resource that a node of the kit advertises."""
    return [
        (name, resource)
        for name, kit in NODES.items()
        for resource, amount in kit["status"]["capacity"].items()
        if "/" in resource and "kubevirt" not in resource and "NVIDIA_" not in resource and amount != "0"
    ]


@pytest.mark.parametrize(("name", "resource"), advertised())
@pytest.mark.parametrize("value", [value for value in GARBAGE if value != ""])
def test_invalid_amount_holds_the_node_back_and_is_named(name: str, resource: str, value: Any) -> None:
    changed = deepcopy(NODES[name])
    changed["status"]["capacity"][resource] = value
    changed["status"]["allocatable"][resource] = value
    info = sharing.discover(changed, ALL)
    assert info is not None
    assert info.held_back
    if not (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        assert resource in info.held_back or value is None


def test_implausible_number_of_cards_holds_the_node_back() -> None:
    info = sharing.discover(
        node("dgx-a100-80-whole-0", amounts={"nvidia.com/gpu": "1000000"}, labels={"nvidia.com/gpu.count": None})
    )
    assert info is not None
    assert (info.cards, info.held_back) == ((), "it reports 1000000 cards")


def test_every_row_of_the_tables_is_valid() -> None:
    for table in tables().values():
        for found in table.found:
            assert_valid(
                sharing.discover(NODES[found.node] if isinstance(found.node, str) else found.node, found.settings)
            )


def test_pod_limit_of_the_kubelet_is_read_if_there_is_one() -> None:
    """A virtual machine with addresses for 29 pods and one card that is shared by 50."""
    has = {"cpu": "64", "memory": "512Gi", "pods": "29", "nvidia.com/gpu": "50"}
    labels = {"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.replicas": "50"}
    node = {"metadata": {"name": "g4dn", "labels": labels}, "status": {"capacity": has, "allocatable": has}}
    info = sharing.discover(node)
    assert info is not None
    assert (info.pods, info.units_per_card) == (29, 50)
    del has["pods"]
    without_limit = sharing.discover(node)
    assert without_limit is not None
    assert without_limit.pods is None

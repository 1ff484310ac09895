"""Every sharing system by its table: nodes that it discovers, requests that it accepts and refuses, pods that it reads back.
Every node of the kit is in a table."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sharing.table import NODES, Found, Table, node, tables
from workloads import sharing
from workloads.sharing import SYSTEMS, NodeInfo, Request, Settings

TABLES = tables()


def rows(name: str) -> list[Any]:
    return [
        pytest.param(table, row, id=f"{key}-{number}")
        for key, table in TABLES.items()
        for number, row in enumerate(getattr(table, name))
    ]


def test_every_system_has_a_table_and_every_table_a_system() -> None:
    assert set(TABLES) == set(SYSTEMS)
    for table in TABLES.values():
        assert table.found, table.system
        assert table.asked, table.system
        assert table.refused, table.system
        assert table.read, table.system


def test_every_node_of_the_kit_is_in_a_table() -> None:
    named = {found.node for table in TABLES.values() for found in table.found if isinstance(found.node, str)}
    assert named == set(NODES)
    with_live_tests = {live.node for table in TABLES.values() for live in table.live if isinstance(live.node, str)}
    held = {stopped.node for table in TABLES.values() for stopped in table.held}
    assert with_live_tests | held == set(NODES)


def discovered(found: Found) -> NodeInfo:
    info = sharing.discover(NODES[found.node] if isinstance(found.node, str) else found.node, found.settings)
    assert info is not None
    return info


@pytest.mark.parametrize(("table", "found"), rows("found"))
def test_node_is_discovered_as_its_table_says(table: Table, found: Found) -> None:
    info = discovered(found)
    assert (info.sharing, info.product, info.unit, info.units_per_card) == (
        table.system, found.product, found.unit, found.units_per_card,
    )  # fmt: skip
    healthy = found.cards if found.healthy is None else found.healthy
    assert (len(info.cards), sum(card.healthy for card in info.cards)) == (found.cards, healthy)
    assert {card.cores for card in info.cards} <= {found.cores}
    assert dict(info.instances) == dict(found.instances)
    assert (info.because, info.held_back) == (found.because, found.held_back)
    assert tuple((offer.sharing, offer.unit, len(offer.cards)) for offer in info.beside) == found.beside
    indexes = [card.index for offer in info.offers for card in offer.cards]
    assert len(set(indexes)) == len(indexes), "a card belongs to one pool"
    assert (info.because, info.held_back) == (str(info.because_of), "; ".join(map(str, info.held_back_by)))


@pytest.mark.parametrize(("table", "row"), rows("asked"))
def test_valid_request_is_written_into_the_pod(table: Table, row: Any) -> None:
    fields, patch = row
    system = SYSTEMS[table.system]
    assert list(system.validate(Request(**fields), table.settings)) == []
    assert system.manifest(Request(**fields), table.settings) == patch


@pytest.mark.parametrize(("table", "row"), rows("refused"))
def test_invalid_request_is_refused_with_its_field_and_a_sentence(table: Table, row: Any) -> None:
    fields, expected = row
    (problem,) = SYSTEMS[table.system].validate(Request(**fields), table.settings)
    assert (problem.field, problem.code) == expected
    assert problem.detail.endswith(".")
    assert "%(" not in problem.detail


@pytest.mark.parametrize(("table", "row"), rows("read"))
def test_devices_of_a_running_pod_are_read_back(table: Table, row: Any) -> None:
    pod, held = row
    assert SYSTEMS[table.system].read_back(pod) == held


class TestCoexistence:
    """Two sharing systems that cannot be on one node: the node is held back with the reason."""

    @pytest.mark.parametrize(
        ("name", "amounts", "labels", "one", "other"),
        [
            ("gpushare-v100x4", {"nvidia.com/gpu": "4"}, {}, "memory", "whole"),
            ("volcano-vgpu-t4x4", {"nvidia.com/gpu": "4"}, {}, "volcano-vgpu", "whole"),
            ("volcano-vgpu-t4x4", {"volcano.sh/gpu-memory": "60000"}, {}, "volcano-vgpu", "volcano"),
            ("hami-a100-40", {"volcano.sh/vgpu-number": "80"}, {}, "hami", "volcano-vgpu"),
            ("dra-a100-80", {"nvidia.com/gpu": "8"}, {}, "dra", "whole"),
            ("dgx-a100-80-whole-0", {}, {"SharedGPU": "true"}, "kubeshare", "whole"),
            ("dgx-a100-80-mig-mixed", {"aliyun.com/gpu-mem": "60"}, {}, "mig", "memory"),
            ("dgx-a100-80-mig-mixed", {}, {"nvidia.com/gpu.sharing-strategy": "time-slicing"}, "mig", "timeslicing"),
            ("gpumanager-t4x4", {"tke.cloud.tencent.com/qgpu-core": "400"}, {}, "vcuda", "qgpu"),
        ],
    )
    def test_two_systems_hold_the_node_back(
        self, name: str, amounts: dict[str, str], labels: dict[str, str], one: str, other: str
    ) -> None:
        info = sharing.discover(node(name, amounts=amounts, labels=labels))
        assert info is not None
        assert (info.sharing, info.conflicts) == (one, (other,))
        assert "two sharing systems that cannot be on the same node" in info.held_back

    def test_mig_instances_and_whole_cards_are_allowed_together(self) -> None:
        info = sharing.discover(NODES["dgx-a100-40-mig-custom"])
        assert info is not None
        assert (info.conflicts, info.held_back) == ((), "")

    def test_pin_does_not_settle_the_conflict(self) -> None:
        both = node("gpushare-v100x4", amounts={"nvidia.com/gpu": "4"})
        info = sharing.discover(both, Settings(pins={"gpushare-v100x4": "whole"}))
        assert info is not None
        assert (info.sharing, info.conflicts, info.because) == ("whole", ("memory",), "pinned by an operator")

    def test_pin_to_an_unknown_system_holds_the_node_back(self) -> None:
        info = sharing.discover(NODES["kai-a100-80"], Settings(pins={"kai-a100-80": "kay"}))
        assert info is not None
        assert (info.sharing, info.held_back) == ("", "pinned to kay, which is not a known sharing system")

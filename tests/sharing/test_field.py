"""Nodes as other people's clusters have them: written from scratch after public bug reports, one file each in field/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from workloads import sharing
from workloads.runtime.base import NodeInfo

FIELD = Path(__file__).parent / "field"


def of_field(name: str) -> list[NodeInfo]:
    found = [sharing.discover(node) for node in yaml.safe_load_all((FIELD / f"{name}.yaml").read_text())]
    return [info for info in found if info is not None]


@pytest.mark.parametrize(
    ("name", "system", "product", "per_card", "cards"),
    [
        ("hami-2.7-colon-annotation", "hami", "NVIDIA-GeForce-RTX-3090", 24576, 2),
        ("mig-h20", "mig", "NVIDIA-H20", 8, 8),
        ("mig-gb200-24gb", "mig", "NVIDIA-GB200", 8, 4),
        ("719-static-mig-and-parent", "dra-mig", "NVIDIA-A100-80GB-PCIe", 8, 1),
        ("hami-scaled-cores", "hami", "NVIDIA-H20-3e", 258787, 2),
    ],
)
def test_field_node_is_discovered_and_served(name: str, system: str, product: str, per_card: int, cards: int) -> None:
    (info,) = of_field(name)
    actual: tuple[Any, ...] = (info.sharing, info.product, info.units_per_card, len(info.cards), info.held_back)
    assert actual == (system, product, per_card, cards, "")


def test_card_announced_beside_its_instances_is_partitioned() -> None:
    (info,) = of_field("719-static-mig-and-parent")
    assert (dict(info.instances), info.beside, info.mig) == ({"3g.40gb": 2}, (), "A100-80GB")

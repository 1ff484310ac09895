"""Nodes as clusters of other people have them: written from scratch after public bug reports, one file each in field/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from workloads import sharing
from workloads.clusters.base import NodeInfo

FIELD = Path(__file__).parent / "field"


def of_field(name: str) -> list[NodeInfo]:
    found = [sharing.discover(node) for node in yaml.safe_load_all((FIELD / f"{name}.yaml").read_text())]
    return [info for info in found if info is not None]


@pytest.mark.parametrize(
    ("name", "system", "product", "per_card", "cards"),
    [
        ("hami-2.7-colon-annotation", "hami", "NVIDIA-GeForce-RTX-3090", 24576, 2),
        ("hami-scaled-cores", "hami", "NVIDIA-H20-3e", 258787, 2),
    ],
)
def test_it_is_read_and_serves(name: str, system: str, product: str, per_card: int, cards: int) -> None:
    (info,) = of_field(name)
    said: tuple[Any, ...] = (info.sharing, info.product, info.units_per_card, len(info.cards), info.held_back)
    assert said == (system, product, per_card, cards, "")

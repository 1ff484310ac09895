"""What several workers of pytest do first, and what one of them does alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.clusters.realcluster import ROOT
from tests.conftest import ONE_BY_ONE, in_order, room_of


def test_what_goes_one_by_one_is_where_it_is_said_to_be() -> None:
    assert [path for path in ONE_BY_ONE if not (ROOT / path).exists()] == []
    assert room_of("tests/e2e/test_demo.py::test_a[x::y]") == "demo"
    assert room_of("tests/e2e/test_production.py::test_a") == room_of("tests/clusters/test_walk.py::TestB::test_c")
    assert room_of("tests/quotas/planning/test_replay.py::test_a") == "tests/quotas/planning/test_replay.py"


def test_the_long_rows_begin_first_and_large_files_before_small_ones() -> None:
    files = [
        "engine/test_a",
        "engine/test_b",
        "engine/test_b",
        "e2e/test_forms",
        "clusters/test_walk",
        "faults/test_campaign",
    ]
    items: list[Any] = [SimpleNamespace(nodeid=f"tests/{file}.py::test_{n}") for n, file in enumerate(files)]
    rooms = [room_of(item.nodeid) for item in in_order(items)]
    assert rooms == [
        "faults",
        "cluster",
        "browser",
        "tests/engine/test_b.py",
        "tests/engine/test_b.py",
        "tests/engine/test_a.py",
    ]

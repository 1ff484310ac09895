"""The order of test groups with several pytest workers, and which tests one worker runs alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.clusters.realcluster import ROOT
from tests.conftest import ONE_BY_ONE, group_of, in_order


def test_tests_that_run_one_by_one_exist_and_share_a_group() -> None:
    assert [path for path in ONE_BY_ONE if not (ROOT / path).exists()] == []
    assert group_of("tests/e2e/test_demo.py::test_a[x::y]") == "demo"
    assert group_of("tests/e2e/test_production.py::test_a") == group_of("tests/clusters/test_walk.py::TestB::test_c")
    assert group_of("tests/quotas/planning/test_replay.py::test_a") == "tests/quotas/planning/test_replay.py"


def test_long_groups_start_first_and_large_files_before_small_ones() -> None:
    files = [
        "engine/test_a",
        "engine/test_b",
        "engine/test_b",
        "e2e/test_forms",
        "clusters/test_walk",
        "faults/test_campaign",
    ]
    items: list[Any] = [SimpleNamespace(nodeid=f"tests/{file}.py::test_{n}") for n, file in enumerate(files)]
    groups = [group_of(item.nodeid) for item in in_order(items)]
    assert groups == [
        "faults",
        "cluster",
        "browser",
        "tests/engine/test_b.py",
        "tests/engine/test_b.py",
        "tests/engine/test_a.py",
    ]

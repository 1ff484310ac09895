"""docs/gpu-sharing.md is what the modules say."""

from __future__ import annotations

import pytest

from scripts import gpu_sharing
from workloads.sharing import SYSTEMS


def test_the_page_is_up_to_date() -> None:
    assert gpu_sharing.PAGE.read_text() == gpu_sharing.page(), "run `make docs`"


@pytest.mark.parametrize("key", list(SYSTEMS))
def test_every_module_says_all_that_operators_need_and_means_its_own_unit(key: str) -> None:
    said = gpu_sharing.table_of(SYSTEMS[key])
    assert set(gpu_sharing.NEEDED) <= set(said)
    assert said["unit"].split()[0].strip(",;:") == SYSTEMS[key].ABOUT.unit
    assert all(
        SYSTEMS[key].ABOUT.title and getattr(SYSTEMS[key].ABOUT, word).endswith(".")
        for word in ("gives", "risks", "isolation")
    )

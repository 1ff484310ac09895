"""The table of MIG profiles of a card, for every spelling of its name, and slices derived where no table has a profile's
name.

Names of products as GPU feature discovery writes them (NVML's with hyphens), as in dumps of nodes and nvidia-smi; sizes in
MiB as nvidia-smi reports them. Names of profiles: NVIDIA MIG User Guide and NVIDIA/gpu-operator
assets/state-mig-manager/0400_configmap.yaml.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.engine.mig_profiles import KNOWN, PRODUCTS, derived, derived_key, profile_of, share_gb
from quotas.models import Pool
from tests.sharing.test_field import of_field
from workloads import sharing
from workloads.nodes.modes.recipes import BALANCED, named_layouts
from workloads.requests.gpu_amounts import in_words, instance_mib, is_derived
from workloads.sharing.mig import guessed, table_of

SPELLINGS = [
    ("NVIDIA-A100-SXM4-40GB", 40960, "A100-40GB"),
    ("A100-PCIE-40GB", 39538, "A100-40GB"),
    ("NVIDIA-A100-PCIE-40GB-SHARED", 0, "A100-40GB"),
    ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", 0, "A100-80GB"),
    ("NVIDIA-A100-80GB-PCIe", 81920, "A100-80GB"),
    ("NVIDIA-A100X", 81920, "A100-80GB"),
    ("NVIDIA-A800-SXM4-80GB", 81920, "A100-80GB"),
    ("NVIDIA-A800-80GB-PCIe", 81920, "A100-80GB"),
    ("NVIDIA-A800-SXM4-40GB", 40960, "A100-40GB"),
    ("NVIDIA-A800-40GB-Active", 40960, "A100-40GB"),
    ("NVIDIA-A100-SXM-64GB", 65536, "derived-64GB-8"),
    ("NVIDIA-H100-80GB-HBM3", 81559, "H100-80GB"),
    ("NVIDIA-H100-PCIe", 0, "H100-80GB"),
    ("NVIDIA-H100-PCIE-80GB", 81559, "H100-80GB"),
    ("NVIDIA-H100-SXM5-80GB", 81559, "H100-80GB"),
    ("NVIDIA-H100-SXM5-94GB", 0, "H100-94GB"),
    ("NVIDIA-H100-NVL", 95830, "H100-94GB"),
    ("NVIDIA-H100-NVL", 0, "H100-94GB"),
    ("NVIDIA-H800", 81559, "H100-80GB"),
    ("NVIDIA-H800-PCIe", 81559, "H100-80GB"),
    ("NVIDIA-H800-NVL", 95830, "H100-94GB"),
    ("NVIDIA-H20", 97871, "H100-96GB"),
    ("NVIDIA-H20", 0, "H100-96GB"),
    ("NVIDIA-H20-3e", 143771, "H200-141GB"),
    ("NVIDIA-H20-3e", 0, "H200-141GB"),
    ("NVIDIA-H20-141GB", 0, "H200-141GB"),
    ("NVIDIA-H200", 143771, "H200-141GB"),
    ("NVIDIA-H200-NVL", 0, "H200-141GB"),
    ("NVIDIA-GH200-480GB", 97871, "H100-96GB"),
    ("NVIDIA-GH200-480GB", 0, "H100-96GB"),
    ("NVIDIA-GH200-144G-HBM3e", 146831, "GH200-144GB"),
    ("NVIDIA-GH200-144G-HBM3e", 0, "GH200-144GB"),
    ("NVIDIA-B200", 183359, "B200-180GB"),
    ("NVIDIA-GB200", 189471, "GB200-186GB"),
    ("NVIDIA-B300-SXM6-AC", 275040, "B300-269GB"),
    ("NVIDIA-GB300", 284208, "derived-278GB-8"),
    ("NVIDIA-A30", 24576, "A30"),
    ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 97887, "RTX-PRO-6000-96GB"),
    ("NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition", 0, "RTX-PRO-6000-96GB"),
    ("NVIDIA-RTX-PRO-5000-Blackwell", 48935, "derived-48GB-4"),
    ("NVIDIA-RTX-PRO-4500-Blackwell", 32623, "derived-32GB-2"),
    ("nvidia-h100-80gb", 0, "H100-80GB"),
    ("nvidia-a100-80gb", 0, "A100-80GB"),
    ("nvidia-tesla-a100", 0, "A100-40GB"),
    ("Tesla-T4", 15360, None),
    ("NVIDIA-A10", 23028, None),
    ("NVIDIA-A10G", 23028, None),
    ("NVIDIA-L40S", 46068, None),
    ("NVIDIA-RTX-6000-Ada-Generation", 49140, None),
    ("NVIDIA-RTX-A6000", 49140, None),
    ("", 0, None),
]


@pytest.mark.parametrize(("product", "memory", "table"), SPELLINGS)
def test_product_has_its_table_in_every_spelling(product: str, memory: int, table: str | None) -> None:
    assert table_of(product, memory) == table
    if table is not None:
        assert table_of(product.replace("-", "_").swapcase(), memory) == table
        assert PRODUCTS[table]


def test_profile_names_are_those_of_nvidias_tables() -> None:
    profile_names = {
        key: [name for name in PRODUCTS[key] if "+" not in name and not name.endswith("-me")] for key in KNOWN
    }
    assert profile_names["H100-94GB"] == ["1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"]
    assert profile_names["H100-96GB"] == ["1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"]
    assert profile_names["GB200-186GB"] == ["1g.23gb", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"]
    assert profile_names["B300-269GB"] == ["1g.34gb", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb"]
    assert profile_names["GH200-144GB"] == ["1g.18gb", "1g.36gb", "2g.36gb", "3g.72gb", "4g.72gb", "7g.144gb"]
    assert set(PRODUCTS["RTX-PRO-6000-96GB"]) == {
        "1g.24gb", "1g.24gb+me", "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me", "2g.48gb", "2g.48gb+gfx",
        "2g.48gb+me.all", "2g.48gb-me", "4g.96gb", "4g.96gb+gfx",
    }  # fmt: skip
    for key, layout in BALANCED.items():
        assert all(PRODUCTS[key].is_said(name) for name in layout), key
        assert named_layouts(key)["all-balanced"]


class TestDerived:
    def test_table_exists_for_each_size_of_card_and_nothing_else(self) -> None:
        for key in ("A100-80GB", "derived-278GB-8", derived_key(4, 48)):
            assert key in PRODUCTS
        for wrong in ("derived-0GB-8", "derived-278GB-7", "derived-GB-8", "A100", "", None):
            assert wrong not in PRODUCTS

    def test_profile_name_of_another_driver_is_recognised_by_its_part_of_the_memory(self) -> None:
        for name, size in (("1g.24gb", 1), ("3g.95gb", 4), ("7g.189gb", 8), ("2g.47gb", 2)):
            profile = profile_of("GB200-186GB", name)
            assert profile is not None
            assert profile.size == size
        assert [is_derived("GB200-186GB", name) for name in ("1g.24gb", "1g.23gb")] == [True, False]

    @pytest.mark.parametrize(
        "name", ["1g.5gb", "3g.20gb", "5g.50gb", "1g", "", "1g.0gb", "mig", "1g.10gb+what", "9g.80gb"]
    )
    def test_name_that_cannot_be_on_the_card_is_no_profile_of_it(self, name: str) -> None:
        assert name not in PRODUCTS["H100-80GB"]
        assert profile_of("H100-80GB", name) is None

    @given(st.sampled_from([2, 4, 8]), st.integers(8, 600))
    def test_table_of_any_size_agrees_with_slices_derived_from_its_names(self, slices: int, gb: int) -> None:
        table = PRODUCTS[derived_key(slices, gb)]
        assert (table.slices, table.gb) == (slices, gb)
        for name, profile in table.items():
            assert profile.size + max(profile.starts) <= slices
            if share_gb(gb, profile.size, slices) >= 10:  # below that a rounded GB is more than the tolerance
                assert derived(slices, gb, name) is not None

    @given(st.sampled_from(sorted(KNOWN)), st.data())
    def test_instances_of_an_unknown_card_are_charged_their_part_of_it(self, key: str, data: st.DataObject) -> None:
        """For every number of slices that is assumed."""
        table = PRODUCTS[key]
        plain = [name for name in table if "+" not in name and not name.endswith("-me")]
        names = data.draw(st.lists(st.sampled_from(plain), min_size=1, max_size=3, unique=True))
        guess = guessed(table.gb * 1024, names)
        assert guess is not None
        for name in names:
            assert PRODUCTS[guess][name].size / PRODUCTS[guess].slices == table[name].size / table.slices

    def test_node_reports_that_slices_are_derived(self) -> None:
        (gb200,) = of_field("mig-gb200-24gb")
        assert gb200.because.endswith("slices derived from the names of the profiles: 1g.24gb = 1/8")
        (h20,) = of_field("mig-h20")
        assert (h20.because, h20.mig) == ("it advertises nvidia.com/mig-1g.12gb", "H100-96GB")

    def test_memory_of_a_derived_instance_is_its_part_of_the_card(self) -> None:
        assert instance_mib("GB200-186GB", "1g.24gb") == 186 * 1024 // 8
        assert instance_mib("derived-64GB-8", "3g.32gb") == 32 * 1024
        pool = Pool(unit="slice", units_per_card=8, mig="derived-64GB-8", product="NVIDIA-A100-SXM-64GB")
        assert in_words(pool, 4, "3g.32gb")


def test_unknown_card_with_strategy_single_is_recognised_by_its_profile() -> None:
    amounts = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "14"}
    node: dict[str, Any] = {
        "metadata": {"name": "n", "labels": {
            "nvidia.com/gpu.product": "NVIDIA-X9-MIG-1g.16gb", "nvidia.com/gpu.count": "14", "nvidia.com/gpu.memory": "15000",
        }},
        "status": {"capacity": amounts, "allocatable": amounts},
    }  # fmt: skip
    info = sharing.discover(node)
    assert info is not None
    assert (info.mig, info.units_per_card, len(info.cards), info.held_back) == ("derived-128GB-8", 8, 2, "")

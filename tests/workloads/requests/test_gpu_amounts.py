"""Amounts as people write them: converted into the pool's unit, never rounded down, and described in plain words."""

from __future__ import annotations

import contextlib

import pytest
from django.utils import translation
from hypothesis import given, settings
from hypothesis import strategies as st

from portal.errors import Invalid
from quotas.amounts import LEAST_MIB
from quotas.models import Cluster, Pool, PoolGroup
from workloads.requests.gpu_amounts import Asked, becomes, card_mib, in_words, instance_mib, product_name, read
from workloads.requests.what_you_get import compute_share


def pool(sharing: str, unit: str, per_card: int = 1, product: str = "Tesla-T4", **fields: object) -> Pool:
    group = PoolGroup(cluster=Cluster(name="here", options={}))
    return Pool(name="T4", group=group, sharing=sharing, unit=unit, units_per_card=per_card, product=product, **fields)  # type: ignore[misc]


CARDS = pool("whole", "card", product="NVIDIA-A100-SXM4-80GB", card_mib=81920)
SHARED = pool("memory", "MiB", 15360, card_mib=15360)
HAMI = pool("hami", "MiB", 40960, product="NVIDIA-A100-SXM4-40GB", card_mib=40960)
SLICED = pool("timeslicing", "replica", 4, card_mib=15360)
MPS = pool("mps", "replica", 10, product="NVIDIA-H100-80GB-HBM3", card_mib=81559)
PERCENT = pool("kai", "percent", 100, card_mib=81920)
CUT = pool("mig", "slice", 8, product="NVIDIA-A100-SXM4-80GB", mig="A100-80GB")


@pytest.mark.parametrize(
    ("where", "text", "units", "profile"),
    [
        (CARDS, "2", 2, ""),
        (CARDS, "2 cards", 2, ""),
        (CARDS, "80 GiB", 1, ""),
        (CARDS, "100 GiB", 2, ""),
        (CARDS, "0.5", 1, ""),
        (SHARED, "6", 6144, ""),
        (HAMI, "0.5", 512, ""),
        (HAMI, "6144 MiB", 6144, ""),
        (SHARED, "6 GiB", 6144, ""),
        (SHARED, "7.5 GiB", 8192, ""),  # this system counts in whole GiB
        (SHARED, "half", 8192, ""),
        (SHARED, "1 card", 15360, ""),
        (SHARED, "25 %", 4096, ""),
        (HAMI, "half", 20480, ""),
        (HAMI, "1/3", 13654, ""),
        (HAMI, "半张卡", 20480, ""),
        (SLICED, "1", 1, ""),
        (SLICED, "25%", 1, ""),
        (SLICED, "3 GiB", 1, ""),
        (PERCENT, "half", 50, ""),
        (PERCENT, "20 GiB", 25, ""),
        (PERCENT, "33", 33, ""),
        (CUT, "3g.40gb", 0, "3g.40gb"),
        (CUT, "mig-1g.10gb", 0, "1g.10gb"),
        (CUT, "10 GiB", 0, "2g.20gb"),  # 1g.10gb has 9.5 GiB only
        (CUT, "9 GiB", 0, "1g.10gb"),
        (CUT, "half", 0, "4g.40gb"),  # the same memory as 3g, and more compute
        (CUT, "1 card", 0, "7g.80gb"),
    ],
)
def test_written_amount_is_converted_into_the_pools_unit(where: Pool, text: str, units: int, profile: str) -> None:
    assert read(text, where) == Asked(units, profile)


@pytest.mark.parametrize(
    ("where", "text", "code"),
    [
        (CARDS, "many", "shape"),
        (CARDS, "0", "too_little"),
        (CARDS, "3g.40gb", "shape"),
        (SLICED, "50 %", "too_many"),
        (CUT, "90 GiB", "no_such_profile"),
        (CUT, "9g.90gb", "shape"),
        (SHARED, "5 bananas", "shape"),
        (SHARED, "99999999 GiB", "too_many"),
        (SHARED, "1/0", "too_little"),
        (HAMI, "1 MiB", "very_little"),
        (HAMI, "255 MiB", "very_little"),
        (HAMI, "0.1", "very_little"),
        (SHARED, "6144", "which_unit"),
        (pool("whole", "card", product="X"), "5 GiB", "no_memory_known"),
    ],
)
def test_impossible_amount_is_refused_with_an_explanation(where: Pool, text: str, code: str) -> None:
    with pytest.raises(Invalid) as error:
        read(text, where)
    assert error.value.code == code
    assert error.value.field == "units_per_pod"
    assert error.value.detail


@pytest.mark.parametrize(
    ("where", "text", "words"),
    [
        (CARDS, "2", ""),
        (CARDS, "1.5", "2 cards"),
        (CARDS, "half", "1 card"),
        (CARDS, "0.5", "1 card"),
        (CARDS, "100 GiB", "2 cards"),
        (SHARED, "6 GiB", ""),
        (SHARED, "7.5", "8 GiB"),
        (HAMI, "half", ""),
        (HAMI, "7.3 GiB", ""),
        (PERCENT, "1/3", "34 %"),
        (PERCENT, "half", ""),
        (SLICED, "3 GiB", "1 replica"),
        (CUT, "3g.40gb", ""),
        (CUT, "half", "4g.40gb: half an A100 80GB, about 39.2 GiB"),
    ],
)
def test_rounded_amount_is_shown_beside_the_written_one(where: Pool, text: str, words: str) -> None:
    assert becomes(text, where) == words


@pytest.mark.parametrize(
    ("where", "units", "profile", "words"),
    [
        (CARDS, 1, "", "a whole A100 80GB, about 80 GiB"),
        (CARDS, 4, "", "4 whole A100 80GB, about 320 GiB"),
        (SHARED, 7680, "", "half a T4, 7.5 GiB"),
        (SHARED, 15360, "", "a whole T4, about 15 GiB"),
        (SHARED, 6144, "", "40% of a T4, 6 GiB"),
        (SLICED, 1, "", "one of 4 shares of a T4"),
        (MPS, 1, "", "one of 10 shares of an H100 80GB, about 8 GiB"),
        (PERCENT, 25, "", "a quarter of a T4, about 20 GiB"),
        (CUT, 4, "3g.40gb", "3g.40gb: half an A100 80GB, about 39.2 GiB"),
    ],
)
def test_amount_is_described_in_words_that_researchers_know(where: Pool, units: int, profile: str, words: str) -> None:
    with translation.override("en"):
        assert in_words(where, units, profile) == words


@settings(max_examples=200)
@given(st.integers(LEAST_MIB, 81920), st.sampled_from([SHARED, HAMI, PERCENT, CUT, CARDS]))
def test_memory_is_never_rounded_down(mib: int, where: Pool) -> None:
    try:
        asked = read(f"{mib} MiB", where)
    except Invalid:
        assert where is CUT
        assert mib > (instance_mib("A100-80GB", "7g.80gb") or 0)
        return
    if asked.profile:
        assert (instance_mib(where.mig, asked.profile) or 0) >= mib
    elif where.unit == "MiB":
        assert asked.units >= mib
    else:
        assert asked.units * (card_mib(where) or 0) / where.units_per_card >= mib


@settings(max_examples=200)
@given(st.text(max_size=30), st.sampled_from([SHARED, HAMI, PERCENT, CUT, CARDS, SLICED]))
def test_any_text_is_an_amount_or_an_error(text: str, where: Pool) -> None:
    with contextlib.suppress(Invalid):
        asked = read(text, where)
        assert asked.units > 0 or asked.profile


def test_compute_share_follows_memory_if_the_system_limits_both() -> None:
    assert compute_share(HAMI, 20480) == 50
    assert compute_share(SHARED, 7680) is None
    assert compute_share(pool("qgpu", "MiB", 14336), 1024) == 10  # 7.1 %, in steps of 5


def test_products_are_shown_by_their_common_names() -> None:
    assert product_name("NVIDIA-H100-80GB-HBM3") == "H100 80GB"
    assert product_name("Tesla-T4-SHARED") == "T4"
    assert product_name("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb") == "A100 40GB"

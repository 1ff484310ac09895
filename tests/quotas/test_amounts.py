"""Amounts of a pool as an owner writes them, read into its units."""

from __future__ import annotations

import pytest
from django.utils import translation

from portal.errors import Invalid
from portal.text.words import amount
from quotas.amounts import units_of, written
from quotas.models import Pool

CARDS = Pool(unit="card", units_per_card=1, card_mib=81920)
MEMORY = Pool(unit="MiB", units_per_card=15360, card_mib=15360)
SHARES = Pool(unit="replica", units_per_card=4)
PERCENT = Pool(unit="percent", units_per_card=100, card_mib=81920)
SLICES = Pool(unit="slice", units_per_card=8, mig="A100-80GB", card_mib=81920)


@pytest.mark.parametrize(
    ("pool", "text", "units"),
    [
        (CARDS, " 2 ", 2),
        (CARDS, "2 Cards", 2),
        (CARDS, "160 GiB", 2),
        (MEMORY, "10", 10240),
        (MEMORY, "10 GiB", 10240),
        (MEMORY, "7.5", 7680),
        (MEMORY, "0.5", 512),
        (MEMORY, "512 MiB", 512),
        (MEMORY, "2 cards", 30720),
        (MEMORY, "half", 7680),
        (MEMORY, "1/4", 3840),
        (SHARES, "3", 3),
        (SHARES, "1 card", 4),
        (SHARES, "50 %", 2),
        (PERCENT, "150", 150),
        (PERCENT, "25%", 25),
        (PERCENT, "40 GiB", 50),
        (PERCENT, "2 cards", 200),
        (SLICES, "3 slices", 3),
        (SLICES, "half", 4),
    ],
)
def test_what_is_written_is_read_in_the_unit_that_the_pages_show(pool: Pool, text: str, units: int) -> None:
    assert units_of(text, pool) == units


@pytest.mark.parametrize(
    ("pool", "text"),
    [(CARDS, ""), (CARDS, "two"), (CARDS, "-1"), (CARDS, "3 slices"), (SLICES, "10 GiB"), (SHARES, "10 GiB"), (MEMORY, "0"),
     (MEMORY, "1/0"), (MEMORY, "9999999 GiB"), (CARDS, "99999999999")],
)  # fmt: skip
def test_what_is_no_amount_is_refused_at_its_field(pool: Pool, text: str) -> None:
    with pytest.raises(Invalid) as refused:
        units_of(text, pool)
    assert refused.value.field == "units"


@pytest.mark.parametrize("units", [1, 7, 512, 10240, 10241])
@pytest.mark.parametrize("pool", [CARDS, MEMORY, SHARES, PERCENT, SLICES])
def test_what_is_written_for_somebody_is_read_again_as_it_was(pool: Pool, units: int) -> None:
    assert units_of(written(units, pool), pool) == units


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("pool", [CARDS, MEMORY, SHARES, PERCENT, SLICES])
def test_what_a_page_shows_may_be_typed_as_it_stands(pool: Pool, language: str) -> None:
    units = 2048 if pool is MEMORY else 2
    with translation.override(language):
        assert units_of(amount(units, pool), pool) == units

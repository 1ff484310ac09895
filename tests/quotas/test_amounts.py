"""Parsing the amounts that owners type into the units of a pool."""

from __future__ import annotations

from fractions import Fraction

import pytest
from django.utils import translation

from portal.errors import Invalid
from portal.text.words import amount, exact
from quotas.amounts import exactly, units_of, written
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
        (MEMORY, "122,880 MiB", 122880),  # thousands as pages show them
        (CARDS, "1,024", 1024),
        (MEMORY, "7,5", 7680),
        (CARDS, "9.0", 9),
        (CARDS, "８", 8),
        (MEMORY, "30.0004 GiB", 30721),  # rounded up to a whole MiB
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
def test_amount_is_parsed_in_the_unit_that_pages_show(pool: Pool, text: str, units: int) -> None:
    assert units_of(text, pool) == units


@pytest.mark.parametrize(
    ("pool", "text"),
    [(CARDS, ""), (CARDS, "two"), (CARDS, "-1"), (CARDS, "3 slices"), (SLICES, "10 GiB"), (SHARES, "10 GiB"), (MEMORY, "0"),
     (MEMORY, "1/0"), (MEMORY, "9999999 GiB"), (CARDS, "99999999999")],
)  # fmt: skip
def test_invalid_amount_is_refused_with_its_field(pool: Pool, text: str) -> None:
    with pytest.raises(Invalid) as refused:
        units_of(text, pool)
    assert refused.value.field == "units"


@pytest.mark.parametrize(
    ("pool", "text", "becomes"),
    [(CARDS, "9.5", 10), (CARDS, "9,5 cards", 10), (CARDS, "half", 1), (CARDS, "25 %", 1), (CARDS, "9.000001", 10),
     (CARDS, "100 GiB", 2), (SHARES, "1/3", 2), (SHARES, "2.5 replicas", 3), (SLICES, "3.5", 4), (SLICES, "1/3", 3),
     (PERCENT, "12.5", 13), (PERCENT, "1/3", 34)],
)  # fmt: skip
def test_fraction_of_a_unit_is_refused_with_the_rounded_up_number(pool: Pool, text: str, becomes: int) -> None:
    with pytest.raises(Invalid) as refused:
        units_of(text, pool, least=0)
    assert (refused.value.code, refused.value.numbers["becomes"]) == ("not_whole", becomes)


@pytest.mark.parametrize("text", ["1,02", "1,0245", "0,125", "1,024,5", "01,024"])
def test_only_groups_of_three_digits_count_as_thousands(text: str) -> None:
    assert exactly(text, CARDS) in (None, Fraction(text.replace(",", ".")) if text.count(",") == 1 else None)
    assert exactly("12,345,678", CARDS) == 12345678


@pytest.mark.parametrize("units", [1, 1023, 1024, 1500, 1536, 7680, 30720, 30721, 31232, 122880, 123391])
def test_exact_memory_amounts_are_distinct_and_parsed_back(units: int) -> None:
    assert exact(units, "MiB") != exact(units + 1, "MiB")
    assert units_of(exact(units, MEMORY), MEMORY) == units
    assert exact(None, "MiB") == "no limit"


@pytest.mark.parametrize("units", [1, 7, 512, 10240, 10241])
@pytest.mark.parametrize("pool", [CARDS, MEMORY, SHARES, PERCENT, SLICES])
def test_written_amount_is_parsed_back_unchanged(pool: Pool, units: int) -> None:
    assert units_of(written(units, pool), pool) == units


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("pool", [CARDS, MEMORY, SHARES, PERCENT, SLICES])
def test_amount_shown_on_a_page_can_be_typed_back(pool: Pool, language: str) -> None:
    units = 2048 if pool is MEMORY else 2
    with translation.override(language):
        assert units_of(amount(units, pool), pool) == units

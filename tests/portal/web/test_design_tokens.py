"""Colours are legible for everybody: AA contrast in both themes, computed from the style sheets."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from portal.web.design_tokens import DRAWING, MEANINGS, TEXT, THEMES, UNITS, colour, contrast, rgb
from tests.architecture.sources import ROOT

FOR_TEXT = (*UNITS, *MEANINGS, "tblr-secondary", "tblr-body-color")  # tokens used for text
FOR_DRAWINGS = tuple(f"dep-{number}" for number in range(10))


@pytest.mark.parametrize("theme", THEMES)
def test_text_and_drawings_have_the_required_contrast(theme: str) -> None:
    pale = {name: colour(name, theme).contrast for name in FOR_TEXT if colour(name, theme).contrast < TEXT}
    pale |= {name: colour(name, theme).contrast for name in FOR_DRAWINGS if colour(name, theme).contrast < DRAWING}
    assert pale == {}


def test_contrast_is_computed_as_the_guidelines_define_it() -> None:
    assert contrast((1, 1, 1), (0, 0, 0)) == pytest.approx(21)
    assert contrast((1, 1, 1), (119 / 255, 119 / 255, 119 / 255)) == pytest.approx(4.48, abs=0.01)
    assert rgb("tblr-gray-800", "dark") == pytest.approx((38 / 255,) * 3, abs=0.002)


# Machado, Oliveira, Fernandes 2009, severity 1: linear red, green and blue as they are seen.
SEEN_BY = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
FULL = ("own", "borrowed", "outside")  # drawn as areas, beside each other; the others are outlines


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("sight", SEEN_BY)
def test_areas_can_be_distinguished_with_every_common_colour_blindness(theme: str, sight: str) -> None:
    def lab(name: str) -> tuple[float, ...]:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb(name, theme)]
        red, green, blue = (sum(a * b for a, b in zip(row, linear, strict=True)) for row in SEEN_BY[sight])
        x, y, z = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505, 0.2126 * red + 0.7152 * green + 0.0722 * blue, (
            0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089  # fmt: skip
        x, y, z = (max(part, 0.0) ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
        return 116 * y - 16, 500 * (x - y), 200 * (y - z)

    near = {
        pair: sum((a - b) ** 2 for a, b in zip(lab(pair[0]), lab(pair[1]), strict=True)) ** 0.5
        for pair in combinations(FULL, 2)
    }
    assert {pair: apart for pair, apart in near.items() if apart < 20} == {}


def test_style_sheets_use_only_text_sizes_of_the_scale() -> None:
    sheets = {name: (ROOT / "static" / name).read_text() for name in ("portal.css", "quotas.css", "map.css")}
    assert {
        name: sizes for name, text in sheets.items() if (sizes := re.findall(r"font-size:(?!\s*var)[^;}]+", text))
    } == {}


def test_every_token_that_a_style_sheet_uses_is_defined() -> None:
    """An undefined size is inherited: nothing fails, but every page is shown in one size of text."""
    own = [(ROOT / "static" / name).read_text() for name in ("portal.css", "quotas.css", "map.css")]
    vendored = [(ROOT / "static" / "vendor" / name).read_text() for name in ("tabler.min.css", "uPlot.min.css")]
    defined = set(re.findall(r"(--[\w-]+)\s*:", "".join([*own, *vendored])))
    assert set(re.findall(r"var\((--[\w-]+)\)", "".join(own))) - defined == set()

"""Small grey pictures of pages, and how much two of them differ."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageChops, ImageFilter

REFERENCES = Path(__file__).parent / "references"
SMALLER = {1400: 10, 390: 5}  # width of a page → side of the square of CSS pixels that is averaged to one pixel
BLURRED = 0.7  # pixels: hides small differences in the length of numbers, names and times
APART = 24  # of 255: difference in brightness from which a pixel counts as different
TOLERATED = 0.004
"""Share of pixels that may differ: more do if a column, bars or a card have moved, fewer if numbers and times are a little
longer (test_pages.py tests both)."""


@dataclass(frozen=True, slots=True)
class Difference:
    share: float
    picture: Image.Image  # shows where they differ

    @property
    def is_broken(self) -> bool:
        return self.share > TOLERATED


def small(screenshot: bytes) -> Image.Image:
    """The reduced picture of a screenshot in PNG: grey, a fifth or a tenth as wide."""
    picture = Image.open(io.BytesIO(screenshot)).convert("L")
    return picture.reduce(SMALLER[picture.width])


def difference(one: Image.Image, other: Image.Image) -> Difference:
    if one.size != other.size:
        return Difference(1.0, other)
    blur = ImageFilter.GaussianBlur(BLURRED)
    apart = ImageChops.difference(one.filter(blur), other.filter(blur)).point(lambda value: 255 if value > APART else 0)
    return Difference(apart.histogram()[255] / (apart.width * apart.height), apart)

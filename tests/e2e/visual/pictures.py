"""Small grey pictures of pages, and how much two of them differ."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageChops, ImageFilter

REFERENCES = Path(__file__).parent / "references"
SMALLER = {1400: 10, 390: 5}  # width of a page → of how many CSS pixels, averaged, a pixel of its picture is the square
BLURRED = 0.7  # pixels: what is a little longer or shorter, a number, a name, a time, is nearly the same
APART = 24  # of 255: a pixel that is so much lighter or darker is another one
TOLERATED = 0.004
"""Share of pixels that may be others: more of them differ where a column, bars or a card are elsewhere, fewer where numbers and
times are a little longer (test_pages.py tries both)."""


@dataclass(frozen=True, slots=True)
class Difference:
    share: float
    picture: Image.Image  # where

    @property
    def is_broken(self) -> bool:
        return self.share > TOLERATED


def small(screenshot: bytes) -> Image.Image:
    """What is kept of a screenshot in PNG: grey, a fifth or a tenth as wide."""
    picture = Image.open(io.BytesIO(screenshot)).convert("L")
    return picture.reduce(SMALLER[picture.width])


def difference(one: Image.Image, other: Image.Image) -> Difference:
    if one.size != other.size:
        return Difference(1.0, other)
    blur = ImageFilter.GaussianBlur(BLURRED)
    apart = ImageChops.difference(one.filter(blur), other.filter(blur)).point(lambda value: 255 if value > APART else 0)
    return Difference(apart.histogram()[255] / (apart.width * apart.height), apart)

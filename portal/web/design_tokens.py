"""The colours of the style sheets, per theme, read from the style sheets themselves, and their contrast as WCAG 2.2 defines
it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings

SHEETS = ("vendor/tabler.min.css", "portal.css", "map.css")
RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
TOKEN = re.compile(r"(--[\w-]+)\s*:\s*([^;]+)")
LIGHT, DARK = "light", "dark"
THEMES = (LIGHT, DARK)
UNITS = ("own", "borrowed", "lent", "held", "outside", "idle")
MEANINGS = ("good", "warn", "bad", "calm")
GROUNDS = ("tblr-bg-surface", "tblr-body-bg")  # backgrounds of text and drawings
TEXT, DRAWING = 4.5, 3.0
"""Minimum contrast of text, and of the parts of a drawing that are needed to understand it (1.4.3 and 1.4.11, AA)."""


@dataclass(frozen=True, slots=True)
class Colour:
    """`contrast`: the lower one against the two backgrounds of its theme."""

    name: str
    value: str
    contrast: float


@cache
def tokens(theme: str) -> dict[str, str]:
    """Custom property, without its leading dashes → value in a theme. Later sheets and rules override earlier ones."""
    values: dict[str, str] = {}
    for sheet in SHEETS:
        text = re.sub(r"/\*.*?\*/", "", (Path(settings.BASE_DIR) / "static" / sheet).read_text(), flags=re.DOTALL)
        for selector, body in RULE.findall(text):
            if _is_of(selector, theme):
                values |= {name[2:]: value.strip() for name, value in TOKEN.findall(body)}
    return values


def colour(name: str, theme: str) -> Colour:
    """The colour of a token. Raises KeyError if no sheet has it, ValueError if it is not an opaque colour."""
    parts = rgb(name, theme)
    worst = min(contrast(parts, rgb(ground, theme)) for ground in GROUNDS)
    return Colour(name, "#" + "".join(f"{round(part * 255):02x}" for part in parts), worst)


def palettes() -> list[tuple[str, list[Colour]]]:
    """Each theme with its colours of units and of meanings."""
    return [(theme, [colour(name, theme) for name in (*UNITS, *MEANINGS)]) for theme in THEMES]


def rgb(name: str, theme: str) -> tuple[float, float, float]:
    """Red, green and blue from 0 to 1 of a token."""
    return _rgb(tokens(theme)[name], theme)


def contrast(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """The contrast of two colours, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _is_of(selector: str, theme: str) -> bool:
    parts = {part.strip().replace('"', "").replace("'", "") for part in selector.split(",")}
    return bool(parts & {":root", f"[data-bs-theme={theme}]"})


def _rgb(value: str, theme: str) -> tuple[float, float, float]:
    if hexes := re.fullmatch(r"#([0-9a-f]{3}|[0-9a-f]{6})", value, re.IGNORECASE):
        digits = hexes[1] if len(hexes[1]) == 6 else "".join(each * 2 for each in hexes[1])
        red, green, blue = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
        return red, green, blue
    if other := re.fullmatch(r"var\(--([\w-]+)\)", value):
        return rgb(other[1], theme)
    if pair := re.fullmatch(r"light-dark\((.+), (.+)\)", value):
        return _rgb(pair[1 if theme == LIGHT else 2], theme)
    if oklch := re.fullmatch(r"oklch\(([\d.]+)% ([\d.]+) ([\d.]+)deg\)", value):
        return _of_oklch(float(oklch[1]) / 100, float(oklch[2]), math.radians(float(oklch[3])))
    raise ValueError(f"{value!r} is not an opaque colour")


def _of_oklch(lightness: float, chroma: float, hue: float) -> tuple[float, float, float]:
    """Converts as CSS Color 4 does: through OKLab to linear light, then to sRGB."""
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    long, middle, short = (
        (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3,
        (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3,
        (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3,
    )
    red, green, blue = _encoded(
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
    return red, green, blue


def _encoded(*linear: float) -> Iterator[float]:
    for part in linear:
        inside = min(max(part, 0.0), 1.0)
        yield 12.92 * inside if inside <= 0.0031308 else 1.055 * inside ** (1 / 2.4) - 0.055


def _luminance(encoded: tuple[float, float, float]) -> float:
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in encoded)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

"""Creates bars.woff2: every character is a bar, every space a gap, all equally wide. With it a page has the same layout on
every machine, whatever its fonts. Run with `uv run --no-project --with fonttools --with brotli
tests/e2e/visual/make_font.py`."""

from __future__ import annotations

from pathlib import Path

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib.tables._c_m_a_p import CmapSubtable

EM, WIDE = 1000, 540


def bar():
    pen = TTGlyphPen(None)
    pen.moveTo((20, 0))
    for point in ((20, 560), (WIDE - 20, 560), (WIDE - 20, 0)):
        pen.lineTo(point)
    pen.closePath()
    return pen.glyph()


def main() -> None:
    builder = FontBuilder(EM, isTTF=True)
    builder.setupGlyphOrder([".notdef", "space", "bar"])
    builder.setupCharacterMap({0x20: "space", 0x41: "bar"})
    builder.setupGlyf({".notdef": bar(), "space": TTGlyphPen(None).glyph(), "bar": bar()})
    builder.setupHorizontalMetrics(dict.fromkeys((".notdef", "space", "bar"), (WIDE, 0)))
    builder.setupHorizontalHeader(ascent=930, descent=-240)
    builder.setupNameTable({"familyName": "Bars", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=930, usWinAscent=930, usWinDescent=240)
    builder.setupPost()
    many = CmapSubtable.newSubtable(13)  # many characters, one glyph
    many.platformID, many.platEncID, many.language = 3, 10, 0
    many.cmap = dict.fromkeys(range(33, 69632), "bar") | dict.fromkeys((32, 160, 12288), "space")
    builder.font["cmap"].tables = [many]
    builder.font.flavor = "woff2"
    builder.save(Path(__file__).with_name("bars.woff2"))


if __name__ == "__main__":
    main()

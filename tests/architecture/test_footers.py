"""Buttons in the footer of a card are on the left, the main action first: saving is in the same place on every page."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT

FOOTER = re.compile(r'<(?:div|form)\b[^>]*class="card-footer\b([^"]*)".*?</(?:div|form)>', re.DOTALL)
ELSEWHERE = {"text-end", "text-center", "justify-content-end", "justify-content-between", "justify-content-center"}
FOOTERS = [
    (str(path.relative_to(ROOT)), set(footer[1].split()), footer[0])
    for path in sorted((ROOT / "templates").rglob("*.html"))
    for footer in FOOTER.finditer(path.read_text())
]


def test_buttons_of_a_footer_are_on_the_left() -> None:
    assert len(FOOTERS) > 30
    assert [(path, classes & ELSEWHERE) for path, classes, _text in FOOTERS if classes & ELSEWHERE] == []


def test_main_action_comes_before_cancel() -> None:
    cancels = [(path, text.split('translate "Cancel"')) for path, _classes, text in FOOTERS]
    assert [path for path, parts in cancels if len(parts) > 1 and "<button" not in parts[0]] == []

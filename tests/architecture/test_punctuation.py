"""Punctuation between values on pages is translated, too: a Chinese page has ：，、（） where an English one has : , ( )."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.password_validation import password_validators_help_texts
from django.utils import translation

from portal.text import words
from tests.architecture.sources import ROOT

TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
TRANSLATED = re.compile(
    r"{% blocktranslate.*?{% endblocktranslate %}|{% translate .*?%}|{% comment.*?{% endcomment %}|<script.*?</script>",
    re.S,
)
BARE = re.compile(r"(?:}}|%}|¤|</strong>|</a>)[:;.,](?= |<|{|¤)|join:[\"'][,;]? [\"']|(?<=[ >}¤])\(|\)(?=<|¤)")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_no_template_contains_untranslated_punctuation(path: object) -> None:
    text = TRANSLATED.sub("¤", path.read_text())  # type: ignore[attr-defined]
    assert [text[max(0, match.start() - 40) : match.end() + 20] for match in BARE.finditer(text)] == []


def test_lists_have_the_separator_of_their_language() -> None:
    assert words.listed(["a", 2]) == "a, 2"
    with translation.override("zh-hans"):
        assert words.listed(["甲", "乙"]) == "甲、乙"


def test_password_hints_of_django_are_polite_in_chinese() -> None:
    with translation.override("zh-hans"):
        hints = password_validators_help_texts()
    assert len(hints) == 3
    assert all("您" in text and "你" not in text for text in hints)

"""Addresses and references break behind their marks."""

from __future__ import annotations

import pytest

from portal.templatetags.portal import breakable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("alice@demo.invalid", "alice@<wbr>demo.invalid"),
        ("registry.example/a/b:1", "registry.example/<wbr>a/<wbr>b:<wbr>1"),
        ("https://x/", "https://<wbr>x/"),
        ("<b>@x", "&lt;b&gt;@<wbr>x"),
    ],
)
def test_breaks_are_allowed_behind_marks_and_the_text_is_escaped(text: str, expected: str) -> None:
    assert breakable(text) == expected

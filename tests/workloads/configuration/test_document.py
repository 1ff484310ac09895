"""The YAML document: scalars are read as written, and every error has its line."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.configuration import document


@pytest.mark.parametrize(
    "text", ["no", "on", "09:00", "18:00", "1.10", "0123", "2026-01-01", "0x1f", "1e3", "Ω", "true", "8"]
)
def test_plain_scalars_are_read_as_text(text: str) -> None:
    assert document.read(f"key: {text}").values == {"key": text}
    assert document.read(f"{text}: value").values == {text: "value"}


def test_null_is_read_as_none_unless_it_is_quoted() -> None:
    assert document.read("a: null\nb: ~\nc:\nd: 'null'\ne: \"\"").values == {
        "a": None, "b": None, "c": None, "d": "null", "e": "",
    }  # fmt: skip


def test_every_value_has_its_line() -> None:
    file = document.read("a:\n  b: 1\n  c:\n    - x\n    - {d: y}\n")
    assert [file.line_of(path) for path in ((), ("a",), ("a", "b"), ("a", "c", "1", "d"))] == [1, 1, 2, 5]
    assert file.line_of(("a", "c", "nowhere")) == 3  # the line of its parent
    assert file.line_of(("nowhere",)) == 1


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 10)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("a: [1,\nb", "not_yaml", 2), ("a:\n  b: 1\n  b: 2", "twice", 3), ("a: \x07", "not_yaml", 1),
        ("a: &x [*x]", "too_deep", 1), (BOMB, "too_many_values", 1), ("- " * 40, "too_deep", 1),
        ("{" * 5000, "too_deep", 1), ("a: 1\n---\nb: 2", "not_yaml", 2), ('a: "\\ud800"', "not_yaml", 1),
        ('a: "\\0"', "not_yaml", 1), ("? [a]\n: b", "not_yaml", 1), ("a: *b", "not_yaml", 1),
    ],
)  # fmt: skip
def test_unreadable_document_is_rejected_with_its_line(text: str, code: str, line: int) -> None:
    with pytest.raises(document.Unreadable) as refused:
        document.read(text)
    assert (refused.value.code, refused.value.numbers["line"]) == (code, line)


TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufeff\ufffe\uffff\x85\u2028\u2029"))
VALUES = st.recursive(st.none() | TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
                      max_leaves=8)  # fmt: skip


@given(VALUES)
def test_written_document_is_read_back_unchanged(values: Any) -> None:
    assert document.read(document.write({"top": values})).values == {"top": values}


def test_numbers_are_written_without_quotes() -> None:
    values = {"a": 3, "b": Decimal("1.50"), "c": Decimal(4), "d": True, "e": None}
    assert document.write(values) == "a: 3\nb: 1.5\nc: 4\nd: true\ne: null\n"


def test_path_text_uses_dots_and_brackets_for_keys_that_contain_dots() -> None:
    assert document.path_text(("departments", "vision", "quotas")) == "departments.vision.quotas"
    assert document.path_text(("images", "torch:2.10", "title")) == 'images["torch:2.10"].title'

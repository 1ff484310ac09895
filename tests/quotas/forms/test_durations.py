"""Durations as people write them, in every form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.urls import get_resolver
from hypothesis import given
from hypothesis import strategies as st

from quotas.forms.durations import DurationField


@given(st.integers(0, 10**9))
def test_field_parses_back_the_duration_it_shows(seconds: int) -> None:
    field = DurationField(needs_unit=True)
    assert field.clean(field.prepare_value(seconds)) == seconds


def _forms(parent: Any = forms.BaseForm) -> Iterator[Any]:
    for form in parent.__subclasses__():
        yield form
        yield from _forms(form)


def test_no_form_asks_for_bare_seconds() -> None:
    assert get_resolver().url_patterns  # imports every page and its forms
    labels = {
        f"{form.__name__}.{name}": str(field.label)
        for form in _forms()
        for name, field in getattr(form, "base_fields", {}).items()
    }
    assert "RulesForm.notice" in labels
    assert {name: label for name, label in labels.items() if label.endswith(("(s)", "(ms)"))} == {}

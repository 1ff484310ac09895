"""Conflicting edits in a form: both versions side by side, and the version mark for sending it again
(portal/infra/versions.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.forms.boundfield import BoundField

from portal.infra.versions import readable
from portal.names import LineInput


class SeenField(LineInput):
    """The hidden field with the version mark."""

    def __init__(self) -> None:
        super().__init__(required=False, widget=forms.HiddenInput, max_length=16)


def show(form: Any, **present: Any) -> None:
    """Shows both versions above a form that was refused as outdated. Its `initial` is what is stored now; `present` are the
    current version marks, so that sending it again saves it."""
    form.conflict = list(differing(form.visible_fields()))
    form.data = form.data.copy()
    for name, value in present.items():
        form.data[form.add_prefix(name)] = value


def differing(fields: Iterable[BoundField]) -> Iterable[tuple[str, str, str]]:
    """(label, stored, sent) of the fields that differ as text: a command is stored as words and sent as text, for
    example."""
    for bound in fields:
        if not bound.field.disabled and bound.field.has_changed(bound.initial, bound.data):
            stored, sent = _display(bound, bound.initial), _display(bound, bound.data)
            if stored != sent:
                yield str(bound.label), stored, sent


def _display(bound: BoundField, value: Any) -> str:
    field: Any = bound.field
    values = (
        value if isinstance(value, list | tuple) and not hasattr(field, "own_names") else [field.prepare_value(value)]
    )
    choices = {str(key): str(text) for key, text in getattr(field, "choices", ())}
    return ", ".join(choices.get(str(each), readable(each)) for each in values) or "–"


def status_of(*asked: Any) -> int:
    """409 for an outdated form, 422 for an invalid one, else 200."""
    if any(getattr(form, "conflict", None) is not None for form in asked):
        return 409
    return 422 if any(form.errors for form in asked) else 200

"""A form that came too late: both versions beside each other, and what it takes to send it again (portal/infra/versions.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.forms.boundfield import BoundField

from portal.infra.versions import readable
from portal.names import LineInput


class SeenField(LineInput):
    """The hidden field of a form."""

    def __init__(self) -> None:
        super().__init__(required=False, widget=forms.HiddenInput, max_length=16)


def show(form: Any, **present: Any) -> None:
    """Puts both versions above a form that came too late. Its `initial` is what is stored now; `present` has the hidden
    marks of that, so that sending it again replaces it."""
    form.conflict = list(differing(form.visible_fields()))
    form.data = form.data.copy()
    for name, value in present.items():
        form.data[form.add_prefix(name)] = value


def differing(fields: Iterable[BoundField]) -> Iterable[tuple[str, str, str]]:
    """(label, stored, sent) of the fields in which both versions differ. A command is kept as its words, and what is sent
    is its text: what reads the same is no difference."""
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
    """409 for a form that came too late, 422 for a wrong one, else 200."""
    if any(getattr(form, "conflict", None) is not None for form in asked):
        return 409
    return 422 if any(form.errors for form in asked) else 200

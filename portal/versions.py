"""Two tabs, or two people, change the same thing: whoever saves second is told, and sees both versions.

A form carries `seen`, the mark of what was stored when its page was made. The action compares it with what is stored now,
under the row's lock. Whoever sends the form again after seeing both has decided.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from django.utils.translation import gettext as _

from portal.errors import N_, Problem
from portal.names import LineInput

FIELD = "seen"


class Conflict(Problem):
    """`stored` is what stands there now."""

    code = "changed_meanwhile"
    message = N_(
        "Somebody else changed this since your page was loaded. Nothing was saved: compare both, then save again."
    )

    def __init__(self, stored: Mapping[str, Any]) -> None:
        super().__init__()
        self.stored = dict(stored)

    @property
    def rows(self) -> list[tuple[str, str]]:
        return [(name, _plain(value)) for name, value in self.stored.items()]


def mark(values: Mapping[str, Any]) -> str:
    """The same for the same values, and short."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check(stored: Mapping[str, Any], seen: str) -> None:
    """Raises Conflict. `seen` "": a program, which has seen nothing and means what it says."""
    if seen and seen != mark(stored):
        raise Conflict(stored)


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
            stored, sent = _shown(bound, bound.initial), _shown(bound, bound.data)
            if stored != sent:
                yield str(bound.label), stored, sent


def _shown(bound: BoundField, value: Any) -> str:
    field: Any = bound.field
    values = (
        value if isinstance(value, list | tuple) and not hasattr(field, "own_names") else [field.prepare_value(value)]
    )
    choices = {str(key): str(text) for key, text in getattr(field, "choices", ())}
    return ", ".join(choices.get(str(each), _plain(each)) for each in values) or "–"


def _plain(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return "–"
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else str(value)


def status_of(*asked: Any) -> int:
    """409 for a form that came too late, 422 for a wrong one, else 200."""
    if any(getattr(form, "conflict", None) is not None for form in asked):
        return 409
    return 422 if any(form.errors for form in asked) else 200

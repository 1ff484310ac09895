"""Problems at their fields in a page's form, and fields for JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.forms.fields import InvalidJSONInput
from django.utils.translation import gettext as _

from portal.errors import Problem
from portal.infra import versions
from portal.infra.confirm import Unconfirmed
from portal.text.json_values import DEEPEST, depth
from portal.web import conflicts


def only_missing(form: forms.BaseForm) -> bool:
    """Whether the only errors are missing values: there is nothing to preview then, and no error to show."""
    return all(error.code == "required" for errors in form.errors.as_data().values() for error in errors)


@dataclass(frozen=True)
class Fault:
    """An error of a form; `label` and `id` are its field's, empty for an error of the whole form or of a hidden field."""

    text: str
    label: str = ""
    id: str = ""


def faults(asked: forms.BaseForm | Iterable[Any]) -> list[Fault]:
    """Every error of a form, or of several forms and formsets. A field whose label is not unique has the unique one as
    `aria-label`."""
    if not isinstance(asked, forms.BaseForm):
        own = asked.non_form_errors() if isinstance(asked, forms.BaseFormSet) else ()
        return [*(Fault(str(error)) for error in own), *(fault for form in asked for fault in faults(form))]
    wrong = [Fault(str(error)) for error in asked.non_field_errors()]
    for bound in asked if asked.errors else ():
        label = str(bound.field.widget.attrs.get("aria-label", bound.label))
        place = () if bound.is_hidden else (label, bound.id_for_label or f"{bound.auto_id}_0")  # _0: the first choice
        wrong += [Fault(str(error), *place) for error in bound.errors]
    return wrong


class JsonField(forms.JSONField):
    """A field for typed JSON; what cannot be parsed or stored is refused, and shown again as it was typed."""

    def to_python(self, value: Any) -> Any:
        if not isinstance(value, str) or value in self.empty_values:
            return super().to_python(value)
        try:
            data = json.loads(value)
            is_fit = depth(data) <= DEEPEST
            if is_fit:
                json.dumps(data, ensure_ascii=False).encode()
        except (ValueError, RecursionError):  # not JSON, a number of thousands of digits, a lone surrogate
            is_fit = False
        if not is_fit:
            raise forms.ValidationError(
                _("Enter valid JSON, nested at most %(levels)s levels deep.") % {"levels": DEEPEST}
            )
        return super().to_python(value)

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, InvalidJSONInput) else json.dumps(value, ensure_ascii=False, indent=2)

    def bound_data(self, data: Any, initial: Any) -> Any:
        try:
            self.to_python(data)
        except forms.ValidationError:
            return InvalidJSONInput(data)
        return super().bound_data(data, initial)


def blame(form: Any, problem: Problem) -> None:
    """Shows the problem at the field it names, or above the form; for a conflict, both versions. Unconfirmed is
    raised again, because it has a page of its own."""
    if isinstance(problem, Unconfirmed):
        raise problem
    form.add_error(problem.field if problem.field in form.fields else None, problem.detail)
    if isinstance(problem, versions.Conflict):
        conflicts.show(form, seen=versions.mark(problem.stored))
    elif problem.code == "stale":
        conflicts.show(form, version=form.initial["version"])

"""How a refusal finds its field in a page's form."""

from __future__ import annotations

from django.forms import BaseForm

from portal.errors import Problem


def blame(form: BaseForm, problem: Problem) -> None:
    """Puts the problem's sentence beside the field it names, or above the form."""
    form.add_error(problem.field if problem.field in form.fields else None, problem.detail)

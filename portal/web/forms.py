"""How a refusal is shown at its field in a page's form."""

from __future__ import annotations

from typing import Any

from portal.errors import Problem
from portal.infra import versions
from portal.infra.confirm import Unconfirmed
from portal.web import conflicts


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

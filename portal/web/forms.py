"""How a refusal finds its field in a page's form."""

from __future__ import annotations

from typing import Any

from portal.errors import Problem
from portal.infra import versions
from portal.infra.confirm import Unconfirmed
from portal.web import conflicts


def blame(form: Any, problem: Problem) -> None:
    """Puts the problem's sentence beside the field it names, or above the form; both versions where it came too late.
    What is to be confirmed first is asked on a page of its own: it is raised again."""
    if isinstance(problem, Unconfirmed):
        raise problem
    form.add_error(problem.field if problem.field in form.fields else None, problem.detail)
    if isinstance(problem, versions.Conflict):
        conflicts.show(form, seen=versions.mark(problem.stored))
    elif problem.code == "stale":
        conflicts.show(form, version=form.initial["version"])

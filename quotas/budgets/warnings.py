"""Warnings, before a workload is submitted, about budgets that are nearly used up."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from django.db.models import Q
from django.utils.translation import gettext as _

from portal.access import Actor
from portal.models import Department
from quotas.budgets.actions import binding_budgets
from quotas.models import Pool
from quotas.spending.budgets import Spent, spent_of
from quotas.wording import clock_of


def warnings_for(actor: Actor, department: Department, pool: Pool, *, now: dt.datetime) -> Iterator[str]:
    """Sentences about budgets that the actor's workload would count against and that are used to 80 % or more."""
    whose = Q(person=None) | Q(person=actor.user) if actor.user else Q(person=None)
    rows = binding_budgets(actor, department).filter(whose, Q(pool=None) | Q(pool=pool))
    for spent in spent_of(rows.select_related("person", "department"), now=now):
        if spent.is_near:
            yield _sentence(actor, spent)


def _sentence(actor: Actor, spent: Spent) -> str:
    budget = spent.budget
    if budget.person is not None:
        text = _(
            "Your budget in %(department)s: %(used)s of %(limit)s GPU-hours are used, until %(resets_at)s. When it is "
            "used up: %(action)s."
        )
    else:
        text = _(
            "The budget of %(department)s: %(used)s of %(limit)s GPU-hours are used, until %(resets_at)s. When it is "
            "used up: %(action)s."
        )
    return text % {
        "department": budget.department.name, "used": f"{spent.whole_hours:,}", "limit": f"{budget.hours:,}",
        "resets_at": clock_of(spent.resets_at), "action": budget.get_action_display(),
    }  # fmt: skip

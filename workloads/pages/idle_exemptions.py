"""Exemptions on the page of an idle policy: the form with its preview, and the lists of present and past exemptions."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, cast

from django import forms
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from portal.access import Actor
from portal.errors import Problem
from portal.models import Department
from quotas.forms.days import DayField, last_moment
from quotas.models import Pool
from quotas.tree import with_above
from workloads.idle import exemptions, policies, spells
from workloads.idle.rule import Rule
from workloads.lifecycle import LIVE
from workloads.measurement.idle_week import Week, last_week
from workloads.models import ASKED_HERE, IdleExemption, IdleSpell, Workload

WHOLE = "department"
OFFERED = 200
"""At most so many workloads to choose from, the newest first; others are exempted on their own page."""
LISTED = 200
PAST = 20


class ExemptionForm(forms.Form):
    """Exempts, on a department's page, one of its workloads in the pool or (operators only) all of its work; on a pool's page,
    a department."""

    what = forms.ChoiceField(label=gettext_lazy("What is exempt"))
    why = forms.CharField(
        label=gettext_lazy("Reason"), max_length=500, widget=forms.Textarea(attrs={"rows": 2}),
        help_text=gettext_lazy("Shown to everybody who can see the workload."),
    )  # fmt: skip
    until = DayField(label=gettext_lazy("Until, that day included"))

    def __init__(self, data: Any = None, *, actor: Actor, pool: Pool, department: Department | None) -> None:
        super().__init__(data, initial={"until": timezone.localdate() + dt.timedelta(days=7)}, prefix="exempt")
        self.department = department
        self.departments: dict[str, Department] = {}
        self.workloads: dict[str, Workload] = {}
        if department is None:
            self.departments = {row.slug: row for row in Department.objects.order_by("name")}
        else:
            rows = Workload.objects.filter(department=department, pool=pool, state__in=LIVE).select_related("author")
            self.workloads = {row.public_id: row for row in rows.order_by("-public_id")[:OFFERED]}
        what: Any = self.fields["what"]
        what.choices = self._choices(actor)
        self.fields["until"].help_text = _("At most %(days)s days from now.") % {"days": exemptions.LONGEST.days}

    def _choices(self, actor: Actor) -> list[tuple[str, str]]:
        whole = _("All work of %(name)s and its teams, in every pool")
        choices = [("", _("Choose"))]
        choices += [(slug, whole % {"name": row.name}) for slug, row in self.departments.items()]
        if self.department is not None and actor.is_operator:
            choices.append((WHOLE, whole % {"name": self.department.name}))
        for public_id, row in self.workloads.items():
            who = f" · {row.author.label}" if row.author else ""
            choices.append((public_id, f"{row.name} · {row.get_kind_display()}{who}"))
        return choices

    def clean_until(self) -> dt.date:
        day: dt.date = self.cleaned_data["until"]
        try:
            exemptions.check_end(self._end_of(day), timezone.now())
        except Problem as problem:
            raise forms.ValidationError(problem.detail) from problem
        return day

    def covered(self) -> tuple[Department, Workload | None]:
        """What a valid form exempts: (department, workload), or (department, None) for all its work."""
        what = self.cleaned_data["what"]
        workload = self.workloads.get(what)
        department = workload.department if workload else self.departments.get(what, self.department)
        return cast("Department", department), workload

    def end(self) -> dt.datetime:
        return self._end_of(self.cleaned_data["until"])

    @staticmethod
    def _end_of(day: dt.date) -> dt.datetime:
        """The end of the day; on the last permitted day, the last permitted moment."""
        latest = timezone.now() + exemptions.LONGEST
        return latest if day == timezone.localdate(latest) else cast("dt.datetime", last_moment(day))


@dataclass(frozen=True, slots=True)
class Effect:
    """What an exemption would change: the number of live workloads it covers, the warnings that would end, and what the
    present policy would have stopped in the last week (None when a single workload is exempted)."""

    covered: int
    warned: tuple[IdleSpell, ...]
    week: Week | None


def effect_of(pool: Pool, department: Department, workload: Workload | None) -> Effect:
    live = Workload.objects.filter(state__in=LIVE)
    inside = department.with_teams()
    live = live.filter(department__in=inside) if workload is None else live.filter(pk=workload.pk)
    warned = spells.live().filter(attempt__workload__in=live.values("pk"))
    week = None
    if workload is None:
        week = last_week(pool, inside, effective_rules(pool, department), now=timezone.now())
    return Effect(live.count(), tuple(warned.select_related("attempt__workload__department")[:PAST]), week)


def effective_rules(pool: Pool, department: Department) -> dict[str, Rule]:
    """Kind of workload → the rule in force for the department."""
    every = policies.Policies()
    rules = {kind: every.effective(pool.pk, department.pk, kind) for kind in ASKED_HERE}
    return {kind: rule for kind, rule in rules.items() if rule is not None}


@dataclass(frozen=True, slots=True)
class Listed:
    """An exemption in a list. `may_end`: whether the reader may end it."""

    row: IdleExemption
    may_end: bool


def concerning(pool: Pool, department: Department | None) -> QuerySet[IdleExemption]:
    """The exemptions that the page of a policy lists. For a department: its own, its workloads' and those of the departments
    above it; for a pool: those of all departments and of workloads in the pool."""
    if department is None:
        where = Q(workload=None) | Q(workload__pool=pool)
    else:
        where = Q(department=department) | Q(workload=None, department__in=with_above(department))
    return IdleExemption.objects.filter(where).select_related("workload", "author", "department")


def listed(actor: Actor, pool: Pool, department: Department | None) -> tuple[list[Listed], list[IdleExemption]]:
    """The exemptions in force, the earliest end first; and those that ended last."""
    rows, now = concerning(pool, department), timezone.now()
    at_present = (rows & exemptions.in_force(now)).order_by("until")[:LISTED]
    past = rows.filter(Q(ended_at__isnull=False) | Q(until__lte=now)).order_by("-public_id")[:PAST]
    may_end = [Listed(row, exemptions.may_end(actor, row)) for row in at_present]
    return may_end, list(past)

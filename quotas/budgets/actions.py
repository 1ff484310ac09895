"""Budgets: who may set them, valid values, and notifications.

A budget takes no capacity and stops nothing that runs; it is one of the rules that the next planning pass reads. So no pool
group is locked to change it, and every group is planned again afterwards.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import structlog
from django.db import IntegrityError
from django.db.models import Q, QuerySet
from django.utils import timezone

from portal import audit
from portal.access import Actor, NotVisible, Right
from portal.errors import N_, Invalid, Problem
from portal.infra.locks import durable
from portal.infra.versions import Stale
from portal.models import Department, Membership, User
from portal.notify import notices
from portal.notify.events import emit
from quotas.models import Budget, BudgetAction, BudgetCounts, Pool
from quotas.planning.claims import wake_all
from quotas.rules.quotas import may_promise
from quotas.spending.budgets import Spent, period_of, remember, spent_of
from quotas.tree import with_above

log = structlog.get_logger(__name__)
MOST_HOURS = 1_000_000_000
LONGEST = 5 * 366
"""The most days of a term."""
NUMBERS = ("hours", "counts", "action", "starts_on", "ends_on")


class BudgetExists(Problem):
    status = 409
    code = "budget_exists"
    message = N_("There is already a budget for the same department, person, pool and beginning. Change that one.")


@dataclass(frozen=True, slots=True)
class Limits:
    """The part of a budget that can be changed. Without days it is monthly."""

    hours: int
    counts: str = BudgetCounts.ALL
    action: str = BudgetAction.NO_BORROWING
    starts_on: dt.date | None = None
    ends_on: dt.date | None = None

    @staticmethod
    def of(budget: Budget) -> Limits:
        return Limits(**{name: getattr(budget, name) for name in NUMBERS})

    def instead_of(self, budget: Budget) -> Budget:
        """The same budget with these limits; not saved."""
        whose = {"department": budget.department, "person": budget.person, "pool": budget.pool}
        return Budget(pk=budget.pk, **whose, **self.columns())

    def columns(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in NUMBERS}

    def audited(self) -> dict[str, Any]:
        return {
            name: value.isoformat() if isinstance(value, dt.date) else value for name, value in self.columns().items()
        }


# Rights ---------------------------------------------------------------------------------------------------------


def may_set(actor: Actor, department: Department, person: User | None) -> bool:
    """Whether the actor may set a budget: a department's if they may set its quota, a person's if they own the department."""
    return may_promise(actor, department) if person is None else actor.may(Right.STEER, department)


def require_setter(actor: Actor, department: Department, person: User | None) -> None:
    """Raise NotVisible or Forbidden unless `may_set`."""
    if not may_set(actor, department, person):
        actor.require(Right.STEER, department)
        actor.require(Right.OPERATE, department)


def visible_budgets(actor: Actor) -> QuerySet[Budget]:
    """Budgets of departments that the actor may see, the actor's own, and those of people in departments that the actor owns."""
    rows = Budget.objects.select_related("department__parent", "person", "pool")
    if actor.sees_all:
        return rows
    allowed = Q(person=None, department__in=actor.departments) | Q(department__in=actor.owned)
    if actor.user is not None and Right.SEE in actor.scopes:
        own = Q(person=actor.user)
        allowed |= own if actor.bound is None else own & Q(department=actor.bound)
    return rows.filter(allowed)


def budget_for(actor: Actor, public_id: str) -> Budget:
    """The visible budget with this public id. Raises NotVisible."""
    row = visible_budgets(actor).filter(public_id=public_id).first()
    if row is None:
        raise NotVisible
    return row


def binding_budgets(actor: Actor, department: Department) -> QuerySet[Budget]:
    """The visible budgets of a department, of people in it, of the departments above, and of the actor in those."""
    above = with_above(department)
    return visible_budgets(actor).filter(Q(department=department) | Q(department__in=above, person=None)
                                         | Q(department__in=above, person=actor.user))  # fmt: skip


# Valid values ------------------------------------------------------------------------------------------------------


def check(
    department: Department, person: User | None, limits: Limits, *, now: dt.datetime, before: Limits | None
) -> None:
    """Raise Invalid (hours, counts, action, starts_on, ends_on, person). `before`: the present limits; None: a new budget."""
    if not 1 <= limits.hours <= MOST_HOURS:
        raise Invalid(
            N_("Enter whole GPU-hours from 1 to %(most)s."), field="hours", most=f"{MOST_HOURS:,}", given=limits.hours
        )
    for name, known in (("counts", BudgetCounts), ("action", BudgetAction)):
        if getattr(limits, name) not in known.values:
            raise Invalid(
                N_("“%(given)s” cannot be chosen here. Use one of %(choices)s."), field=name,
                given=str(getattr(limits, name))[:40], choices=", ".join(known.values),
            )  # fmt: skip
    _check_term(limits, now=now, before=before)
    if person is not None and before is None and not _belongs(person, department):
        raise Invalid(
            N_("%(person)s is not a member of %(department)s or of a team below it."), field="person",
            person=person.username, department=department.name,
        )  # fmt: skip


def _check_term(limits: Limits, *, now: dt.datetime, before: Limits | None) -> None:
    first, last = limits.starts_on, limits.ends_on
    if first is None and last is None:
        return
    if first is None or last is None:
        missing = "starts_on" if first is None else "ends_on"
        raise Invalid(
            N_("A term needs both days, the first and the last; without both the budget is monthly."), field=missing
        )
    if last < first:
        raise Invalid(N_("The last day is before the first."), field="ends_on")
    if (last - first).days > LONGEST:
        raise Invalid(
            N_("The term is %(days)s days long; a budget lasts at most %(most)s days."), field="ends_on",
            days=(last - first).days, most=LONGEST,
        )  # fmt: skip
    changed = before is None or before.ends_on != last
    if changed and period_of(Budget(starts_on=first, ends_on=last), now) is None and last < timezone.localdate(now):
        raise Invalid(N_("The term has already ended: its last day is %(day)s."), field="ends_on", day=last.isoformat())


def _belongs(person: User, department: Department) -> bool:
    """Whether the person has a role in the department or below it, or owns one above it."""
    above = with_above(department)
    roles = Membership.objects.filter(user=person)
    inside = roles.filter(department__in=department.with_teams()) | roles.filter(department__in=above, role="owner")
    return person.is_active and inside.exists()


def check_new(
    *, actor: Actor, department: Department, limits: Limits, person: User | None = None, pool: Pool | None = None
) -> None:
    """Raise Invalid, BudgetExists, NotVisible or Forbidden if the actor cannot create this budget."""
    require_setter(actor, department, person)
    check(department, person, limits, now=timezone.now(), before=None)
    same = Budget.objects.filter(department=department, person=person, pool=pool, starts_on=limits.starts_on)
    if same.exists():
        raise BudgetExists


def check_changed(budget: Budget, limits: Limits) -> None:
    """Raise Invalid if the budget cannot have these limits."""
    check(budget.department, budget.person, limits, now=timezone.now(), before=Limits.of(budget))


# Setting --------------------------------------------------------------------------------------------------------------


def create_budget(
    *, actor: Actor, department: Department, limits: Limits, person: User | None = None, pool: Pool | None = None
) -> Budget:
    """Create a budget. Raises the errors of check_new."""
    check_new(actor=actor, department=department, limits=limits, person=person, pool=pool)
    try:
        with durable():
            row = Budget.objects.create(department=department, person=person, pool=pool, **limits.columns())
            _record(actor, row, "budget.set", None, limits)
    except IntegrityError:
        raise BudgetExists from None
    return row


def change_budget(*, actor: Actor, budget: Budget, limits: Limits, expected_version: int | None) -> Budget:
    """Change a budget. People who were warned in this period are warned again if the new limits are reached. Raises Stale,
    Invalid, BudgetExists, Forbidden."""
    require_setter(actor, budget.department, budget.person)
    try:
        with durable():
            row = _locked(budget, expected_version)
            before = Limits.of(row)
            check(row.department, row.person, limits, now=timezone.now(), before=before)
            for name, value in limits.columns().items():
                setattr(row, name, value)
            row.version += 1
            row.counted = {}
            if any(getattr(before, name) != getattr(limits, name) for name in NUMBERS if name != "action"):
                row.warned = row.reached = None
            row.save()
            _record(actor, row, "budget.set", before, limits)
    except IntegrityError:
        raise BudgetExists from None
    return row


def remove_budget(*, actor: Actor, budget: Budget, expected_version: int | None) -> None:
    """Remove a budget. Raises Stale, Forbidden."""
    require_setter(actor, budget.department, budget.person)
    with durable():
        row = _locked(budget, expected_version)
        _record(actor, row, "budget.removed", Limits.of(row), None)
        row.delete()


def _locked(budget: Budget, expected_version: int | None) -> Budget:
    """The budget's row, locked. Raises NotVisible if it was removed, Stale."""
    rows = Budget.objects.select_for_update(no_key=True, of=("self",)).select_related("department", "person", "pool")
    row = rows.filter(pk=budget.pk).first()
    if row is None:
        raise NotVisible
    if row.version != expected_version:
        raise Stale(current=row.version, given=expected_version or 0)
    return row


def _record(actor: Actor, row: Budget, what: str, before: Limits | None, after: Limits | None) -> None:
    whose = {"pool": row.pool.slug if row.pool else None, "person": row.person.username if row.person else None}
    audit.record(
        actor, what, f"{row.department.slug}/{row.public_id}", department=row.department,
        before=before.audited() | whose if before else None, after=after.audited() | whose if after else None,
    )  # fmt: skip
    emit("budget.changed", department=row.department, budget=row.public_id)
    people = [user for user in concerned(row) if user != actor.user]
    notices.send(what, to=people, department=row.department, **_facts(row), person=actor.label, hours=row.hours)
    wake_all()


# Notifications --------------------------------------------------------------------------------------------------------------


def concerned(budget: Budget) -> list[User]:
    """Who is notified of the budget: its person, and the owners of its department."""
    person = [budget.person] if budget.person else []
    return [*person, *notices.owners_of(budget.department)]


def _facts(budget: Budget) -> dict[str, Any]:
    whose = budget.person.username if budget.person else budget.department.name
    return {"whose": whose, "pool": budget.pool.name if budget.pool else None, "budget": budget.public_id}


def keep(*, now: dt.datetime) -> int:
    """Send a notification, once in a period, for each budget that is nearly or entirely used up. Then keep the final sums. A run
    that was killed is completed by the next one. Returns the number of budgets notified of."""
    rows = Budget.objects.select_related("department__parent", "person", "pool")
    count = sum(_notify_once(spent) for spent in spent_of(rows, now=now))
    remember(now=now)
    return count


def _notify_once(spent: Spent) -> bool:
    """Notify people of a budget unless that was done. The mark and the messages are committed together."""
    budget = spent.budget
    if not spent.is_near or budget.reached == spent.start or (budget.warned == spent.start and not spent.is_used_up):
        return False
    marks = {"warned": spent.start} | ({"reached": spent.start} if spent.is_used_up else {})
    kind = "budget.reached" if spent.is_used_up else "budget.near"
    with durable():
        same = Budget.objects.filter(pk=budget.pk, version=budget.version, warned=budget.warned, reached=budget.reached)
        if not same.update(**marks):
            return False  # notified by another process, or changed: the next run checks again
        emit("budget.changed", department=budget.department, budget=budget.public_id)
        notices.send(
            kind, to=concerned(budget), department=budget.department, **_facts(budget), hours=budget.hours,
            used=round(spent.hours, 1), resets_at=spent.resets_at.isoformat(), action=budget.action,
        )  # fmt: skip
    log.info(kind, budget=budget.public_id, department=budget.department.slug, used=round(spent.hours, 1))
    return True

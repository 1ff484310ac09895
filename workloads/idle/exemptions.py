"""Exemptions from idle policies, each with an end and a reason. An owner can exempt a workload of the department, an operator
a whole department."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from django.db.models import Q, QuerySet
from django.utils import timezone

from portal import audit, names
from portal.access import Actor, Right
from portal.errors import N_, Invalid
from portal.infra.locks import durable
from portal.models import Department
from portal.notify.events import emit
from quotas.tree import upwards, with_above
from workloads.idle import spells
from workloads.models import IdleExemption, Workload

LONGEST = dt.timedelta(days=90)


class Ended(Invalid):
    status = 409
    code = "exemption_ended"
    message = N_("This exemption has already ended.")


def in_force(now: dt.datetime) -> QuerySet[IdleExemption]:
    return IdleExemption.objects.filter(ended_at=None, until__gt=now)


@dataclass(frozen=True, slots=True)
class Exempt:
    """The workloads and departments that are exempt at a time: primary key → until when."""

    workloads: dict[int, dt.datetime]
    departments: dict[int, dt.datetime]
    tree: dict[int, Department]

    @staticmethod
    def at(now: dt.datetime) -> Exempt:
        workloads: dict[int, dt.datetime] = {}
        departments: dict[int, dt.datetime] = {}
        for row in in_force(now).order_by("until"):
            if row.workload_id is None:
                departments[row.department_id] = row.until
            else:
                workloads[row.workload_id] = row.until
        return Exempt(workloads, departments, Department.objects.in_bulk())

    def until(self, workload: int, department: int) -> dt.datetime | None:
        """Until when a workload is exempt, itself or by its department; None: it is not."""
        ends = (self.workloads.get(workload), self.of_department(department))
        return max((end for end in ends if end is not None), default=None)

    def of_department(self, department: int) -> dt.datetime | None:
        """Until when all work of a department is exempt; None: it is not."""
        above = [self.departments.get(row.pk) for row in upwards(self.tree, department)] if self.departments else []
        return max((end for end in above if end is not None), default=None)


def of_department(department: Department, now: dt.datetime) -> IdleExemption | None:
    """The exemption of the department, or of one above it, that ends last; None if there is none."""
    return _longest(Q(workload=None, department__in=with_above(department)), now)


def of_workload(workload: Workload, now: dt.datetime) -> IdleExemption | None:
    """The exemption of the workload, its department or one above it that ends last; None if there is none."""
    return _longest(Q(workload=workload) | Q(workload=None, department__in=with_above(workload.department)), now)


def _longest(covers: Q, now: dt.datetime) -> IdleExemption | None:
    return in_force(now).filter(covers).select_related("author", "department").order_by("until").last()


def require_right(actor: Actor, department: Department, workload: Workload | None) -> None:
    if workload is None:
        actor.require_operator()
    else:
        actor.require(Right.STEER, department)


def check_end(until: dt.datetime, now: dt.datetime) -> None:
    """Raises Invalid for an end in the past, or more than LONGEST from now."""
    if not now < until <= now + LONGEST:
        raise Invalid(
            N_("An exemption ends in the future, at most %(days)s days from now."), field="until", days=LONGEST.days
        )


def may_end(actor: Actor, row: IdleExemption) -> bool:
    if row.workload is None:
        return actor.is_operator
    return actor.may(Right.STEER, row.department)


def exempt(
    *, actor: Actor, department: Department, workload: Workload | None, why: str, until: dt.datetime
) -> IdleExemption:  # fmt: skip
    """Exempts the workload or, if it is None, all work of the department and its teams. Raises Invalid, NotVisible, Forbidden."""
    require_right(actor, department, workload)
    why, now = names.checked_paragraph(why, "why"), timezone.now()
    if not why.strip():
        raise Invalid(N_("Enter the reason."), field="why")
    check_end(until, now)
    if workload is not None and workload.is_final:
        raise Invalid(N_("%(name)s has already ended."), code="already_finished", field="workload", name=workload.name)
    with durable():
        row = IdleExemption.objects.create(
            department=department, workload=workload, why=why, until=until, author=actor.user
        )
        within = Q(pk=workload.pk) if workload else Q(department__in=department.with_teams())
        spells.end_exempt(Workload.objects.filter(within), now=now)
        target = workload.public_id if workload else department.slug
        audit.record(actor, "idle.exempted", target, department=department, after=_audited(row))
        emit("idle.exempted", department=department, workload=workload.public_id if workload else "")
    return row


def end(*, actor: Actor, row: IdleExemption) -> None:
    """Ends the exemption early. Raises Ended, NotVisible, Forbidden."""
    require_right(actor, row.department, row.workload)
    with durable():
        now = timezone.now()
        if not in_force(now).filter(pk=row.pk).update(ended_at=now):
            raise Ended
        target = row.workload.public_id if row.workload else row.department.slug
        audit.record(actor, "idle.exemption_ended", target, department=row.department, before=_audited(row))
        emit(
            "idle.exemption_ended", department=row.department, workload=row.workload.public_id if row.workload else ""
        )  # fmt: skip


def _audited(row: IdleExemption) -> dict[str, str]:
    named = {"workload": row.workload.name} if row.workload else {}
    return named | {"why": row.why, "until": row.until.isoformat()}

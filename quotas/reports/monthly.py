"""The monthly report: on the first of a month, the owners of a department are notified of what it used in the month before."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import structlog
from django.db import IntegrityError
from django.utils import timezone

from portal.access import SYSTEM
from portal.infra.locks import durable
from portal.models import Department, Membership, Role, User
from portal.notify import notices
from portal.text.zones import zone_of
from quotas.models import MonthlyReport
from quotas.reports.asked import Asked, month_of
from quotas.reports.queries import report
from quotas.reports.sums import Row, hours
from quotas.reports.words import money

LATE = dt.timedelta(days=10)
"""How long after a month its report is still sent, if it could not be sent on the first."""
FIGURES = ("own", "borrowed", "lent", "guaranteed", "idle")
log = structlog.get_logger(__name__)


def send_monthly(*, now: dt.datetime) -> int:
    """Send the reports that are due and not yet sent. Returns the number of departments."""
    with timezone.override(zone_of("")):
        this = timezone.localdate(now).replace(day=1)
        start, end = month_of(this - dt.timedelta(days=1))
    if now - end > LATE:
        return 0
    month = (this - dt.timedelta(days=1)).replace(day=1)
    done = MonthlyReport.objects.filter(month=month).values("department")
    owned = Department.objects.filter(memberships__role=Role.OWNER).exclude(pk__in=done).distinct()
    return sum(_send(department, month, start, end, now=now) for department in owned)


def _send(department: Department, month: dt.date, start: dt.datetime, end: dt.datetime, *, now: dt.datetime) -> bool:
    """Notify the owners of this department only: departments above have their own report, which includes it."""
    owners = Membership.objects.filter(department=department, role=Role.OWNER).values("user")
    summed = report(SYSTEM, Asked(start, end, ("department",), department=department), now=now)
    costs = [row.cost for row in summed.totals if row.cost is not None]
    try:
        with durable():  # the row and the messages are committed together, so they are sent once
            MonthlyReport.objects.create(department=department, month=month)
            if summed.totals:
                notices.send(
                    "usage.month", to=User.objects.filter(pk__in=owners), department=department, month=f"{month:%Y-%m}",
                    figures=[_figures(row) for row in summed.totals],
                    cost=money(sum(costs, Decimal(0))) if costs else None,
                )  # fmt: skip
    except IntegrityError:
        return False  # another process has just sent it
    log.info("usage.month_sent", department=department.slug, month=f"{month:%Y-%m}", units=len(summed.totals))
    return bool(summed.totals)


def _figures(row: Row) -> dict[str, Any]:
    """Hours as text, with two decimals."""
    values = {name: getattr(row, name) or 0 for name in FIGURES}
    return {"unit": row.unit} | {name: f"{hours(value, row.unit):,.2f}" for name, value in values.items()}

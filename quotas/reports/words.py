"""The wording of units, kinds and amounts in reports, and the cells of tables."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from portal.text.words import unit_hours
from quotas.reports.asked import KINDS
from quotas.reports.queries import Report
from quotas.reports.sums import Row, hours

FIGURES = ("own", "borrowed", "lent", "guaranteed", "idle", "measured", "covered")
COLUMNS = (
    "unit", *(f"{name}_hours" for name in FIGURES), "starts", "wait_p50_s", "wait_p95_s", "recalls_suffered",
    "recalls_caused", "cost", "currency",
)  # fmt: skip
PRECISION = Decimal("0.0001")


def one_hour(unit: str) -> str:
    """What a price is charged for."""
    return {
        "card": _("card and hour"), "MiB": _("GiB and hour"), "slice": _("slice and hour"),
        "replica": _("replica and hour"), "percent": _("whole card and hour"),
    }.get(unit, unit)  # fmt: skip


def kind_name(kind: str) -> str:
    """The name of a kind of workload. An empty kind means an owner's recall."""
    return _(KINDS[kind]) if kind in KINDS else kind or _("recall by an owner")


def money(amount: Decimal | None) -> str:
    return "" if amount is None else f"{amount:,.2f} {settings.CURRENCY}".strip()


def exact_hours(row: Row, name: str) -> Decimal | None:
    """A figure in hours, for programs. The API also has the exact unit-seconds."""
    value: int | None = getattr(row, name)
    return None if value is None else hours(value, row.unit).quantize(PRECISION)


def cells(report: Report) -> Iterator[list[Any]]:
    """Lines of a table for spreadsheets: the values of the groups, then COLUMNS. Numbers stay numbers; None is unknown."""
    for row in report.rows:
        figures = [exact_hours(row, name) for name in FIGURES]
        waits = [None if wait is None else round(wait) for wait in (row.median_wait, row.long_wait)]
        paid = [None, None] if row.cost is None else [row.cost, settings.CURRENCY]
        yield [*row.key, unit_hours(row.unit), *figures, row.starts, *waits, row.suffered, row.caused, *paid]

"""How much of their allocated time cards computed.

This is the only source of it in reports. The function that the setting MEASURED_USE names returns unit-seconds of activity for
the key of each row. What was not measured stays None, never 0; pages show it as "not measured".
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.utils.module_loading import import_string

from quotas.models import Pool
from quotas.reports.sums import Table

Measure = Callable[[dt.datetime, dt.datetime, Sequence[str], Q], Iterator[tuple[dict[str, Any], int, int]]]


def used_by(department_ids: Sequence[int], pool: Pool, start: dt.datetime, end: dt.datetime) -> tuple[int, int] | None:
    """Unit-seconds (active, measured) of these departments' use of the pool; None if none of it was measured."""
    if not settings.MEASURED_USE:
        return None
    measure: Measure = import_string(settings.MEASURED_USE)
    where = Q(department__in=department_ids, pool=pool)
    rows = list(measure(start, end, ("pool",), where))
    active, covered = sum(row[1] for row in rows), sum(row[2] for row in rows)
    return (active, covered) if covered else None


def fill_measured(
    table: Table,
    *,
    start: dt.datetime,
    end: dt.datetime,
    names: Sequence[str],
    condition: Q,
    pools: dict[int, Pool],
    key: Callable[[dict[str, Any]], tuple[str, ...]],
) -> bool:
    """Fill `measured` and `covered` of the table's rows. Returns whether anything was measured.

    A measured hour counts if it begins within the period, so a report that begins or ends within an hour may have slightly
    more or less measured than allocated. `covered` is therefore limited to what was allocated.
    """
    if not settings.MEASURED_USE:
        return False
    measure: Measure = import_string(settings.MEASURED_USE)
    anything = False
    for values, active, covered in measure(start, end, names, condition):
        row = table.rows.get((key(values), pools[values["pool"]].unit))
        if row is not None and covered:
            row.add("measured", active)
            row.add("covered", covered)
            anything = True
    for row in table.rows.values():
        if row.measured is not None and row.covered is not None:
            share = row.measured / row.covered
            row.covered = min(row.covered, row.allocated)
            row.measured = round(share * row.covered)
    return anything

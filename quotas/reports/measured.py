"""What cards really did, of what was allocated.

This is the one place that reports ask. Whoever measures (the setting MEASURED_USE) gives unit-seconds of activity for each
row's key; what was not measured stays None, which pages call "not measured". It is never 0.
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
    """(active, covered) in unit-seconds of what these departments did in the pool; None: nothing of it was measured."""
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
    """Fills `measured` and `covered` of the rows that are there. False: nothing is measured in this installation.

    A measured hour counts where it begins in the time, so a report that begins or ends within an hour may have a little more
    or less measured than allocated; of what was allocated never more than all is called measured.
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

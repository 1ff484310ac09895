"""Measured GPU activity at the grain of reports. quotas/reports/measured.py calls it through the setting MEASURED_USE."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import Q, Sum

from workloads.models import MeasuredWork, MetricsSource


def is_measured() -> bool:
    """Whether any cluster of this installation has ever been measured."""
    return MetricsSource.objects.filter(measured_at__isnull=False).exists()


def used(
    start: dt.datetime, end: dt.datetime, names: Sequence[str], condition: Q
) -> Iterator[tuple[dict[str, Any], int, int]]:  # fmt: skip
    """(values of `names`, active, covered), in unit-seconds, for the hours that begin between `start` and `end`. `names` and the
    fields in `condition` are department, pool, person and kind."""
    rows = MeasuredWork.objects.filter(condition, hour__gte=start, hour__lt=end)
    for values in rows.values(*names).annotate(sum_active=Sum("active"), sum_covered=Sum("covered")).order_by():
        active, covered = values.pop("sum_active"), values.pop("sum_covered")
        yield values, active, covered

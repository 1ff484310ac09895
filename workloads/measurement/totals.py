"""What cards really did, at the grain of reports: quotas/reports/measured.py asks for it by the setting MEASURED_USE."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import Q, Sum

from workloads.models import MeasuredWork, MetricsSource


def is_measured() -> bool:
    """Whether anything in this installation measures, or has."""
    return MetricsSource.objects.filter(measured_at__isnull=False).exists()


def used(
    start: dt.datetime, end: dt.datetime, names: Sequence[str], condition: Q
) -> Iterator[tuple[dict[str, Any], int, int]]:  # fmt: skip
    """(values of `names`, active, covered) in unit-seconds, of the hours that begin in the time. `names` and those in
    `condition` are department, pool, person and kind."""
    rows = MeasuredWork.objects.filter(condition, hour__gte=start, hour__lt=end)
    for values in rows.values(*names).annotate(sum_active=Sum("active"), sum_covered=Sum("covered")).order_by():
        active, covered = values.pop("sum_active"), values.pop("sum_covered")
        yield values, active, covered

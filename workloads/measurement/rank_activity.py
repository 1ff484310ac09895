"""Measured GPU activity of attempts, for idle policies."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Mapping

from django.db.models import Max

from workloads.idle.rule import Bucket
from workloads.models import MeasuredBucket

AT_ONCE = 500
"""Number of attempts whose buckets are read in one query."""


def buckets_of(ranks: Mapping[int, int], begin: dt.datetime, end: dt.datetime | None = None) -> dict[int, list[Bucket]]:
    """Id of an attempt → its buckets from `begin` to `end`, in order. `ranks`: id of an attempt → its number of ranks."""
    most: dict[int, dict[dt.datetime, list[int]]] = defaultdict(lambda: defaultdict(list))
    keys = list(ranks)
    for at in range(0, len(keys), AT_ONCE):
        rows = MeasuredBucket.objects.filter(attempt__in=keys[at : at + AT_ONCE], at__gte=begin, gpu__isnull=False)
        if end is not None:
            rows = rows.filter(at__lt=end)
        for attempt, moment, gpu in rows.values_list("attempt", "at", "gpu"):
            most[attempt][moment].append(gpu or 0)
    return {
        attempt: [Bucket(at, max(of) / 10, len(of) >= ranks[attempt]) for at, of in sorted(by_time.items())]
        for attempt, by_time in most.items()
    }


def lately_busiest(attempts: Collection[int], begin: dt.datetime) -> dict[int, float]:
    """Id of an attempt → the highest GPU activity of any of its ranks in a bucket since `begin`, in percent."""
    rows = MeasuredBucket.objects.filter(attempt__in=attempts, at__gte=begin, gpu__isnull=False)
    return {pk: (gpu or 0) / 10 for pk, gpu in rows.values_list("attempt").annotate(most=Max("gpu")).order_by()}

"""How busy the cards of some pools are now, by the claims that occupy them. The card map (quotas/board/map_reading.py) calls
it through the setting CARD_ACTIVITY."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping

from quotas.models import OCCUPYING
from workloads.measurement.buckets import BUCKET
from workloads.models import MeasuredBucket

RECENT = 3 * BUCKET
"""Older measurements do not show the present."""


def activity(pools: Collection[int], now: dt.datetime) -> Mapping[tuple[int, int], float]:
    """(claim, rank) → the share of its newest bucket in which its cards computed, 0 to 1. Ranks not measured lately are absent.
    One query, for the buckets of the last minutes only."""
    rows = MeasuredBucket.objects.filter(
        at__gte=now - RECENT, gpu__isnull=False, attempt__finished_at=None,
        attempt__claim__pool__in=pools, attempt__claim__state__in=OCCUPYING,
    )  # fmt: skip
    recent = {}
    for claim, rank, gpu in rows.order_by("at").values_list("attempt__claim", "rank", "gpu"):
        recent[claim, rank] = (gpu or 0) / 1000
    return recent

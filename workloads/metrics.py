"""Gauges of workloads and of the promise made to owners, for portal.server.metrics."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from django.db.models import Count
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric

from quotas.metrics import QUANTILES, quantile
from workloads.models import Attempt, MetricsSource, StopCause, Workload

RECLAIMS = dt.timedelta(days=1)


def collect() -> Iterator[Metric]:
    states = GaugeMetricFamily("portal_workloads", "Workloads by state.", labels=["state"])
    for state, count in Workload.objects.values_list("state").annotate(count=Count("id")).order_by("state"):
        states.add_metric([state], count)
    yield states
    yield from reclaims()
    yield from measured()


def measured() -> Iterator[Metric]:
    """Whether the use of a cluster's pods is measured. Never measured: no age."""
    now = timezone.now()
    works = GaugeMetricFamily("portal_use_measured", "1 if the last measuring of a cluster worked.", labels=["cluster"])
    age = GaugeMetricFamily(
        "portal_use_measured_age_seconds", "Since the last measuring that worked.", labels=["cluster"]
    )
    ranks = GaugeMetricFamily(
        "portal_use_measured_ranks", "Ranks measured then: all, with GPU.", labels=["cluster", "what"]
    )
    for source in (
        MetricsSource.objects.filter(cluster__active=True).select_related("cluster").order_by("cluster__name")
    ):
        name = source.cluster.name
        works.add_metric([name], int(source.failing_since is None and source.measured_at is not None))
        if source.measured_at is not None:
            age.add_metric([name], max(0.0, (now - source.measured_at).total_seconds()))
            ranks.add_metric([name, "all"], source.ranks)
            ranks.add_metric([name, "gpu"], source.gpu_ranks)
    yield from (works, age, ranks)


def reclaims() -> Iterator[Metric]:
    """From notice until the capacity was free, in the last 24 hours; late is after notice and grace were over."""
    ended = Attempt.objects.filter(
        stop_cause=StopCause.RECALLED,
        finished_at__gte=timezone.now() - RECLAIMS,
        recalled_at__isnull=False,
        reclaim_at__isnull=False,
    ).select_related("workload__pool")
    took: dict[str, list[float]] = {}
    over: dict[str, list[float]] = {}
    for attempt in ended:
        if attempt.finished_at and attempt.recalled_at and attempt.reclaim_at:
            pool = attempt.workload.pool.slug
            due = attempt.reclaim_at + dt.timedelta(seconds=attempt.grace)
            took.setdefault(pool, []).append((attempt.finished_at - attempt.recalled_at).total_seconds())
            over.setdefault(pool, []).append(max(0.0, (attempt.finished_at - due).total_seconds()))
    latency = GaugeMetricFamily(
        "portal_reclaim_seconds", "From notice until the capacity was free, last 24 hours.", labels=["pool", "quantile"]
    )
    late = GaugeMetricFamily(
        "portal_reclaim_late_seconds", "The longest time past notice and grace, last 24 hours.", labels=["pool"]
    )
    count = GaugeMetricFamily("portal_reclaims", "Attempts that gave capacity back, last 24 hours.", labels=["pool"])
    for pool, times in took.items():
        for q in QUANTILES:
            latency.add_metric([pool, str(q)], quantile(sorted(times), q))
        late.add_metric([pool], max(over[pool]))
        count.add_metric([pool], len(times))
    yield from (latency, late, count)

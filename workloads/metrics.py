"""Gauges of workloads and of the promise made to owners, for portal.server.metrics."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from django.db.models import Count
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric

from quotas.metrics import QUANTILES, quantile
from quotas.models import OCCUPYING, Claim, Pool
from workloads.idle import spells
from workloads.measurement import heat
from workloads.models import Attempt, MetricsSource, StopCause, Workload

RECENT = dt.timedelta(days=1)
STAGES = ("recalled", "notified", "saved", "stopping", "late")


def collect() -> Iterator[Metric]:
    states = GaugeMetricFamily("portal_workloads", "Workloads by state.", labels=["state"])
    for state, count in Workload.objects.values_list("state").annotate(count=Count("id")).order_by("state"):
        states.add_metric([state], count)
    yield states
    yield from ends()
    yield from recalls()
    yield from reclaims()
    yield from measured()
    yield from activity()
    yield idle()


def measured() -> Iterator[Metric]:
    """Whether the use of a cluster's pods is measured. A cluster that was never measured has no age."""
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
    """Times from notice until the capacity was free, in the last 24 hours. Late: after the end of notice and grace."""
    ended = Attempt.objects.filter(
        stop_cause=StopCause.RECALLED,
        finished_at__gte=timezone.now() - RECENT,
        recalled_at__isnull=False,
        reclaim_at__isnull=False,
    ).select_related("workload__pool")
    pools = dict(Pool.objects.values_list("slug", "unit"))
    lost = dict.fromkeys(pools.items(), 0.0)
    took: dict[str, list[float]] = {}
    over: dict[str, list[float]] = {}
    for attempt in ended:
        if attempt.finished_at and attempt.recalled_at and attempt.reclaim_at:
            pool = attempt.workload.pool.slug
            due = attempt.reclaim_at + dt.timedelta(seconds=attempt.grace)
            took.setdefault(pool, []).append((attempt.finished_at - attempt.recalled_at).total_seconds())
            over.setdefault(pool, []).append(max(0.0, (attempt.finished_at - due).total_seconds()))
            lost[pool, pools[pool]] += lost_work(attempt)
    latency = GaugeMetricFamily(
        "portal_reclaim_seconds", "From notice until the capacity was free, last 24 hours.", labels=["pool", "quantile"]
    )
    late = GaugeMetricFamily(
        "portal_reclaim_late_seconds", "The longest time past notice and grace, last 24 hours.", labels=["pool"]
    )
    count = GaugeMetricFamily("portal_reclaims", "Attempts that gave capacity back, last 24 hours.", labels=["pool"])
    work = GaugeMetricFamily(
        "portal_reclaim_lost_unit_seconds", "Work since the last checkpoint of those, without the cost of starting again.",
        labels=["pool", "unit"],
    )  # fmt: skip
    for key, spent in lost.items():
        work.add_metric(key, spent)
    for pool in pools:
        times = took.get(pool, [])
        for q in QUANTILES if times else ():
            latency.add_metric([pool, str(q)], quantile(sorted(times), q))
        late.add_metric([pool], max(over.get(pool, [0])))
        count.add_metric([pool], len(times))
    yield from (latency, late, count, work)


def lost_work(attempt: Attempt) -> float:
    """Unit-seconds that an ended attempt had worked since its start, its last checkpoint or its report that all was saved."""
    saved = [at for at in (attempt.started_at, attempt.checkpointed_at, attempt.ready_at) if at is not None]
    if not saved or attempt.finished_at is None:
        return 0
    return attempt.workload.units * max(0.0, (attempt.finished_at - max(saved)).total_seconds())


def ends() -> Iterator[Metric]:
    """How attempts ended in the last 24 hours; for those that were stopped, also why."""
    gauge = GaugeMetricFamily(
        "portal_attempts_ended", "Attempts that ended in the last 24 hours.", labels=["pool", "outcome", "cause"]
    )
    rows = Attempt.objects.filter(finished_at__gte=timezone.now() - RECENT).order_by()
    for *labels, number in rows.values_list("workload__pool__slug", "outcome", "stop_cause").annotate(
        number=Count("id")
    ):
        gauge.add_metric(labels, number)
    yield gauge


def recalls() -> Iterator[Metric]:
    """Attempts that are being recalled, each in one stage; 0 for every other stage and pool."""
    gauge = GaugeMetricFamily(
        "portal_recalls", "Attempts being recalled: recalled, notified in the container, saved, stopping, late.",
        labels=["pool", "stage"],
    )  # fmt: skip
    now = timezone.now()
    stages = {(pool, stage): 0 for pool in Pool.objects.values_list("slug", flat=True) for stage in STAGES}
    going = Attempt.objects.filter(finished_at=None, recalled_at__isnull=False).select_related("workload__pool")
    for attempt in going:
        stages[attempt.workload.pool.slug, stage_of(attempt, now)] += 1
    for labels, number in sorted(stages.items()):
        gauge.add_metric(labels, number)
    yield gauge


def stage_of(attempt: Attempt, now: dt.datetime) -> str:
    """The stage of an attempt that is being recalled: the last one of STAGES that applies."""
    if attempt.reclaim_at and now > attempt.reclaim_at + dt.timedelta(seconds=attempt.grace):
        return "late"
    if attempt.stopping_at:
        return "stopping"
    if attempt.ready_at:
        return "saved"
    return "notified" if attempt.announced_at else "recalled"


def activity() -> Iterator[Metric]:
    """Units that workloads hold now, those whose use is measured, and those in which cards computed. Only pools of measured
    clusters: unmeasured units are not idle."""
    gauge = GaugeMetricFamily(
        "portal_activity_units", "Units held by work: allocated, measured, and active, by what was measured last.",
        labels=["pool", "department", "unit", "what"],
    )  # fmt: skip
    pools = {pool.pk: pool for pool in Pool.objects.filter(group__cluster__metrics_source__isnull=False)}
    shares: dict[int, list[float]] = {}
    for (claim, _rank), share in heat.activity(pools, timezone.now()).items():
        shares.setdefault(claim, []).append(share)
    sums: dict[tuple[int, str], list[float]] = {}
    claims = Claim.objects.filter(pool__in=pools, state__in=OCCUPYING, pods__gt=0)
    columns = ("pk", "pool_id", "department__slug", "pods", "units_per_pod")
    for pk, pool, department, pods, units in claims.values_list(*columns):
        row = sums.setdefault((pool, department), [0, 0, 0])
        of_claim = shares.get(pk, [])
        for index, amount in enumerate((pods * units, len(of_claim) * units, sum(of_claim) * units)):
            row[index] += amount
    for (pool, department), row in sorted(sums.items()):
        for what, amount in zip(("allocated", "measured", "active"), row, strict=True):
            gauge.add_metric([pools[pool].slug, department, pools[pool].unit, what], amount)
    yield gauge


def idle() -> Metric:
    gauge = GaugeMetricFamily(
        "portal_idle_units", "Units of workloads that were warned of being idle and still are.", labels=["pool", "unit"]
    )
    units = dict.fromkeys(Pool.objects.values_list("slug", "unit"), 0)
    for spell in spells.live().select_related("attempt__workload__pool"):
        workload = spell.attempt.workload
        units[workload.pool.slug, workload.pool.unit] += workload.units
    for labels, amount in sorted(units.items()):
        gauge.add_metric(labels, amount)
    return gauge

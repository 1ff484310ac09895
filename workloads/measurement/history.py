"""The measured use of a workload: its ranks over time, and whether its cards are hardly used."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import Avg, Count

from workloads.measurement.buckets import BUCKET, HOUR
from workloads.models import Attempt, MeasuredBucket, MeasuredHour, MetricsSource, State, Workload

STEPS = {int(BUCKET.total_seconds()): MeasuredBucket, int(HOUR.total_seconds()): MeasuredHour}
"""Seconds of one point → the model that stores it."""

LOW_SHARE = 0.05
LOW_FOR = dt.timedelta(hours=3)
LOW_COVERED = 0.8
"""Cards are hardly used if they computed for less than LOW_SHARE of LOW_FOR. Loading data, compiling and a person at
lunch take less than three hours; the least busy training that is worth a card is above a tenth. For every rank at least
LOW_COVERED of that time must be measured: unmeasured time does not count as idle."""


@dataclass(frozen=True, slots=True)
class Point:
    """Means of one step. None: not measured. `gpu` is a share of time, 0 to 1."""

    at: dt.datetime
    gpu: float | None
    gpu_mib: int | None
    watts: int | None
    cpu_milli: int | None
    memory_mib: int | None
    cards: int


def points_of(workload: Workload, begin: dt.datetime, end: dt.datetime, step: int) -> dict[int, list[Point]]:
    """Rank → its points in order. Of two attempts in one step the later one counts."""
    rows = STEPS[step]._default_manager.filter(attempt__in=workload.attempts.values("pk"), at__gte=begin, at__lt=end)
    by_rank: dict[int, dict[dt.datetime, Point]] = defaultdict(dict)
    columns = ("rank", "at", "gpu", "gpu_mib", "watts", "cpu_milli", "memory_mib", "cards")
    for rank, at, gpu, *values in rows.order_by("attempt", "at").values_list(*columns):
        by_rank[rank][at] = Point(at, None if gpu is None else gpu / 1000, *values)
    return {rank: [points[at] for at in sorted(points)] for rank, points in sorted(by_rank.items())}


def low_use(pairs: Iterable[tuple[Workload, Attempt | None]], *, now: dt.datetime) -> dict[int, float]:
    """Id of a workload → the share of time in which its cards computed, for running workloads that hardly use them. `pairs`:
    each workload with its newest attempt. One query, by the index of the buckets; none if nothing has run for long enough."""
    begin = now - LOW_FOR
    running = {
        attempt.pk: workload
        for workload, attempt in pairs
        if workload.state in (State.RUNNING, State.RECALLED) and attempt is not None and attempt.finished_at is None
        and attempt.started_at is not None and attempt.started_at <= begin
    }  # fmt: skip
    if not running:
        return {}
    means = (
        MeasuredBucket.objects.filter(attempt__in=running, at__gte=begin - BUCKET, gpu__isnull=False)
        .values_list("attempt", "rank")
        .annotate(mean=Avg("gpu"), count=Count("gpu"))
        .order_by()
    )
    by_attempt: dict[int, list[float]] = defaultdict(list)
    for attempt, _rank, mean, count in means:
        if count >= LOW_COVERED * (LOW_FOR / BUCKET):
            by_attempt[attempt].append(float(mean) / 1000)
    shares = {pk: sum(of) / len(of) for pk, of in by_attempt.items() if len(of) == running[pk].pods}
    return {running[pk].pk: share for pk, share in shares.items() if share < LOW_SHARE}


def source_for(attempt: Attempt | None) -> MetricsSource | None:
    """The metrics source of the attempt's cluster; None if there is none."""
    return MetricsSource.objects.filter(cluster=attempt.cluster_id).first() if attempt else None


def mean_of(ranks: Sequence[Sequence[Point]]) -> list[Point]:
    """The mean at each time of the ranks that were measured then."""
    by_time: dict[dt.datetime, list[Point]] = defaultdict(list)
    for points in ranks:
        for point in points:
            by_time[point.at].append(point)
    return [_mean(at, by_time[at]) for at in sorted(by_time)]


def _mean(at: dt.datetime, points: Sequence[Point]) -> Point:
    def of(name: str) -> float | None:
        values = [value for point in points if (value := getattr(point, name)) is not None]
        return sum(values) / len(values) if values else None

    whole = {
        name: None if (value := of(name)) is None else round(value)
        for name in ("gpu_mib", "watts", "cpu_milli", "memory_mib")
    }
    return Point(at, of("gpu"), **whole, cards=max(point.cards for point in points))

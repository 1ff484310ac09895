"""Means of five minutes, kept 30 days, and of hours, kept 400 days.

Nothing is ever added to a row: a bucket is queried again as a whole until it is over, and an hour is summed again from its
buckets. So each step may be repeated or killed anywhere, and a portal that was down catches up from what Prometheus kept.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction

from quotas.models import Cluster
from workloads.idle import rule
from workloads.measurement.series import Place, Use
from workloads.models import Attempt, MeasuredBucket, MeasuredHour, MeasuredWork, MetricsSource

BUCKET, CATCH_UP = rule.BUCKET, rule.GAP
"""CATCH_UP: how far back missed buckets are queried. Each round catches up on one of them."""
HOUR = dt.timedelta(hours=1)
BUCKETS_KEPT, HOURS_KEPT = dt.timedelta(days=30), dt.timedelta(days=400)
TOO_SHORT = dt.timedelta(seconds=30)
"""The present bucket is not measured while it is younger than this."""
BATCH = 2000
VALUES = ("gpu_mib", "watts", "cpu_milli", "memory_mib", "gpu", "cards")


@dataclass(frozen=True, slots=True)
class Window:
    """A bucket, or the part of it that is over. `whole`: it will not be queried again."""

    begin: dt.datetime
    end: dt.datetime
    whole: bool

    @property
    def seconds(self) -> int:
        return round((self.end - self.begin).total_seconds())


def floor(moment: dt.datetime, step: dt.timedelta) -> dt.datetime:
    """The start of the step (5 min, 1 h) that contains the moment, in UTC."""
    seconds = int(step.total_seconds())
    return dt.datetime.fromtimestamp(moment.timestamp() // seconds * seconds, dt.UTC)


def windows_due(complete_until: dt.datetime | None, now: dt.datetime) -> list[Window]:
    """The oldest bucket that is over and not complete, and the present one: two at most. The last one shows whether anything is
    measured now; an older bucket does not, because Prometheus may have been down then, too."""
    this = floor(now, BUCKET)
    first = this if complete_until is None else max(floor(complete_until, BUCKET), this - CATCH_UP)
    due = [Window(first, first + BUCKET, whole=True)] if first < this else []
    if now - this >= TOO_SHORT or not due:
        due.append(Window(this, max(now, this + dt.timedelta(seconds=1)), whole=False))
    elif first + BUCKET < this:
        due.append(Window(this - BUCKET, this, whole=False))  # it is completed in a later round
    return due


def write(window: Window, uses: Mapping[Place, Use]) -> int:
    """Write the bucket of every rank that was measured, replacing stored ones; returns how many."""
    rows = [
        MeasuredBucket(
            attempt_id=attempt, rank=rank, at=window.begin, gpu=None if use.gpu is None else round(use.gpu * 1000),
            gpu_mib=_whole(use.gpu_mib), watts=_whole(use.watts), cards=use.cards,
            cpu_milli=_whole(use.cpu_milli), memory_mib=_whole(use.memory_mib),
        )
        for (attempt, rank), use in sorted(uses.items())
    ]  # fmt: skip
    _store(MeasuredBucket, rows, VALUES)
    return len(rows)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def sum_hour(cluster: Cluster, hour: dt.datetime) -> int:
    """Sum an hour of all ranks on a cluster again from its buckets, and also for reports; returns how many ranks."""
    buckets = MeasuredBucket.objects.filter(at__gte=hour, at__lt=hour + HOUR, attempt__cluster=cluster)
    by_rank: dict[Place, list[MeasuredBucket]] = defaultdict(list)
    for bucket in buckets.order_by("attempt", "rank", "at").iterator(chunk_size=BATCH):
        by_rank[bucket.attempt_id, bucket.rank].append(bucket)
    attempts = {
        row.pk: row for row in Attempt.objects.filter(pk__in={pk for pk, _rank in by_rank}).select_related("claim")
    }
    rows = [_hour(attempts[place[0]], place[1], hour, of_rank) for place, of_rank in by_rank.items()]
    _store(MeasuredHour, rows, (*VALUES, "seconds"))
    _store_work(cluster, hour, rows, attempts)
    return len(rows)


def _hour(attempt: Attempt, rank: int, hour: dt.datetime, buckets: Sequence[MeasuredBucket]) -> MeasuredHour:
    """The hour of one rank. GPU activity is weighted by how long the attempt ran in each bucket, which is what was allocated."""
    means = {name: _mean([getattr(bucket, name) for bucket in buckets]) for name in VALUES[:4]}
    shares = [(bucket.gpu, _overlap(attempt, bucket.at)) for bucket in buckets if bucket.gpu is not None]
    seconds = sum(length for _gpu, length in shares)
    gpu = round(sum(share * length for share, length in shares) / seconds) if seconds else None
    most = max(bucket.cards for bucket in buckets)
    return MeasuredHour(
        attempt=attempt, rank=rank, at=hour, gpu=gpu, cards=most, seconds=min(round(seconds), 3600), **means
    )  # fmt: skip


def _mean(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known)) if known else None


def _overlap(attempt: Attempt, begin: dt.datetime) -> float:
    """Seconds of a bucket in which the attempt ran."""
    first = max(begin, attempt.started_at or begin)
    last = min(begin + BUCKET, attempt.finished_at or begin + BUCKET)
    return max(0.0, (last - first).total_seconds())


def _store_work(
    cluster: Cluster, hour: dt.datetime, rows: Sequence[MeasuredHour], attempts: Mapping[int, Attempt]
) -> None:
    """Store the hour's sums for reports, replacing stored ones."""
    sums: dict[tuple[int, int, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        claim = attempts[row.attempt_id].claim
        if row.gpu is not None:
            unit_seconds = row.seconds * claim.units_per_pod
            total = sums[claim.department_id, claim.pool_id, claim.person, claim.kind]
            total[0] += round(unit_seconds * row.gpu / 1000)
            total[1] += unit_seconds
    with transaction.atomic():  # lock first: of two concurrent rounds the later one must see what the other wrote
        MetricsSource.objects.select_for_update(no_key=True).filter(cluster=cluster).first()
        MeasuredWork.objects.filter(hour=hour, pool__group__cluster=cluster).delete()
        MeasuredWork.objects.bulk_create(
            MeasuredWork(
                department_id=d, pool_id=p, person=person, kind=kind, hour=hour, active=active, covered=covered
            )
            for (d, p, person, kind), (active, covered) in sums.items()
        )


def _store(model: type[MeasuredBucket] | type[MeasuredHour], rows: list, values: tuple[str, ...]) -> None:  # type: ignore[type-arg]
    for batch in (rows[start : start + BATCH] for start in range(0, len(rows), BATCH)):
        with transaction.atomic():
            model._default_manager.bulk_create(
                batch, update_conflicts=True, unique_fields=["attempt", "rank", "at"], update_fields=list(values)
            )


def hours_of(windows: list[Window], complete_until: dt.datetime | None) -> Iterator[dt.datetime]:
    """The hours to sum again after these windows: those with a whole bucket, and one that a killed round may have left."""
    begun = {floor(window.begin, HOUR) for window in windows if window.whole}
    if begun and complete_until is not None:
        begun.add(floor(complete_until, HOUR))
    yield from sorted(begun)


def forget_old(*, now: dt.datetime) -> Counter[str]:
    """Delete rows that are older than they are kept; returns how many of each kind."""
    deleted: Counter[str] = Counter()
    for name, model, age in (("buckets", MeasuredBucket, BUCKETS_KEPT), ("hours", MeasuredHour, HOURS_KEPT)):
        rows = model._default_manager.filter(at__lt=now - age)
        deleted[name] = rows._raw_delete(rows.db)  # nothing refers to them: no row is read first
    deleted["work"] = MeasuredWork.objects.filter(hour__lt=now - HOURS_KEPT).delete()[0]
    return deleted

"""The job that measures: each minute, a fixed number of queries to each cluster's Prometheus, whatever runs there."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

import structlog
from django.db.models import Q

from portal.errors import N_, Problem
from portal.infra.crypt import Undecryptable
from portal.infra.locks import durable
from portal.models import User
from portal.notify import notices
from portal.notify.events import emit
from quotas.models import Cluster, ClusterKind
from workloads.clusters.drivers import driver_for
from workloads.measurement import buckets
from workloads.measurement.buckets import Window
from workloads.measurement.prometheus import NotMeasured, Server, ask, server_of
from workloads.measurement.series import EXPORTERS, Place, Query, Run, Sample, Use, attribute, queries_of
from workloads.models import Attempt, MetricsSource, Workload
from workloads.runtime.base import ClusterError

AT_ONCE = 8
"""Clusters that are queried at the same time, so that a slow one does not delay the others."""
SEEN_WITHIN = dt.timedelta(minutes=5)
"""How long after its start a pod may be missing from Prometheus."""
OUTAGE = dt.timedelta(minutes=30)
"""Operators are notified when nothing was measured for so long: a restart of Prometheus is not worth a notice."""
log = structlog.get_logger(__name__)

Answers = list[dict[str, tuple[Sample, ...]]]


@dataclass(frozen=True, slots=True)
class Round:
    """One cluster's part of a round: the windows and queries for its Prometheus."""

    source: MetricsSource
    windows: list[Window]
    queries: tuple[Query, ...]
    server: Server | None  # None: the embedded cluster


def measure_all(*, now: dt.datetime) -> None:
    """Measure every cluster that has a source. A failure is recorded on its source and affects no other cluster."""
    rounds = []
    for source in sources():
        try:
            rounds.append(begin(source, now))
        except Undecryptable:
            text = N_("Its secret is encrypted with a key that is no longer configured: enter it again.")
            fail(source, NotMeasured(text, field="secret"), now=now)
    asked = [each for each in rounds if each.server is not None]
    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="measure") as threads:
        answers = list(threads.map(_answers, asked))
    for each, answer in zip(asked, answers, strict=True):
        finish(each, answer, now=now)
    for each in rounds:
        if each.server is None:
            measure_embedded(each, now=now)


def sources() -> list[MetricsSource]:
    """The sources of active clusters. For an embedded cluster without one, a source is created."""
    embedded = Cluster.objects.filter(active=True, kind=ClusterKind.EMBEDDED, metrics_source=None)
    for cluster in embedded:
        MetricsSource.objects.get_or_create(cluster=cluster)
    usable = Q(cluster__kind=ClusterKind.EMBEDDED) | ~Q(url="")
    return list(MetricsSource.objects.filter(usable, cluster__active=True).select_related("cluster").order_by("pk"))


def begin(source: MetricsSource, now: dt.datetime) -> Round:
    """The round of one cluster. Raises Undecryptable."""
    embedded = source.cluster.kind == ClusterKind.EMBEDDED
    windows = buckets.windows_due(source.complete_until, now)
    return Round(
        source, windows, queries_of(source.exporters or EXPORTERS), None if embedded else server_of(source)
    )  # fmt: skip


def _answers(round_: Round) -> Answers | Problem:
    """The answers for each window. Runs in a thread of its own and does not use the database."""
    server = cast(Server, round_.server)
    try:
        return [ask(server, round_.queries, at=w.end, seconds=w.seconds) for w in round_.windows]
    except Problem as problem:
        return problem


def finish(round_: Round, answer: Answers | Problem, *, now: dt.datetime) -> None:
    source = round_.source
    if isinstance(answer, Problem):
        fail(source, answer, now=now)
        return
    uses_by_window: list[dict[Place, Use]] = []
    for window, series in zip(round_.windows, answer, strict=True):
        runs = runs_of(source.cluster, window)
        uses_by_window.append(attribute(series, runs))
    last = round_.windows[-1]
    if not uses_by_window[-1] and (expected := _expected(runs_of(source.cluster, last), now)):
        text = N_(
            "It has no series of any of the %(count)s pods that run there: check the exporters and label matchers."
        )
        fail(source, NotMeasured(text, field="selector", count=expected), now=now)
        return
    record(round_, uses_by_window, now=now)


def _expected(runs: Mapping[str, Run], now: dt.datetime) -> int:
    """The number of pods that have run long enough for Prometheus to have their series."""
    return sum(run.pods for run in runs.values() if run.ended is None and run.began < now - SEEN_WITHIN)


def measure_embedded(round_: Round, *, now: dt.datetime) -> None:
    """Measure the processes of an embedded cluster from its own readings."""
    cluster = round_.source.cluster
    try:
        driver = driver_for(cluster)
        driver.take_readings(now)  # type: ignore[attr-defined]
        uses_by_window = []
        for window in round_.windows:
            by_name = driver.usage(window.begin, window.end)  # type: ignore[attr-defined]
            runs = runs_of(cluster, window)
            uses = {
                (runs[name].attempt, rank): Use(**values) for (name, rank), values in by_name.items() if name in runs
            }
            uses_by_window.append({place: use for place, use in uses.items() if not use.is_empty})
    except ClusterError as error:
        fail(round_.source, NotMeasured(N_("It cannot be reached: %(why)s."), why=str(error)[:300]), now=now)
        return
    record(round_, uses_by_window, now=now)


def record(round_: Round, uses_by_window: list[dict[Place, Use]], *, now: dt.datetime) -> None:
    """Write the buckets, sum the hours, and last mark the source as measured: if killed before, the next round repeats all."""
    source = round_.source
    for window, uses in zip(round_.windows, uses_by_window, strict=True):
        buckets.write(window, uses)
    for hour in buckets.hours_of(round_.windows, source.complete_until):
        buckets.sum_hour(source.cluster, hour)
    whole = [window.end for window in round_.windows if window.whole]
    complete = max(whole) if whole else source.complete_until or buckets.floor(now, buckets.BUCKET)
    own = MetricsSource.objects.filter(pk=source.pk, url=source.url)
    with_gpu = sum(use.gpu is not None for use in uses_by_window[-1].values())
    own.update(measured_at=now, ranks=len(uses_by_window[-1]), gpu_ranks=with_gpu, complete_until=complete)
    with durable():
        was_notified = own.filter(notified_at__isnull=False).update(notified_at=None)
        if own.filter(failing_since__isnull=False).update(failing_since=None, failure={}):
            emit("cluster.measured", cluster=source.cluster.name)
        if was_notified:
            notices.send("cluster.measured", to=User.operators(), cluster=source.cluster.name)


def fail(source: MetricsSource, problem: Problem, *, now: dt.datetime) -> None:
    """Record why nothing was measured: the time and the event once, the reason each time. Operators are notified once, when the
    outage has lasted for OUTAGE. Nothing else changes."""
    own = MetricsSource.objects.filter(pk=source.pk, url=source.url)
    why = {"message": problem.message, "params": problem.numbers}
    with durable():
        own.update(failure=why)
        if own.filter(notified_at=None, failing_since__lte=now - OUTAGE).update(notified_at=now):
            since = own.values_list("failing_since", flat=True).get()
            notices.send("cluster.not_measured", to=User.operators(), cluster=source.cluster.name, why=why,
                         since_at=since.isoformat() if since else None)  # fmt: skip
        if own.filter(failing_since=None).update(failing_since=now):
            emit("cluster.not_measured", cluster=source.cluster.name, why=str(problem)[:300])
            log.warning("cluster.not_measured", cluster=source.cluster.name, why=str(problem)[:300])


def runs_of(cluster: Cluster, window: Window) -> dict[str, Run]:
    """Run name → run, of every attempt whose pods may have run in the window."""
    live = Q(finished_at=None) | Q(finished_at__gt=window.begin)
    rows = Attempt.objects.filter(live, cluster=cluster, started_at__lt=window.end).select_related("workload__pool")
    rows = rows.only(
        "run_name", "namespace", "started_at", "finished_at", "workload__pods", "workload__kind", "workload__units_per_pod",
        "workload__asked_per_pod", "workload__cores_per_pod", "workload__pool__unit", "workload__pool__units_per_card",
        "workload__pool__sharing",
    )  # fmt: skip
    return {row.run_name: run_of(row) for row in rows.order_by()}


def run_of(attempt: Attempt) -> Run:
    workload = attempt.workload
    began = cast(dt.datetime, attempt.started_at)
    return Run(
        attempt.pk, attempt.namespace, workload.pods, workload.kind, cards_of(workload), began,
        attempt.finished_at, min(max((workload.cores_per_pod or 100) / 100, 0.01), 1.0),
    )  # fmt: skip


def cards_of(workload: Workload) -> str:
    """Which device series belong to the workload: those of "whole" cards, of a MIG "instance", or only of a "part" of a card."""
    pool = workload.pool
    if pool.unit == "slice":
        return "instance"
    asked = workload.asked_per_pod or workload.units_per_pod
    fills_cards = pool.unit in ("MiB", "percent") and asked % pool.units_per_card == 0
    return "whole" if pool.unit == "card" or fills_cards else "part"

"""Celery tasks of workloads. No module imports this one; messages carry ids only and may arrive twice."""

from __future__ import annotations

from typing import Any

import structlog
from celery import shared_task
from django.db.models import QuerySet
from django.utils import timezone

from portal.background import hint_queue
from portal.background.hints import wake
from portal.background.jobs import claimed_tick
from quotas.models import Claim, Cluster, PoolGroup
from workloads.backtests import runs
from workloads.clusters.drivers import driver_for
from workloads.estimates import ask, keep
from workloads.files import cleaning
from workloads.measurement import buckets
from workloads.measurement.sample import measure_all
from workloads.nodes import inventory
from workloads.nodes.modes import changes
from workloads.reconciler import deadlines, gpu_faults, idle_rounds, namespaces
from workloads.reconciler.reconcile import reconcile_claim, reconcile_cluster
from workloads.runtime.base import ClusterError

log = structlog.get_logger(__name__)


@shared_task(name="workloads.converge")
def converge(*, claim: str = "", workload: str = "", **_: Any) -> None:
    """Reconcile one workload: its live claim, or the given one."""
    if workload:
        live = Claim.objects.filter(attempt__workload__public_id=workload, attempt__finished_at=None)
        claim = live.values_list("public_id", flat=True).first() or ""
    if claim:
        reconcile_claim(claim)


@shared_task(name="workloads.converge_all")
def converge_all(*, cluster_id: int | None = None, tick: bool = False, **_: Any) -> None:
    """The periodic reconcile: correct without any event or message. A failure of one cluster does not affect the others.
    Thousands of pods are listed less often than a few. While a watcher takes hints, this only sends it a hint to list."""
    with claimed_tick("workloads.converge_all", tick=tick, rest=4) as run:
        if run and tick and hint_queue.alive():
            # A process that takes hints has workers: only it lists, and no process waits for another.
            wake("workloads.converge_all")
        elif run:
            clusters = Cluster.objects.filter(active=True)
            _converge(clusters.filter(unreachable_since=None) if cluster_id is None else clusters.filter(pk=cluster_id))


@shared_task(name="workloads.knock")
def knock(*, tick: bool = False, **_: Any) -> None:
    """The same as `converge_all` for clusters that do not answer, so that their time-outs delay nobody else."""
    with claimed_tick("workloads.knock", tick=tick) as run:
        if run:
            _converge(Cluster.objects.filter(active=True, unreachable_since__isnull=False))


def _converge(clusters: QuerySet[Cluster]) -> None:
    for cluster in clusters:
        try:
            reconcile_cluster(cluster)
        except ClusterError as error:
            log.error("cluster.failed", cluster=cluster.name, error=str(error))


@shared_task(name="workloads.deadlines")
def keep_deadlines(*, tick: bool = False, **_: Any) -> None:
    """Carry out due deadlines: end of notice, maximum runtime, maximum wait."""
    with claimed_tick("workloads.deadlines", tick=tick) as run:
        if run:
            deadlines.keep(now=timezone.now())


@shared_task(name="workloads.inventory")
def take_inventory(*, tick: bool = False, **_: Any) -> None:
    with claimed_tick("workloads.inventory", tick=tick, rest=4) as run:
        if not run:
            return
        for cluster in Cluster.objects.filter(active=True, unreachable_since=None):
            try:
                inventory.refresh(cluster)
                namespaces.keep_homes(cluster, driver_for(cluster))
            except ClusterError as error:
                log.error("cluster.failed", cluster=cluster.name, error=str(error))


@shared_task(name="workloads.modes")
def change_modes(*, tick: bool = False, **_: Any) -> None:
    """Advance mode changes of nodes."""
    with claimed_tick("workloads.modes", tick=tick) as run:
        if run:
            changes.advance_all()


@shared_task(name="workloads.measure")
def measure(*, tick: bool = False, **_: Any) -> None:
    """Measure what runs on every cluster with a metrics source, and look for idle workloads and faults of GPUs."""
    with claimed_tick("workloads.measure", tick=tick) as run:
        if run:
            measure_all(now=timezone.now())
            idle_rounds.review(now=timezone.now())
            gpu_faults.judge_all(now=timezone.now())


@shared_task(name="workloads.estimate")
def estimate(*, tick: bool = False, **_: Any) -> None:
    """Estimate when waiting workloads will start. It computes for seconds, and pauses for longer."""
    with claimed_tick("workloads.estimate", tick=tick, rest=10) as run:
        if run:
            keep.estimate_all(now=timezone.now())


@shared_task(name="workloads.estimate_asked")
def estimate_asked(*, group: int, **_: Any) -> None:
    """Estimate the start of requests that people are about to submit in this pool group."""
    for asked in PoolGroup.objects.filter(pk=group):
        ask.answer(asked, now=timezone.now())


@shared_task(name="workloads.backtest")
def backtest(*, tick: bool = False, **_: Any) -> None:
    """Play one backtest, which may take minutes; ticks in the meantime find it running and do nothing."""
    with claimed_tick("workloads.backtest", tick=tick) as run:
        if run:
            runs.run_next(now=timezone.now())


@shared_task(name="workloads.clean_up")
def clean_up(*, tick: bool = False, **_: Any) -> None:
    """Delete working directories, measurements and backtests that are older than they are kept."""
    with claimed_tick("workloads.clean_up", tick=tick) as run:
        if run:
            cleaning.discard_old_files(now=timezone.now())
            cleaning.discard_left_files(now=timezone.now())
            buckets.forget_old(now=timezone.now())
            runs.discard_old(now=timezone.now())

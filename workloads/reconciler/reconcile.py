"""Reconcile the database and the cluster, in both directions. The impure shell around next_steps.next_steps.
No transaction is open while a driver is called. Each event is recorded in one compare-and-set transaction; the loser of a race
does nothing. A process killed between two lines leaves work that the next call finds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import structlog
from django.db.models import Q, QuerySet
from django.utils import timezone

from portal.infra.telemetry.switch import work
from quotas.models import ClaimState, Cluster
from workloads.clusters import reachability
from workloads.clusters.drivers import driver_for
from workloads.clusters.run_spec import BY_CLAIM, ROWS, ref_of, to_start
from workloads.files import logs
from workloads.kubernetes.manifests import Options
from workloads.lifecycle import Event, State
from workloads.models import Attempt, Kind
from workloads.nodes import lost_nodes
from workloads.reconciler import external_runs, namespaces, transitions
from workloads.reconciler.next_steps import (
    ENDED,
    Announce,
    Checkpointed,
    Ensure,
    Forgotten,
    Happened,
    RanksMoved,
    Remove,
    ReportedReady,
    Seen,
    Step,
    Stop,
    View,
    Waits,
    next_steps,
)
from workloads.runtime.base import (
    EXCEEDED,
    ClusterDriver,
    ClusterError,
    Observed,
    Refused,
    RunRef,
    RunSpec,
    Unreachable,
)

log = structlog.get_logger(__name__)
ROUNDS = 6  # more steps in a row than any attempt has
BATCH, FEW = 64, 4  # attempts in one transaction; up to so many claims are read one by one
STARTED_TOGETHER = frozenset({Kind.JOB, Kind.NOTEBOOK})  # others need their department's namespace kept first


def reconcile_cluster(cluster: Cluster) -> int:
    """List the cluster once and take every step that is due, one attempt after the other. Returns how many attempts took one.
    For processes without workers (workers.py)."""
    sightings = due(cluster)
    work = sort_work(sightings=sightings)
    note_running(work.running)
    moved = len(work.running)
    for key, claim in [*work.alone.items(), *((a.submission_id, a.claim.public_id) for a in work.admitted)]:
        try:
            moved += reconcile_claim(claim, sightings[key])
        except Exception:  # a failure of one attempt must not affect others; the next call tries again
            log.exception("attempt.failed", cluster=cluster.name, attempt=key)
    return moved


def due(cluster: Cluster) -> dict[str, Seen]:
    """List the cluster once: submission id → sighting, for each attempt with a step due, attempts that are over last. Removes
    orphaned runs. Empty if the cluster does not answer, which is recorded."""
    driver, began = driver_for(cluster), timezone.now()
    try:
        observed = {run.ref.name: run for run in driver.observe()}
    except Unreachable as error:
        reachability.mark_unreachable(cluster, str(error), now=began)
        return {}
    reachability.mark_reached(cluster, now=began)
    external = external_runs.seen_of(cluster, driver, now=began)
    silent = lost_nodes.given_up(cluster, now=began)
    live: dict[str, Seen] = {}
    over: dict[str, Seen] = {}
    known = viewed(Attempt.objects.filter(cluster=cluster, removed_at=None))
    for attempt in known.exclude(claim__state=ClaimState.PENDING, workload__cancel_requested_at=None).order_by("pk"):
        if attempt.workload.kind == Kind.EXTERNAL and external is None:
            continue  # its present state is unknown
        run = observed.pop(attempt.run_name, None) or (external or {}).get(attempt.run_name)
        seen = _seen(began, run if run and run.ref.submission_id == attempt.submission_id else None, silent)
        if next_steps(view_of(attempt), seen, began):
            (live if attempt.finished_at is None else over)[attempt.submission_id] = seen
    _remove_orphans(driver, observed.values(), cluster, began)
    return live | over


@dataclass
class Work:
    """What is due: attempts to start together (`admitted`), attempts to record as running together, and claims to reconcile one
    by one (`alone`: key → public id)."""

    admitted: list[Attempt] = field(default_factory=list)
    running: list[tuple[Attempt, Observed]] = field(default_factory=list)
    alone: dict[str, str] = field(default_factory=dict)


def sort_work(claims: Collection[str] = (), sightings: Mapping[str, Seen] | None = None) -> Work:
    """Sort what is due. `claims`: public ids of claims that the plan changed; `sightings`: by submission id, as the cluster
    reports them. Runs without an attempt are left to the listing, which removes orphans."""
    sightings, now, work = sightings or {}, timezone.now(), Work()
    for attempt in _of_claims(claims):
        steps = next_steps(view_of(attempt), None, now)
        if steps == (Happened(Event.ADMIT),) and attempt.workload.kind in STARTED_TOGETHER:
            work.admitted.append(attempt)
        elif steps:
            work.alone[attempt.claim.public_id] = attempt.claim.public_id
    rows = viewed(Attempt.objects.filter(submission_id__in=sightings, removed_at=None)) if sightings else ()
    for attempt in rows:
        seen = sightings[attempt.submission_id]
        steps = next_steps(view_of(attempt), seen, now)
        if seen.run is not None and steps == (Happened(Event.STARTED, seen.run),):
            work.running.append((attempt, seen.run))
        elif steps:
            work.alone[attempt.submission_id] = attempt.claim.public_id
    return work


def _of_claims(claims: Collection[str]) -> Iterable[Attempt]:
    if len(claims) <= FEW:
        return [attempt for claim in claims for attempt in BY_CLAIM.all(claim) if attempt.finished_at is None]
    rows = Attempt.objects.filter(claim__public_id__in=claims, finished_at=None)
    return rows.select_related(*ROWS).order_by("pk")


def note_running(seen: Sequence[tuple[Attempt, Observed]]) -> None:
    """Record starting attempts whose processes run, with the facts that the cluster reports: one transaction for a batch."""
    for at in range(0, len(seen), BATCH):
        batch = sorted(seen[at : at + BATCH], key=lambda each: each[0].workload_id)
        runs = {attempt.pk: run for attempt, run in batch}
        transitions.record_events([attempt for attempt, _ in batch], State.STARTING, Event.STARTED, runs)


def start(attempts: Sequence[Attempt], creators: Executor) -> dict[str, bool]:
    """Admit and create attempts that the plan has just given capacity, at most BATCH: two transactions for all instead of two
    for each.
    Returns the claims whose runs were not created: True if they must be reconciled one by one (the ResourceQuota refused
    them), False if their cluster does not answer.
    No other process can have created a run before its admission here, so the driver need not check whether it exists. If killed
    anywhere, it leaves an admitted attempt, whose run is looked for and created if it does not exist."""
    moved = transitions.record_events(attempts, State.QUEUED, Event.ADMIT)
    created, left = [], {}
    for attempt, error in zip(moved, creators.map(_create, moved), strict=True):
        if error is None:
            created.append(attempt)
        elif isinstance(error, Refused) and error.code != EXCEEDED:
            transitions.record_event(
                attempt, Event.REFUSED, now=timezone.now(), reason=error.code, message=error.detail
            )
        else:
            log.warning("cluster.not_created", cluster=attempt.cluster.name, run=attempt.run_name, error=str(error))
            left[attempt.claim.public_id] = isinstance(error, Refused)
    transitions.record_events(created, State.ADMITTED, Event.CREATED)
    return left


def _create(attempt: Attempt) -> ClusterError | None:
    """Create the run; in a thread of its own, without the database. Returns the error if it failed."""
    with _about(attempt, "create run"):
        try:
            driver_for(attempt.cluster).ensure(replace(to_start(attempt), untried=True))
        except ClusterError as error:
            return error
    return None


@contextmanager
def _about(attempt: Attempt, what: str) -> Iterator[None]:
    """A context in which log lines and spans name the attempt."""
    ids = {"workload": attempt.workload.public_id, "attempt": attempt.number}
    with structlog.contextvars.bound_contextvars(**ids), work(what):
        yield


def _seen(began: dt.datetime, run: Observed | None, silent: frozenset[str]) -> Seen:
    if run is None or run.node not in silent:
        return Seen(began, run)
    return Seen(began, replace(run, reason=run.reason or "NodeLost"), given_up=True)


def reconcile(attempt: Attempt, driver: ClusterDriver, seen: Seen | None = None) -> bool:
    """Take every step that is due for one attempt. True if there was one."""
    moved = False
    if attempt.removed_at is not None:  # another process has cleaned up after it
        return False
    with _about(attempt, "reconcile"):
        for _ in range(ROUNDS):
            steps = next_steps(view_of(attempt), seen, timezone.now())
            if not steps or not all(_take(step, attempt, driver) for step in steps):
                break
            moved = True
            if isinstance(steps[-1], Stop | Remove | Forgotten | Ensure):
                break  # requested from the cluster: the next listing shows the result
            attempt = BY_CLAIM.all(attempt.claim.public_id)[0]
    return moved


def reconcile_claim(public_id: str, seen: Seen | None = None) -> bool:
    """Reconcile the attempt of a claim; `seen` None: after a change of the plan, without a listing."""
    attempt = BY_CLAIM.first(public_id)
    if attempt is None or (seen is None and attempt.finished_at is not None):
        return False
    return reconcile(attempt, driver_for(attempt.cluster), seen)


VIEWED = (
    "number", "run_name", "submission_id", "grace", "ranks", "reason", "stop_cause", "removed_at", "finished_at",
    "created_at", "started_at", "stopping_at", "reclaim_at", "announced_at", "ready_at", "checkpointed_at",
    "workload__public_id", "workload__department_id", "workload__kind", "workload__state", "workload__max_runtime",
    "workload__cancel_requested_at", "claim__public_id", "claim__state", "claim__answered_at", "cluster__options",
)  # fmt: skip


def viewed(attempts: QuerySet[Attempt]) -> QuerySet[Attempt]:
    """Attempts with the columns that next_steps needs; the other columns are read only for those that take a step."""
    return attempts.select_related("workload", "claim", "cluster").only(*VIEWED)


def view_of(attempt: Attempt) -> View:
    workload, claim = attempt.workload, attempt.claim
    return View(
        state=State(workload.state),
        claim=claim.state,
        grace=attempt.grace,
        created_at=attempt.created_at,
        started_at=attempt.started_at,
        reclaim_at=attempt.reclaim_at,
        announced_at=attempt.announced_at,
        checkpointed_at=attempt.checkpointed_at,
        ready=attempt.ready_at is not None,
        stop_cause=attempt.stop_cause,
        cancel=workload.cancel_requested_at is not None,
        max_runtime=workload.max_runtime,
        finished_at=attempt.finished_at,
        stopping_at=attempt.stopping_at,
        reason=attempt.reason,
        give_up_after=patience_of(attempt),
        ranks=attempt.ranks,
    )


def _take(step: Step, attempt: Attempt, driver: ClusterDriver) -> bool:
    """Take one step. False ends the round: a race was lost, or the cluster does not answer."""
    ref = ref_of(attempt)
    try:
        match step:
            case Ensure():
                return _ensure(attempt, driver)
            case Happened(event, run):
                return transitions.record_event(attempt, event, run=run, now=timezone.now())
            case Announce(at):
                driver.announce(ref, at)
                return transitions.record_announced(attempt, at, now=timezone.now())
            case ReportedReady():
                return transitions.record_ready(attempt, now=timezone.now())
            case Checkpointed(at):
                return transitions.record_checkpoint(attempt, at)
            case RanksMoved(run):
                transitions.record_ranks(attempt, run)
            case Waits(reason, message):
                return transitions.record_wait(attempt, reason, message)
            case Stop(grace):
                if attempt.workload.kind == Kind.SERVICE:
                    logs.keep_logs(attempt, driver, ref)
                driver.stop(ref, grace)
            case Remove(found):
                at_its_end = replace(ref, ended=found.ended)
                logs.keep_logs(attempt, driver, at_its_end)
                driver.remove(at_its_end)
                transitions.record_forgotten(attempt, now=timezone.now())
            case Forgotten():
                transitions.record_forgotten(attempt, now=timezone.now())
    except Unreachable as error:
        log.warning("cluster.unreachable", cluster=attempt.cluster.name, step=type(step).__name__, error=str(error))
        return False
    except ClusterError as error:
        log.error("cluster.refused", cluster=attempt.cluster.name, step=type(step).__name__, error=str(error))
        return False
    return True


def _ensure(attempt: Attempt, driver: ClusterDriver) -> bool:
    """Create the run. The namespace's ResourceQuota must accept what the plan admitted: it is brought up to date first if the
    portal would not learn of a refusal (because a controller creates the pods), else after a refusal. If it still refuses, it
    is not the portal's, or the API server's count lags."""
    try:
        spec = to_start(attempt)
        if attempt.workload.kind in (Kind.DISTRIBUTED, Kind.SERVICE):
            namespaces.keep_home(attempt, driver)
        driver.ensure(spec)
    except Refused as error:
        if error.code == EXCEEDED:
            namespaces.keep_home(attempt, driver, fresh=True)
            if timezone.now() - (attempt.admitted_at or timezone.now()) < patience_of(attempt):
                return _again(driver, spec)
        transitions.record_event(attempt, Event.REFUSED, now=timezone.now(), reason=error.code, message=error.detail)
        return False
    return True


def _again(driver: ClusterDriver, spec: RunSpec) -> bool:
    try:
        driver.ensure(spec)
    except Refused as error:
        log.warning("cluster.second_lock", run=spec.ref.name, error=error.detail)  # the next call tries again
        return False
    return True


def patience_of(attempt: Attempt) -> dt.timedelta:
    """How long the cluster may fail to start the attempt before it is given up."""
    return dt.timedelta(seconds=attempt.cluster.options.get("give_up_after", Options().give_up_after))


def _remove_orphans(driver: ClusterDriver, runs: Iterable[Observed], cluster: Cluster, listed_at: dt.datetime) -> None:
    """Remove runs with the portal's labels that belong to no attempt (a restored database, a deleted department), unless they
    were created or removed since the listing. A removal time in the future was written by a clock that was ahead."""
    left = {run.ref.submission_id: run for run in runs}
    since = Q(removed_at=None) | Q(removed_at__range=(listed_at, timezone.now()))
    known = Attempt.objects.filter(since, submission_id__in=left)
    for submission in known.values_list("submission_id", flat=True):
        del left[submission]
    for run in left.values():
        log.warning("cluster.orphan", cluster=cluster.name, run=run.ref.name)
        _forget(driver, run.ref, ended=run.phase in ENDED)


def _forget(driver: ClusterDriver, ref: RunRef, *, ended: bool) -> None:
    try:
        driver.remove(ref) if ended else driver.stop(ref, 0)
    except ClusterError as error:
        log.warning("cluster.orphan_stays", run=ref.name, error=str(error))

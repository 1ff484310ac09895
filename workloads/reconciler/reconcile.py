"""Makes the cluster what the database says, and the database what the cluster says. The shell around next_steps.next_steps.

No transaction is open while a driver is called. Each thing that happened is one compare-and-set transaction; who loses
the race does nothing. A process killed between two lines leaves work that the next call finds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog
from django.db.models import QuerySet
from django.utils import timezone

from portal.background import hint_queue
from quotas.models import ClaimState, Cluster
from workloads.clusters import reachability
from workloads.clusters.drivers import driver_for
from workloads.clusters.run_spec import BY_CLAIM, ref_of, to_start
from workloads.files import logs
from workloads.kubernetes.manifests import Options
from workloads.lifecycle import Event, State
from workloads.models import Attempt, Kind
from workloads.nodes import lost_nodes
from workloads.reconciler import namespaces, starting, transitions
from workloads.reconciler.next_steps import (
    ENDED,
    Announce,
    Checkpointed,
    Ensure,
    Forgotten,
    Happened,
    RanksMoved,
    Remove,
    SaidReady,
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
STARTED_WITHIN = dt.timedelta(seconds=15)
TIDIED_WITHIN = dt.timedelta(seconds=30)  # by a watcher that takes hints
TIDIED_IN_A_ROW = dt.timedelta(minutes=5)  # by one that is at it


def converge_cluster(cluster: Cluster) -> int:
    """One listing, then every attempt the cluster may still know. Returns how many attempts took a step."""
    driver = driver_for(cluster)
    began = timezone.now()
    try:
        observed = {run.ref.name: run for run in driver.observe()}
    except Unreachable as error:
        reachability.mark_unreachable(cluster, str(error), now=began)
        return 0
    reachability.mark_reached(cluster, now=began)
    silent = lost_nodes.given_up(cluster, now=began)
    attempts = viewed(Attempt.objects.filter(cluster=cluster, removed_at=None))
    moved, quick, tidies = 0, hint_queue.alive(), hint_queue.tidies()
    begun: list[tuple[Attempt, Observed]] = []
    over: list[tuple[Attempt, Seen]] = []
    live = attempts.exclude(claim__state=ClaimState.PENDING, workload__cancel_requested_at=None).order_by("pk")
    for attempt in live:
        run = observed.pop(attempt.run_name, None)
        if run is not None and run.ref.submission_id != attempt.submission_id:
            run = None
        seen = _seen(began, run, silent)
        if quick and _is_being_started(attempt, began):
            continue
        steps = next_steps(view_of(attempt), seen, began)
        if steps and run is not None and attempt.finished_at is not None:
            over.append((attempt, seen))
            continue
        if run is not None and steps == (Happened(Event.STARTED, run),):
            begun.append((attempt, run))
            continue
        moved += bool(steps) and _by_itself(attempt, driver, seen)
    starting.begun(begun)
    for attempt, seen in reversed(over):  # whoever tidies up beside this begins with the oldest
        moved += not (quick and _is_tidied_up(attempt, seen, began, tidies)) and _by_itself(attempt, driver, seen)
    _remove_orphans(driver, observed.values(), cluster, began)
    return moved + len(begun)


def _by_itself(attempt: Attempt, driver: ClusterDriver, seen: Seen) -> bool:
    """One attempt's trouble is not another's; the next turn tries again."""
    try:
        return converge(BY_CLAIM.all(attempt.claim.public_id)[0], driver, seen)
    except Exception:
        log.exception("attempt.failed", cluster=attempt.cluster.name, attempt=attempt.run_name)
        return False


def _is_being_started(attempt: Attempt, now: dt.datetime) -> bool:
    """Admitted so lately that the watcher, which takes many at a time (starting.py), is still at it."""
    since = attempt.claim.answered_at
    new = attempt.workload.state in (State.QUEUED, State.ADMITTED) and attempt.claim.state == ClaimState.HOLDING
    return new and since is not None and abs(now - since) < STARTED_WITHIN


def _is_tidied_up(attempt: Attempt, seen: Seen, listed_at: dt.datetime, tidies: bool) -> bool:
    """Over for so short a time that the watcher, which tidies up when it has nothing better to do, is still at it; or that
    a listing which shows it as it ran is only older."""
    ended = seen.run is not None and seen.run.phase in ENDED
    within = TIDIED_IN_A_ROW if ended and tidies else TIDIED_WITHIN
    over = attempt.finished_at
    return over is not None and listed_at - within < over < timezone.now() + within  # not where its clock was ahead


def _seen(began: dt.datetime, run: Observed | None, silent: frozenset[str]) -> Seen:
    if run is None or run.node not in silent:
        return Seen(began, run)
    return Seen(began, replace(run, reason=run.reason or "NodeLost"), given_up=True)


def converge(
    attempt: Attempt, driver: ClusterDriver, seen: Seen | None = None, later: Callable[[], object] | None = None
) -> bool:
    """Takes every step that is due for one attempt. True if there was one. `later` is called instead of tidying up after a
    run that is over: its log is read and it is deleted, two calls to the cluster that nobody waits for."""
    moved = False
    if attempt.removed_at is not None:  # somebody else has tidied up after it
        return False
    with structlog.contextvars.bound_contextvars(workload=attempt.workload.public_id, attempt=attempt.number):
        for _ in range(ROUNDS):
            steps = next_steps(view_of(attempt), seen, timezone.now())
            if later is not None and any(isinstance(step, Remove) for step in steps):
                later()
                break
            if not steps or not all(_take(step, attempt, driver) for step in steps):
                break
            moved = True
            if isinstance(steps[-1], Stop | Remove | Forgotten | Ensure):
                break  # asked of the cluster: the next listing tells
            attempt = BY_CLAIM.all(attempt.claim.public_id)[0]
    return moved


def converge_claim(public_id: str) -> None:
    """After the plan changed one claim: act on it without waiting for a listing."""
    attempt = BY_CLAIM.first(public_id)
    if attempt is not None and attempt.finished_at is None:
        converge(attempt, driver_for(attempt.cluster))


VIEWED = (
    "number", "run_name", "submission_id", "grace", "ranks", "reason", "stop_cause", "removed_at", "finished_at",
    "created_at", "started_at", "stopping_at", "reclaim_at", "announced_at", "ready_at", "checkpointed_at",
    "workload__public_id", "workload__department_id", "workload__kind", "workload__state", "workload__max_runtime",
    "workload__cancel_requested_at", "claim__public_id", "claim__state", "claim__answered_at", "cluster__options",
)  # fmt: skip


def viewed(attempts: QuerySet[Attempt]) -> QuerySet[Attempt]:
    """With what is needed to see what they need: the rest of a row is read of those few that take a step."""
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
        finished=attempt.finished_at is not None,
        stopping_at=attempt.stopping_at,
        reason=attempt.reason,
        give_up_after=patience_of(attempt),
        ranks=attempt.ranks,
    )


def _take(step: Step, attempt: Attempt, driver: ClusterDriver) -> bool:
    """One step. False ends the round: a race was lost, or the cluster does not answer."""
    ref = ref_of(attempt)
    try:
        match step:
            case Ensure():
                return _ensure(attempt, driver)
            case Happened(event, run):
                return transitions.happened(attempt, event, run=run, now=timezone.now())
            case Announce(at):
                driver.announce(ref, at)
                return transitions.announced(attempt, at, now=timezone.now())
            case SaidReady():
                return transitions.said_ready(attempt, now=timezone.now())
            case Checkpointed(at):
                return transitions.checkpointed(attempt, at)
            case RanksMoved(run):
                transitions.ranks_moved(attempt, run)
            case Waits(reason, message):
                return transitions.waits(attempt, reason, message)
            case Stop(grace):
                if attempt.workload.kind == Kind.SERVICE:
                    logs.keep_logs(attempt, driver, ref)
                driver.stop(ref, grace)
            case Remove(found):
                at_its_end = replace(ref, ended=found.ended)
                logs.keep_logs(attempt, driver, at_its_end)
                driver.remove(at_its_end)
                transitions.forgotten(attempt, now=timezone.now())
            case Forgotten():
                transitions.forgotten(attempt, now=timezone.now())
    except Unreachable as error:
        log.warning("cluster.unreachable", cluster=attempt.cluster.name, step=type(step).__name__, error=str(error))
        return False
    except ClusterError as error:
        log.error("cluster.refused", cluster=attempt.cluster.name, step=type(step).__name__, error=str(error))
        return False
    return True


def _ensure(attempt: Attempt, driver: ClusterDriver) -> bool:
    """What the plan admitted, the second lock must let in: it is brought up to date first where nobody would hear of a
    refusal (a controller makes the pods), else after one. One that still refuses is somebody else's, or lags."""
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
        transitions.happened(attempt, Event.REFUSED, now=timezone.now(), reason=error.code, message=error.detail)
        return False
    return True


def _again(driver: ClusterDriver, spec: RunSpec) -> bool:
    try:
        driver.ensure(spec)
    except Refused as error:
        log.warning("cluster.second_lock", run=spec.ref.name, error=error.detail)  # the next turn tries again
        return False
    return True


def patience_of(attempt: Attempt) -> dt.timedelta:
    """How long the cluster may fail to start it."""
    return dt.timedelta(seconds=attempt.cluster.options.get("give_up_after", Options().give_up_after))


def _remove_orphans(driver: ClusterDriver, runs: Iterable[Observed], cluster: Cluster, listed_at: dt.datetime) -> None:
    """Runs that carry our labels and belong to no attempt any more (a restored database, a removed department). Who was
    created, or tidied up by somebody else, since the listing is none."""
    left = {run.ref.submission_id: run for run in runs}
    known = Attempt.objects.filter(submission_id__in=left).exclude(removed_at__lt=listed_at)
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

"""Desired state against observed state: the next steps for one attempt. PURE; reconcile.py carries them out.
Each answer has only the next few steps; after them next_steps is called again. Any of them may have been done already by a
process that was killed right after, so every step is harmless when repeated.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from workloads.lifecycle import Event, State
from workloads.runtime.base import Observed, Phase, RunRef
from workloads.runtime.gangs import as_rows

# A listing that began this long after an attempt was created would have shown it.
SURE = dt.timedelta(seconds=2)
AHEAD = dt.timedelta(minutes=1)  # how far the clocks of several machines may differ
NEVER, NEVER_WAIT = frozenset({"InvalidImageName", "ErrImageNeverPull"}), dt.timedelta(seconds=10)
SILENT = 6  # how many times as long a start may take that reports no reason
DISPLACED = dt.timedelta(seconds=30)  # how long a service may wait for its node, whose cards may be freed just now
UNHEARD = dt.timedelta(seconds=30)  # beyond its grace, before a stop is repeated
ENDED = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.LOST})


@dataclass(frozen=True, slots=True)
class View:
    """An attempt with its workload's and claim's state. Times are aware datetimes; None: not yet."""

    state: State
    claim: str  # pending | holding | leaving | released
    grace: int
    created_at: dt.datetime | None
    started_at: dt.datetime | None
    reclaim_at: dt.datetime | None
    announced_at: dt.datetime | None
    checkpointed_at: dt.datetime | None
    ready: bool
    stop_cause: str
    cancel: bool
    max_runtime: int | None
    finished_at: dt.datetime | None
    give_up_after: dt.timedelta = dt.timedelta(minutes=10)  # how long the cluster may fail to start it
    stopping_at: dt.datetime | None = None  # since when SIGTERM is due
    reason: str = ""  # why it has not started yet, as last recorded
    ranks: list[dict[str, Any]] = field(default_factory=list)  # as last recorded


@dataclass(frozen=True, slots=True)
class Seen:
    """One listing of the cluster: when it began, and this attempt's run in it (None: absent)."""

    at: dt.datetime
    run: Observed | None
    given_up: bool = False  # its node has been silent for longer than the cluster's option lost_after


@dataclass(frozen=True, slots=True)
class Happened:
    event: Event
    run: Observed | None = None


@dataclass(frozen=True, slots=True)
class Ensure:
    """Create the run if it does not exist."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Write the reclaim time where the container reads it, or clear it."""

    at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class ReportedReady:
    """The container has created PORTAL_READY_FILE during notice."""


@dataclass(frozen=True, slots=True)
class Checkpointed:
    at: dt.datetime


@dataclass(frozen=True, slots=True)
class RanksMoved:
    """The state of a gang's rank, or of a service's pod, differs from the recorded one."""

    run: Observed


@dataclass(frozen=True, slots=True)
class Waits:
    """Why the cluster has not started the run; "" if it reports no reason."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Stop:
    grace: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Store the run's log; then remove the run from the cluster."""

    ref: RunRef


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The cluster no longer has anything of the run."""


Step = Happened | Ensure | Announce | ReportedReady | Checkpointed | RanksMoved | Waits | Stop | Remove | Forgotten


def next_steps(view: View, seen: Seen | None, now: dt.datetime) -> tuple[Step, ...]:
    """The steps that are due; () if none. `seen` None: the cluster has not been listed."""
    if view.finished_at is not None:
        return _left_over(view, seen, now)
    return _ranks(view, seen) + _by_state(view, seen, now)


def _by_state(view: View, seen: Seen | None, now: dt.datetime) -> tuple[Step, ...]:
    match view.state:
        case State.QUEUED:
            return _queued(view)
        case State.ADMITTED:
            return _ordered(view) or (Ensure(), Happened(Event.CREATED))
        case State.STARTING | State.RUNNING:
            return _ended(view, seen) or _ordered(view) or _gang(view, seen) or _running(view, seen, now)
        case State.RECALLED:
            return _ended(view, seen) or _gang(view, seen) or _recalled(view, seen, now)
        case State.STOPPING:
            return _stopping(view, seen)
        case _:
            return ()


def _left_over(view: View, seen: Seen | None, now: dt.datetime) -> tuple[Step, ...]:
    """Steps for an attempt that is over. If its run still lives (a lost node came back), it is stopped: it must not run beside
    the next attempt. A listing that began before the end was recorded does not count."""
    if seen is None or seen.run is None:
        return (Forgotten(),) if seen else ()
    if seen.run.phase in ENDED:
        return (Remove(seen.run.ref),)
    over = view.finished_at
    outdated = over is not None and seen.at < over + SURE and over < now + AHEAD
    return () if seen.run.stopping or outdated else (Stop(0),)


def _queued(view: View) -> tuple[Step, ...]:
    if view.cancel:
        return (Happened(Event.CANCEL),)
    answers = {"holding": Event.ADMIT, "leaving": Event.GONE_UNSTARTED}  # no run exists that a notice could warn
    return (Happened(answers[view.claim]),) if view.claim in answers else ()


def _ordered(view: View) -> tuple[Step, ...]:
    """Steps ordered by a person or the plan: to stop, or to release capacity."""
    if view.cancel:
        return (Happened(Event.CANCEL),)
    return (Happened(Event.RECALL),) if view.claim == "leaving" else ()


def _ranks(view: View, seen: Seen | None) -> tuple[Step, ...]:
    run = seen.run if seen else None
    return (RanksMoved(run),) if run and run.ranks and as_rows(run.ranks) != view.ranks else ()


def _gang(view: View, seen: Seen | None) -> tuple[Step, ...]:
    """The steps of gangs that drivers leave to the portal: all ranks start together, and none continues without the others."""
    run = seen.run if seen else None
    if run and run.over and not run.stopping:
        return (Stop(view.grace),)
    return (Ensure(),) if run and run.gated and not run.over and view.state is not State.RECALLED else ()


def _running(view: View, seen: Seen | None, now: dt.datetime) -> tuple[Step, ...]:
    if view.state is State.STARTING and seen and seen.run and seen.run.phase is Phase.RUNNING:
        return (Happened(Event.STARTED, seen.run),)
    if view.state is State.STARTING and seen and seen.run and _stuck(view, seen.run, now):
        return (Happened(Event.STUCK, seen.run),)
    if view.state is State.STARTING and seen and seen.run and seen.run.reason != view.reason:
        return (Waits(seen.run.reason, seen.run.message),)
    if view.announced_at is not None:  # withdrawn, but the container can still read the reclaim time
        return (Announce(None),)
    over = view.started_at and view.max_runtime and now >= view.started_at + dt.timedelta(seconds=view.max_runtime)
    return (Happened(Event.EXPIRE),) if over and view.state is State.RUNNING else _checkpointed(view, seen)


def _stuck(view: View, run: Observed, now: dt.datetime) -> bool:
    """Whether the attempt must fail because it does not start: NEVER_WAIT after a reason that will not change, else
    after `give_up_after`, or SILENT times that without any reason, because it may be pulling a large image."""
    if run.phase is not Phase.PENDING or view.created_at is None:
        return False
    return now - view.created_at > (
        NEVER_WAIT if run.reason in NEVER else view.give_up_after * (1 if run.reason else SILENT)
    )


def _recalled(view: View, seen: Seen | None, now: dt.datetime) -> tuple[Step, ...]:
    if view.cancel:
        return (Happened(Event.CANCEL),)
    if view.claim == "holding":
        return (Happened(Event.WITHDRAW if view.started_at else Event.WITHDRAW_UNSTARTED),)
    if view.ready or _never_ran(view, seen) or (view.reclaim_at and now >= view.reclaim_at):
        return (Happened(Event.STOP),)
    if view.announced_at is None:
        return (Announce(view.reclaim_at),)
    return (ReportedReady(),) if seen and seen.run and seen.run.ready else _checkpointed(view, seen)


def _never_ran(view: View, seen: Seen | None) -> bool:
    """Whether the run waits for its node or image, or was never created. Then it needs no notice, and an owner waits for the
    capacity."""
    if view.started_at is not None or seen is None:
        return False
    if seen.run is None:
        return view.created_at is None
    return seen.run.phase is Phase.PENDING and all(rank.phase is Phase.PENDING for rank in seen.run.ranks)


def _checkpointed(view: View, seen: Seen | None) -> tuple[Step, ...]:
    """Record a new checkpoint: the work that stopping would lose counts from it."""
    at = seen.run.checkpointed_at if seen and seen.run else None
    return (Checkpointed(at),) if at and (view.checkpointed_at is None or at > view.checkpointed_at) else ()


def _ended(view: View, seen: Seen | None) -> tuple[Step, ...]:
    """Steps if the run ended by itself, or is gone without the portal having stopped it."""
    if seen is None:
        return ()
    if seen.run is None:
        sure = view.created_at is not None and seen.at > view.created_at + SURE
        return (Happened(Event.LOST),) if sure else ()
    if seen.run.phase not in ENDED:
        # Deleted before it is queued again: if the node comes back, it ends the run first.
        lost = seen.given_up or _displaced(view, seen.run, seen.at)
        return (Stop(0), Happened(Event.LOST, seen.run)) if lost else ()
    if view.ready:  # it reported itself ready and ended: recalled, whatever the exit code
        return (Happened(Event.STOP),) if view.state is State.RECALLED else (Happened(_exit(seen.run), seen.run),)
    return (Happened(_exit(seen.run), seen.run),)


def _displaced(view: View, run: Observed, now: dt.datetime) -> bool:
    """Whether a running service was evicted (by a drain), and its controller's new pod finds no place on its node."""
    ran = view.started_at is not None and run.phase is Phase.PENDING
    return ran and run.displaced_at is not None and now - run.displaced_at > DISPLACED


def _exit(run: Observed) -> Event:
    return {Phase.SUCCEEDED: Event.EXITED_OK, Phase.FAILED: Event.EXITED_BAD}.get(run.phase, Event.LOST)


GONE = {"recalled": Event.GONE_RECALLED, "cancelled": Event.GONE_CANCELLED, "expired": Event.GONE_EXPIRED,
        "idle": Event.GONE_IDLE, "stuck": Event.GONE_STUCK}  # fmt: skip


def _stopping(view: View, seen: Seen | None) -> tuple[Step, ...]:
    if seen is None:
        return (Stop(view.grace),)  # at once; it may exist without a record if the process that created it was killed
    if seen.run is None:
        sure = view.created_at is None or seen.at > view.created_at + SURE
        return (Happened(GONE[view.stop_cause]),) if sure else ()
    if seen.run.phase in ENDED:
        return (Happened(GONE[view.stop_cause], seen.run),)
    if seen.given_up:
        return (Stop(0), Happened(GONE[view.stop_cause], seen.run))
    unheard = view.stopping_at is not None and seen.at > view.stopping_at + dt.timedelta(seconds=view.grace) + UNHEARD
    return (Stop(view.grace),) if unheard or not seen.run.stopping else ()

"""The states of a workload and their transitions, as data. Pages, API, metrics and messages use these names and no others.
`TRANSITIONS[(state, event)]` is the whole state chart; no other transition is possible.
"""

from __future__ import annotations

import enum


class State(enum.StrEnum):
    QUEUED = "queued"
    ADMITTED = "admitted"
    STARTING = "starting"
    RUNNING = "running"
    RECALLED = "recalled"  # still running, during its notice
    STOPPING = "stopping"  # SIGTERM sent, not ended yet
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


class Event(enum.StrEnum):
    ADMIT = "admit"  # the plan gave it capacity
    REJECT = "reject"  # became impossible, or waited longer than max_wait
    CREATED = "created"  # the cluster has it
    REFUSED = "refused"  # the cluster will never accept it
    STARTED = "started"  # its processes run
    EXITED_OK = "exited_ok"  # every rank exited 0 by itself
    EXITED_BAD = "exited_bad"  # a rank failed by itself
    RETRY = "retry"  # the same, and it is restarted
    RECALL = "recall"  # notice begins
    WITHDRAW = "withdraw"  # its capacity is no longer needed: it continues
    WITHDRAW_UNSTARTED = "withdraw_unstarted"  # the same, if it was recalled before it ran
    STOP = "stop"  # deadline reached, or it reported "ready"
    CANCEL = "cancel"  # a person or pipeline stops it
    EXPIRE = "expire"  # it reached its maximum runtime
    IDLE = "idle"  # an idle policy stops it
    STUCK = "stuck"  # the cluster has it and cannot start it
    LOST = "lost"  # its node or run is gone, not by its own doing
    GONE_RECALLED = "gone_recalled"  # ended after a recall: queued again
    GONE_UNSTARTED = "gone_unstarted"  # the same, recalled before anything was created on the cluster
    GONE_CANCELLED = "gone_cancelled"
    GONE_EXPIRED = "gone_expired"
    GONE_IDLE = "gone_idle"
    GONE_STUCK = "gone_stuck"
    GONE_EXHAUSTED = "gone_exhausted"  # recalled more often than max_reclaims


S, E = State, Event

TRANSITIONS: dict[tuple[State, Event], State] = {
    (S.QUEUED, E.ADMIT): S.ADMITTED,
    (S.QUEUED, E.CANCEL): S.CANCELLED,
    (S.QUEUED, E.REJECT): S.REJECTED,
    (S.QUEUED, E.GONE_UNSTARTED): S.QUEUED,
    (S.ADMITTED, E.CREATED): S.STARTING,
    (S.ADMITTED, E.REFUSED): S.FAILED,
    (S.ADMITTED, E.RECALL): S.RECALLED,
    (S.ADMITTED, E.CANCEL): S.STOPPING,
    (S.ADMITTED, E.LOST): S.QUEUED,
    (S.STARTING, E.STARTED): S.RUNNING,
    (S.STARTING, E.REFUSED): S.FAILED,
    (S.STARTING, E.EXITED_OK): S.SUCCEEDED,
    (S.STARTING, E.EXITED_BAD): S.FAILED,
    (S.STARTING, E.RETRY): S.QUEUED,
    (S.STARTING, E.RECALL): S.RECALLED,
    (S.STARTING, E.CANCEL): S.STOPPING,
    (S.STARTING, E.STUCK): S.STOPPING,
    (S.STARTING, E.LOST): S.QUEUED,
    (S.RUNNING, E.EXITED_OK): S.SUCCEEDED,
    (S.RUNNING, E.EXITED_BAD): S.FAILED,
    (S.RUNNING, E.RETRY): S.QUEUED,
    (S.RUNNING, E.RECALL): S.RECALLED,
    (S.RUNNING, E.CANCEL): S.STOPPING,
    (S.RUNNING, E.EXPIRE): S.STOPPING,
    (S.RUNNING, E.IDLE): S.STOPPING,
    (S.RUNNING, E.LOST): S.QUEUED,
    (S.RECALLED, E.WITHDRAW): S.RUNNING,
    (S.RECALLED, E.WITHDRAW_UNSTARTED): S.STARTING,
    (S.RECALLED, E.EXITED_OK): S.SUCCEEDED,
    (S.RECALLED, E.EXITED_BAD): S.FAILED,
    (S.RECALLED, E.RETRY): S.QUEUED,
    (S.RECALLED, E.STOP): S.STOPPING,
    (S.RECALLED, E.CANCEL): S.STOPPING,
    (S.RECALLED, E.LOST): S.QUEUED,
    (S.STOPPING, E.GONE_RECALLED): S.QUEUED,
    (S.STOPPING, E.GONE_CANCELLED): S.CANCELLED,
    (S.STOPPING, E.GONE_EXPIRED): S.FAILED,
    (S.STOPPING, E.GONE_IDLE): S.CANCELLED,
    (S.STOPPING, E.GONE_STUCK): S.FAILED,
    (S.STOPPING, E.GONE_EXHAUSTED): S.FAILED,
}

FINAL = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED, S.REJECTED})
ON_CLUSTER = frozenset({S.ADMITTED, S.STARTING, S.RUNNING, S.RECALLED, S.STOPPING})
LIVE = ON_CLUSTER | {S.QUEUED}


class NotPossible(Exception):
    """The event cannot happen in this state: the caller lost a race or its information is outdated."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{event} is not possible while {state}")
        self.state = state
        self.event = event


def step(state: State, event: Event) -> State:
    """The next state. Raises NotPossible if the state chart has no such transition."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise NotPossible(state, event) from None


def may(state: State, event: Event) -> bool:
    return (state, event) in TRANSITIONS


# Queuing again --------------------------------------------------------------------------------------------------------

BACKOFF, TURNED_AWAY, LONGEST_BACKOFF = 30, 5, 3600
"""Seconds: until a recalled workload may borrow again, until one that was lost before it ran may start again, and the most."""


def backoff(times: int, base: int = BACKOFF) -> int:
    """Seconds to wait after the nth time, doubled each time; 0 if it never happened."""
    return min(base * 2 ** (times - 1), LONGEST_BACKOFF) if times else 0


def is_exhausted(reclaims: int, most: int) -> bool:
    """Whether a workload that is recalled for the nth time ends for good."""
    return reclaims > most

"""The stages of changing a node's mode, as data. PURE; workloads/nodes/modes/changes.py executes them.

    draining → applying → verifying → done
        └ cancelled   └──────┴→ reverting → reverted | failed

No transitions but TRANSITIONS are possible. A failed change leaves its node out of service: an operator has to intervene.
"""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass


class Stage(enum.StrEnum):
    DRAINING = "draining"  # its workloads are being recalled, each with its notice; nothing new starts there
    APPLYING = "applying"  # the node is empty: configuration, restarts and labels are written
    VERIFYING = "verifying"  # the cluster is changing it; not in the wanted mode yet
    REVERTING = "reverting"  # the previous mode is written back
    DONE = "done"
    CANCELLED = "cancelled"  # before anything was written
    REVERTED = "reverted"
    FAILED = "failed"  # neither in the wanted nor in the previous mode


class Event(enum.StrEnum):
    EMPTY = "empty"  # the last run has ended
    WRITTEN = "written"
    VERIFIED = "verified"  # the node is in the wanted mode, and takes pods
    FAULT = "fault"  # the cluster reports a failure
    TIMEOUT = "timeout"
    CANCEL = "cancel"
    RESTORED = "restored"


S, E = Stage, Event
TRANSITIONS: dict[tuple[Stage, Event], Stage] = {
    (S.DRAINING, E.EMPTY): S.APPLYING,
    (S.DRAINING, E.CANCEL): S.CANCELLED,
    (S.DRAINING, E.TIMEOUT): S.CANCELLED,
    (S.APPLYING, E.WRITTEN): S.VERIFYING,
    (S.APPLYING, E.CANCEL): S.REVERTING,
    (S.APPLYING, E.FAULT): S.REVERTING,
    (S.APPLYING, E.TIMEOUT): S.REVERTING,
    (S.VERIFYING, E.VERIFIED): S.DONE,
    (S.VERIFYING, E.CANCEL): S.REVERTING,
    (S.VERIFYING, E.FAULT): S.REVERTING,
    (S.VERIFYING, E.TIMEOUT): S.REVERTING,
    (S.REVERTING, E.RESTORED): S.REVERTED,
    (S.REVERTING, E.FAULT): S.FAILED,
    (S.REVERTING, E.TIMEOUT): S.FAILED,
}
FINAL = frozenset({S.DONE, S.CANCELLED, S.REVERTED, S.FAILED})
LIVE = frozenset(set(Stage) - FINAL)
# How long a stage may last; draining: after the last run's notice and grace are over.
PATIENCE = {
    S.DRAINING: dt.timedelta(minutes=5),
    S.APPLYING: dt.timedelta(minutes=10),
    S.VERIFYING: dt.timedelta(minutes=30),  # a card may need a reboot of its node
    S.REVERTING: dt.timedelta(minutes=30),
}


class NotPossible(Exception):
    """The event cannot happen at this stage: the caller lost a race."""

    def __init__(self, stage: Stage, event: Event) -> None:
        super().__init__(f"{event} is not possible while {stage}")
        self.stage, self.event = stage, event


def step(stage: Stage, event: Event) -> Stage:
    """The next stage. Raises NotPossible if there is no such transition."""
    try:
        return TRANSITIONS[stage, event]
    except KeyError:
        raise NotPossible(stage, event) from None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a change now. `state`: as the cluster reports it: pending, success, failed, or "" if it reports
    nothing; `as_wanted`, `as_before`: whether the node is in the wanted or the previous mode."""

    occupied: bool = False
    written: bool = False
    as_wanted: bool = False
    as_before: bool = False
    state: str = ""
    cancelled: bool = False
    overdue: bool = False


def due(stage: Stage, facts: Facts) -> Event | None:
    """The event that is due, the most important first; None: keep waiting."""
    if facts.cancelled and (stage, E.CANCEL) in TRANSITIONS:
        return E.CANCEL
    match stage:
        case S.DRAINING if not facts.occupied:
            return E.EMPTY
        case S.APPLYING if facts.written:
            return E.WRITTEN
        case S.VERIFYING if facts.as_wanted:
            return E.VERIFIED
        case S.REVERTING if facts.written and facts.as_before:
            return E.RESTORED
    if facts.state == "failed" and stage in (S.VERIFYING, S.REVERTING) and facts.written:
        return E.FAULT
    return E.TIMEOUT if facts.overdue and stage not in FINAL else None

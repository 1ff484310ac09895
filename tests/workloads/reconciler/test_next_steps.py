"""The next steps for one attempt, as a table of cases."""

from __future__ import annotations

import dataclasses
import datetime as dt

import pytest

from workloads.lifecycle import Event, State
from workloads.reconciler.next_steps import (
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
from workloads.runtime.base import Observed, Phase, Rank, RunRef
from workloads.runtime.gangs import as_rows

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)
REF = RunRef("w", "ns", "s")
RUNNING = View(
    state=State.RUNNING, claim="holding", grace=10, created_at=NOW - 5 * MINUTE,
    started_at=NOW - 4 * MINUTE, reclaim_at=None, announced_at=None, checkpointed_at=None, ready=False,
    stop_cause="", cancel=False, max_runtime=None, finished_at=None,
)  # fmt: skip


def view_in(state: State, **changes: object) -> View:
    started = {State.QUEUED: None, State.ADMITTED: None, State.STARTING: None}.get(state, RUNNING.started_at)
    return dataclasses.replace(RUNNING, **({"state": state, "started_at": started} | changes))  # type: ignore[arg-type]


def run(phase: Phase, **facts: object) -> Seen:
    return Seen(NOW, Observed(REF, "w", 1, phase, **facts))  # type: ignore[arg-type]


ABSENT = Seen(NOW, None)
UNRESPONSIVE = dataclasses.replace(run(Phase.RUNNING, node="n1"), given_up=True)
RECALLED = view_in(State.RECALLED, claim="leaving", reclaim_at=NOW + MINUTE, announced_at=NOW - MINUTE)
UNSTARTED = dataclasses.replace(RECALLED, started_at=None)

RANKS = (Rank(0, Phase.RUNNING), Rank(1, Phase.FAILED, exit_code=3))
RANK_FAILED = run(Phase.RUNNING, over=True)
BEING_STOPPED = run(Phase.RUNNING, over=True, stopping=True)
GATED = run(Phase.PENDING, gated=True)
RANKS_CHANGED = run(Phase.RUNNING, ranks=RANKS)

CASES: list[tuple[str, View, Seen | None, tuple[Step, ...] | Event]] = [
    ("a queued attempt waits", view_in(State.QUEUED, claim="pending"), None, ()),
    ("a queued attempt whose claim holds is admitted", view_in(State.QUEUED), None, Event.ADMIT),
    ("a queued attempt recalled before admission is released", view_in(State.QUEUED, claim="leaving"), None,
     Event.GONE_UNSTARTED),
    ("a queued attempt can be cancelled", view_in(State.QUEUED, claim="pending", cancel=True), None, Event.CANCEL),
    ("an admitted attempt is created", view_in(State.ADMITTED), None, (Ensure(), Happened(Event.CREATED))),
    ("an admitted attempt whose claim is leaving is recalled", view_in(State.ADMITTED, claim="leaving"), None, Event.RECALL),
    ("a starting attempt is observed running", view_in(State.STARTING), run(Phase.RUNNING), Event.STARTED),
    ("a starting attempt waits for its image", view_in(State.STARTING), run(Phase.PENDING), ()),
    ("a running attempt keeps running", RUNNING, run(Phase.RUNNING), ()),
    ("nothing is concluded without an observation", RUNNING, None, ()),
    ("it succeeded", RUNNING, run(Phase.SUCCEEDED, exit_code=0), Event.EXITED_OK),
    ("it failed", RUNNING, run(Phase.FAILED, exit_code=3), Event.EXITED_BAD),
    ("its node is gone", RUNNING, run(Phase.LOST), Event.LOST),
    ("its pod is gone", RUNNING, ABSENT, Event.LOST),
    ("its node does not respond, within the operator's patience", RUNNING, run(Phase.RUNNING, node="n1"), ()),
    ("its node has not responded for too long: its pod is deleted first", RUNNING, UNRESPONSIVE,
     (Stop(0), Happened(Event.LOST, UNRESPONSIVE.run))),
    ("it was being stopped on an unresponsive node", view_in(State.STOPPING, stop_cause="cancelled"), UNRESPONSIVE,
     (Stop(0), Happened(Event.GONE_CANCELLED, UNRESPONSIVE.run))),
    ("a listing older than the creation proves nothing", view_in(State.STARTING, created_at=NOW), ABSENT, ()),
    ("the planning pass recalls it", view_in(State.RUNNING, claim="leaving"), run(Phase.RUNNING), Event.RECALL),
    ("it ended before it was recalled", view_in(State.RUNNING, claim="leaving"), run(Phase.SUCCEEDED), Event.EXITED_OK),
    ("it reached its maximum runtime", view_in(State.RUNNING, max_runtime=240), run(Phase.RUNNING), Event.EXPIRE),
    ("it has a second left", view_in(State.RUNNING, max_runtime=241), run(Phase.RUNNING), ()),
    ("the container is notified of the deadline", dataclasses.replace(RECALLED, announced_at=None), None,
     (Announce(NOW + MINUTE),)),
    ("the container is notified once", RECALLED, run(Phase.RUNNING), ()),
    ("its notice is over", dataclasses.replace(RECALLED, reclaim_at=NOW), run(Phase.RUNNING), Event.STOP),
    ("it reported saved before the deadline", dataclasses.replace(RECALLED, ready=True), run(Phase.RUNNING), Event.STOP),
    ("it reports saved by a file", RECALLED, run(Phase.RUNNING, ready=True), (ReportedReady(),)),
    ("it saved a checkpoint", RUNNING, run(Phase.RUNNING, checkpointed_at=NOW), (Checkpointed(NOW),)),
    ("a known checkpoint is ignored", view_in(State.RUNNING, checkpointed_at=NOW), run(Phase.RUNNING, checkpointed_at=NOW), ()),
    ("it reported saved and exited with any code", dataclasses.replace(RECALLED, ready=True), run(Phase.FAILED), Event.STOP),
    ("it finished during its notice", RECALLED, run(Phase.SUCCEEDED), Event.EXITED_OK),
    ("recalled while it waits for its image: stopped at once", UNSTARTED, run(Phase.PENDING), Event.STOP),
    ("recalled before it was created in the cluster: stopped at once",
     dataclasses.replace(UNSTARTED, created_at=None), ABSENT, Event.STOP),
    ("recalled while one rank runs: it has its notice", dataclasses.replace(UNSTARTED, ranks=as_rows(RANKS)),
     run(Phase.PENDING, ranks=RANKS), ()),
    ("recalled while starting, and runs by now: it has its notice", UNSTARTED, run(Phase.RUNNING), ()),
    ("recalled while starting, not observed yet", UNSTARTED, None, ()),
    ("the recall is withdrawn", dataclasses.replace(RECALLED, claim="holding"), run(Phase.RUNNING), Event.WITHDRAW),
    ("the recall is withdrawn before it ran", dataclasses.replace(RECALLED, claim="holding", started_at=None), None,
     Event.WITHDRAW_UNSTARTED),
    ("the container is notified of the withdrawal", view_in(State.RUNNING, announced_at=NOW), run(Phase.RUNNING),
     (Announce(None),)),
    ("SIGTERM is sent", view_in(State.STOPPING, stop_cause="recalled"), run(Phase.RUNNING), (Stop(10),)),
    ("SIGTERM is sent once", view_in(State.STOPPING, stop_cause="recalled"), run(Phase.RUNNING, stopping=True), ()),
    ("SIGTERM without effect is sent again",
     view_in(State.STOPPING, stop_cause="recalled", stopping_at=NOW - MINUTE), run(Phase.RUNNING, stopping=True), (Stop(10),)),
    ("grace and a margin are not over", view_in(State.STOPPING, stop_cause="recalled", stopping_at=NOW - MINUTE / 2),
     run(Phase.RUNNING, stopping=True), ()),
    ("gone after a recall, whatever the code", view_in(State.STOPPING, stop_cause="recalled"), run(Phase.FAILED),
     Event.GONE_RECALLED),
    ("gone after a stop by a person", view_in(State.STOPPING, stop_cause="cancelled"), ABSENT, Event.GONE_CANCELLED),
    ("gone after its max_runtime", view_in(State.STOPPING, stop_cause="expired"), run(Phase.FAILED), Event.GONE_EXPIRED),
    ("stopped before anyone knows whether it was created", view_in(State.STOPPING, stop_cause="cancelled", created_at=None),
     None, (Stop(10),)),
    ("a finished attempt is removed from the cluster", view_in(State.RUNNING, finished_at=NOW - MINUTE), run(Phase.SUCCEEDED),
     (Remove(REF),)),
    ("a lost attempt that reappears is stopped at once",
     view_in(State.QUEUED, finished_at=NOW - MINUTE), run(Phase.RUNNING), (Stop(0),)),
    ("a listing older than the recorded end stops nothing", view_in(State.SUCCEEDED, finished_at=NOW),
     run(Phase.RUNNING), ()),
    ("an end recorded by a clock an hour ahead", view_in(State.QUEUED, finished_at=NOW + 60 * MINUTE), run(Phase.RUNNING),
     (Stop(0),)),
    ("a finished attempt is gone from the cluster", view_in(State.QUEUED, finished_at=NOW - MINUTE), ABSENT, (Forgotten(),)),
    ("a final state has no next step", view_in(State.SUCCEEDED), None, ()),
    ("the cluster says why it does not start",
     view_in(State.STARTING), run(Phase.PENDING, reason="ImagePullBackOff", message="no"),
     (Waits("ImagePullBackOff", "no"),)),
    ("the reason is recorded already",
     view_in(State.STARTING, reason="ErrImagePull"), run(Phase.PENDING, reason="ErrImagePull"), ()),
    ("it could not start for too long",
     view_in(State.STARTING, give_up_after=4 * MINUTE), run(Phase.PENDING, reason="Unschedulable"),
     Event.STUCK),
    ("a large image takes its time", view_in(State.STARTING, give_up_after=dt.timedelta(seconds=299)), run(Phase.PENDING), ()),
    ("even a large image has a time limit",
     view_in(State.STARTING, give_up_after=dt.timedelta(seconds=49)), run(Phase.PENDING), Event.STUCK),
    ("an invalid image name is not retried", view_in(State.STARTING), run(Phase.PENDING, reason="InvalidImageName"),
     Event.STUCK),
    ("gone after it could not start", view_in(State.STOPPING, stop_cause="stuck"), run(Phase.LOST), Event.GONE_STUCK),
    ("a rank failed: the others are stopped", RUNNING, RANK_FAILED, (Stop(10),)),
    ("the other ranks are being stopped already", RUNNING, BEING_STOPPED, ()),
    ("a rank failed during notice: the others are stopped", RECALLED, RANK_FAILED, (Stop(10),)),
    ("a gang whose ranks all exist starts at once", view_in(State.STARTING), GATED, (Ensure(),)),
    ("a gang whose claim is leaving is recalled, not started", view_in(State.STARTING, claim="leaving"), GATED, Event.RECALL),
    ("a recalled gang is stopped, not started", UNSTARTED, GATED, Event.STOP),
    ("a rank changed", RUNNING, RANKS_CHANGED, (RanksMoved(RANKS_CHANGED.run),)),  # type: ignore[arg-type]
    ("the state of its ranks is recorded already", dataclasses.replace(RUNNING, ranks=as_rows(RANKS)), RANKS_CHANGED, ()),
]  # fmt: skip


@pytest.mark.parametrize(("view", "seen", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_next_steps_follow_from_view_and_observation(
    view: View, seen: Seen | None, expected: tuple[Step, ...] | Event
) -> None:
    steps = next_steps(view, seen, NOW)
    if isinstance(expected, Event):
        assert [step.event for step in steps if isinstance(step, Happened)] == [expected]
        assert len(steps) == 1
    else:
        assert steps == expected

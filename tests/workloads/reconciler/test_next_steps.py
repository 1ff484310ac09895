"""What is done next for one attempt, as tables."""

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
    SaidReady,
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


def a(state: State, **changes: object) -> View:
    started = {State.QUEUED: None, State.ADMITTED: None, State.STARTING: None}.get(state, RUNNING.started_at)
    return dataclasses.replace(RUNNING, **({"state": state, "started_at": started} | changes))  # type: ignore[arg-type]


def run(phase: Phase, **facts: object) -> Seen:
    return Seen(NOW, Observed(REF, "w", 1, phase, **facts))  # type: ignore[arg-type]


ABSENT = Seen(NOW, None)
SILENT = dataclasses.replace(run(Phase.RUNNING, node="n1"), given_up=True)
RECALLED = a(State.RECALLED, claim="leaving", reclaim_at=NOW + MINUTE, announced_at=NOW - MINUTE)
TOLD_EARLY = dataclasses.replace(RECALLED, started_at=None)

RANKS = (Rank(0, Phase.RUNNING), Rank(1, Phase.FAILED, exit_code=3))
BROKEN = run(Phase.RUNNING, over=True)
TOLD = run(Phase.RUNNING, over=True, stopping=True)
GATED = run(Phase.PENDING, gated=True)
MOVED = run(Phase.RUNNING, ranks=RANKS)

CASES: list[tuple[str, View, Seen | None, tuple[Step, ...] | Event]] = [
    ("a queued one waits", a(State.QUEUED, claim="pending"), None, ()),
    ("a queued one whose claim holds is admitted", a(State.QUEUED), None, Event.ADMIT),
    ("a queued one told to go before it was admitted gives back", a(State.QUEUED, claim="leaving"), None,
     Event.GONE_UNSTARTED),
    ("a queued one may be cancelled", a(State.QUEUED, claim="pending", cancel=True), None, Event.CANCEL),
    ("an admitted one is created", a(State.ADMITTED), None, (Ensure(), Happened(Event.CREATED))),
    ("an admitted one that is told to go is recalled first", a(State.ADMITTED, claim="leaving"), None, Event.RECALL),
    ("a starting one is seen running", a(State.STARTING), run(Phase.RUNNING), Event.STARTED),
    ("a starting one waits for its image", a(State.STARTING), run(Phase.PENDING), ()),
    ("a running one runs", RUNNING, run(Phase.RUNNING), ()),
    ("nobody looked, nothing is known", RUNNING, None, ()),
    ("it ended well", RUNNING, run(Phase.SUCCEEDED, exit_code=0), Event.EXITED_OK),
    ("it ended badly", RUNNING, run(Phase.FAILED, exit_code=3), Event.EXITED_BAD),
    ("its node is gone", RUNNING, run(Phase.LOST), Event.LOST),
    ("its pod is gone", RUNNING, ABSENT, Event.LOST),
    ("its node does not answer, and the operator waits", RUNNING, run(Phase.RUNNING, node="n1"), ()),
    ("its node has not answered for too long: it is deleted first", RUNNING, SILENT,
     (Stop(0), Happened(Event.LOST, SILENT.run))),
    ("it was being stopped on such a node", a(State.STOPPING, stop_cause="cancelled"), SILENT,
     (Stop(0), Happened(Event.GONE_CANCELLED, SILENT.run))),
    ("a listing older than the creation proves nothing", a(State.STARTING, created_at=NOW), ABSENT, ()),
    ("the plan tells it to go", a(State.RUNNING, claim="leaving"), run(Phase.RUNNING), Event.RECALL),
    ("it ended before it was told", a(State.RUNNING, claim="leaving"), run(Phase.SUCCEEDED), Event.EXITED_OK),
    ("reached its maximum runtime", a(State.RUNNING, max_runtime=240), run(Phase.RUNNING), Event.EXPIRE),
    ("it has a second left", a(State.RUNNING, max_runtime=241), run(Phase.RUNNING), ()),
    ("the container is told the time", dataclasses.replace(RECALLED, announced_at=None), None,
     (Announce(NOW + MINUTE),)),
    ("it is told once", RECALLED, run(Phase.RUNNING), ()),
    ("its notice is over", dataclasses.replace(RECALLED, reclaim_at=NOW), run(Phase.RUNNING), Event.STOP),
    ("it says ready early", dataclasses.replace(RECALLED, ready=True), run(Phase.RUNNING), Event.STOP),
    ("it says ready by file", RECALLED, run(Phase.RUNNING, ready=True), (SaidReady(),)),
    ("it wrote a checkpoint", RUNNING, run(Phase.RUNNING, checkpointed_at=NOW), (Checkpointed(NOW),)),
    ("an old checkpoint is no news", a(State.RUNNING, checkpointed_at=NOW), run(Phase.RUNNING, checkpointed_at=NOW), ()),
    ("it said ready and left with any code", dataclasses.replace(RECALLED, ready=True), run(Phase.FAILED), Event.STOP),
    ("it finished during its notice", RECALLED, run(Phase.SUCCEEDED), Event.EXITED_OK),
    ("what still waits for its image goes at once", TOLD_EARLY, run(Phase.PENDING), Event.STOP),
    ("what nobody asked the cluster for yet, too", dataclasses.replace(TOLD_EARLY, created_at=None), ABSENT, Event.STOP),
    ("one rank runs: it has its notice", dataclasses.replace(TOLD_EARLY, ranks=as_rows(RANKS)),
     run(Phase.PENDING, ranks=RANKS), ()),
    ("it may run by now", TOLD_EARLY, run(Phase.RUNNING), ()),
    ("nobody looked whether it runs", TOLD_EARLY, None, ()),
    ("nobody needs it any more", dataclasses.replace(RECALLED, claim="holding"), run(Phase.RUNNING), Event.WITHDRAW),
    ("withdrawn before it ran", dataclasses.replace(RECALLED, claim="holding", started_at=None), None,
     Event.WITHDRAW_UNSTARTED),
    ("the withdrawal is told to the container", a(State.RUNNING, announced_at=NOW), run(Phase.RUNNING),
     (Announce(None),)),
    ("SIGTERM is sent", a(State.STOPPING, stop_cause="recalled"), run(Phase.RUNNING), (Stop(10),)),
    ("SIGTERM is sent once", a(State.STOPPING, stop_cause="recalled"), run(Phase.RUNNING, stopping=True), ()),
    ("a SIGTERM that was not heard is sent again",
     a(State.STOPPING, stop_cause="recalled", stopping_at=NOW - MINUTE), run(Phase.RUNNING, stopping=True), (Stop(10),)),
    ("it has its grace and a while", a(State.STOPPING, stop_cause="recalled", stopping_at=NOW - MINUTE / 2),
     run(Phase.RUNNING, stopping=True), ()),
    ("gone after a recall, whatever the code", a(State.STOPPING, stop_cause="recalled"), run(Phase.FAILED),
     Event.GONE_RECALLED),
    ("gone after a stop by a person", a(State.STOPPING, stop_cause="cancelled"), ABSENT, Event.GONE_CANCELLED),
    ("gone after its max_runtime", a(State.STOPPING, stop_cause="expired"), run(Phase.FAILED), Event.GONE_EXPIRED),
    ("stopped before anyone knows whether it was created", a(State.STOPPING, stop_cause="cancelled", created_at=None),
     None, (Stop(10),)),
    ("a finished one is forgotten by the cluster", a(State.RUNNING, finished_at=NOW - MINUTE), run(Phase.SUCCEEDED),
     (Remove(REF),)),
    ("a lost one that came back is stopped at once", a(State.QUEUED, finished_at=NOW - MINUTE), run(Phase.RUNNING), (Stop(0),)),
    ("one that was listed before its end was noted is not stopped for it", a(State.SUCCEEDED, finished_at=NOW),
     run(Phase.RUNNING), ()),
    ("an end that a clock an hour ahead wrote down", a(State.QUEUED, finished_at=NOW + 60 * MINUTE), run(Phase.RUNNING),
     (Stop(0),)),
    ("a finished one the cluster forgot", a(State.QUEUED, finished_at=NOW - MINUTE), ABSENT, (Forgotten(),)),
    ("a final one rests", a(State.SUCCEEDED), None, ()),
    ("the cluster says why it does not start", a(State.STARTING), run(Phase.PENDING, reason="ImagePullBackOff", message="no"),
     (Waits("ImagePullBackOff", "no"),)),
    ("it has been said", a(State.STARTING, reason="ErrImagePull"), run(Phase.PENDING, reason="ErrImagePull"), ()),
    ("it says so for too long", a(State.STARTING, give_up_after=4 * MINUTE), run(Phase.PENDING, reason="Unschedulable"),
     Event.STUCK),
    ("a large image takes its time", a(State.STARTING, give_up_after=dt.timedelta(seconds=299)), run(Phase.PENDING), ()),
    ("even that has an end", a(State.STARTING, give_up_after=dt.timedelta(seconds=49)), run(Phase.PENDING), Event.STUCK),
    ("a name that is no image's never becomes one", a(State.STARTING), run(Phase.PENDING, reason="InvalidImageName"),
     Event.STUCK),
    ("gone after it could not start", a(State.STOPPING, stop_cause="stuck"), run(Phase.LOST), Event.GONE_STUCK),
    ("a rank failed: the others are stopped", RUNNING, BROKEN, (Stop(10),)),
    ("they are being stopped", RUNNING, TOLD, ()),
    ("they are stopped during a notice too", RECALLED, BROKEN, (Stop(10),)),
    ("a gang whose ranks are all there starts at once", a(State.STARTING), GATED, (Ensure(),)),
    ("a gang that is told to go does not start", a(State.STARTING, claim="leaving"), GATED, Event.RECALL),
    ("a gang that goes back does not start", TOLD_EARLY, GATED, Event.STOP),
    ("a rank moved", RUNNING, MOVED, (RanksMoved(MOVED.run),)),  # type: ignore[arg-type]
    ("what its ranks do is written down already", dataclasses.replace(RUNNING, ranks=as_rows(RANKS)), MOVED, ()),
]  # fmt: skip


@pytest.mark.parametrize(("view", "seen", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_next_step(view: View, seen: Seen | None, expected: tuple[Step, ...] | Event) -> None:
    steps = next_steps(view, seen, NOW)
    if isinstance(expected, Event):
        assert [step.event for step in steps if isinstance(step, Happened)] == [expected]
        assert len(steps) == 1
    else:
        assert steps == expected

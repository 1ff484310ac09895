"""Scheduled jobs: one run a slot, and rest for those that take long."""

from __future__ import annotations

import datetime as dt
import threading
import time
from typing import Any

import pytest
import time_machine

from portal.background.embedded_runtime import Runtime
from portal.background.jobs import LONGEST_REST, LONGEST_RUN, claimed_tick, ticked
from portal.models import JobRun

JOB = "workloads.converge_all"  # every five seconds
NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
pytestmark = pytest.mark.django_db


def ticks(at: dt.datetime, *, takes: dt.timedelta = dt.timedelta(0)) -> bool:
    """Whether the job runs at a tick of that time."""
    with time_machine.travel(at, tick=False) as clock, claimed_tick(JOB, tick=True, rest=4) as runs:
        clock.shift(takes if runs else 0)
        return runs


def test_a_job_that_is_done_at_once_runs_at_every_tick() -> None:
    assert [ticks(NOON + 5 * n * SECOND, takes=SECOND / 10) for n in range(3)] == [True, True, True]


def test_one_that_takes_long_rests_four_times_as_long_and_leaves_no_row_meanwhile() -> None:
    assert ticks(NOON, takes=4 * SECOND)
    assert [ticks(NOON + s * SECOND) for s in (5, 10, 15)] == [False, False, False]
    assert ticks(NOON + 20 * SECOND)
    assert JobRun.objects.count() == 2


def test_no_rest_is_longer_than_half_a_minute() -> None:
    assert ticks(NOON, takes=60 * SECOND)
    assert not ticks(NOON + 85 * SECOND)
    assert ticks(NOON + 60 * SECOND + LONGEST_REST)


def test_two_never_run_side_by_side_unless_the_first_is_no_more() -> None:
    JobRun.objects.create(job=JOB, slot=NOON.timestamp(), started_at=NOON)  # killed before its end
    assert not ticks(NOON + LONGEST_REST - SECOND)
    assert ticks(NOON + LONGEST_REST)


def test_one_that_says_so_is_under_way_however_long_but_not_for_ever(with_redis: Any) -> None:
    with time_machine.travel(NOON, tick=False), claimed_tick(JOB, tick=True, rest=4) as runs:
        assert runs
        end = time.monotonic() + 10
        while not with_redis.keys("*goes-on*"):
            assert time.monotonic() < end
        assert not ticks(NOON + 2 * LONGEST_REST)
        assert not ticks(NOON + LONGEST_RUN - SECOND)
        assert ticks(NOON + LONGEST_RUN)


def test_a_run_whose_clock_was_ahead_keeps_nobody_waiting() -> None:
    ahead = NOON + 60 * SECOND
    JobRun.objects.create(job=JOB, slot=NOON.timestamp(), started_at=ahead, finished_at=ahead + 4 * SECOND)
    assert ticks(NOON + 5 * SECOND)


def test_a_job_is_due_an_interval_after_its_last_tick_however_often_the_process_began_anew(monkeypatch: Any) -> None:
    """Else one that runs each hour never runs in a demo that is stopped within the hour."""
    JobRun.objects.create(job=JOB, slot=NOON.timestamp(), started_at=NOON)
    assert ticked()[JOB] == ticked()["quotas.monthly"] == NOON
    seen: dict[str, dt.datetime] = {}

    class Beat:
        def __init__(self, app: Any) -> None:
            self.schedule = {
                job: type("Entry", (), {"last_run_at": NOON + 3600 * SECOND})() for job in (JOB, "strange")
            }

        def tick(self) -> float:
            seen.update({job: entry.last_run_at for job, entry in self.schedule.items()})
            runtime.stopping.set()
            return 0

    monkeypatch.setattr("portal.background.embedded_runtime.Scheduler", Beat)
    runtime = Runtime.__new__(Runtime)  # without a worker
    runtime.stopping, runtime.since = threading.Event(), ticked()
    runtime.beat()
    assert seen == {JOB: NOON, "strange": NOON + 3600 * SECOND}

"""Scheduled jobs: one run per slot, and a rest after a long run."""

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
    """Whether the job runs at a tick at that time."""
    with time_machine.travel(at, tick=False) as clock, claimed_tick(JOB, tick=True, rest=4) as runs:
        clock.shift(takes if runs else 0)
        return runs


def test_quick_job_runs_at_every_tick() -> None:
    assert [ticks(NOON + 5 * n * SECOND, takes=SECOND / 10) for n in range(3)] == [True, True, True]


def test_long_job_rests_four_times_its_duration_and_writes_no_row_meanwhile() -> None:
    assert ticks(NOON, takes=4 * SECOND)
    assert [ticks(NOON + s * SECOND) for s in (5, 10, 15)] == [False, False, False]
    assert ticks(NOON + 20 * SECOND)
    assert JobRun.objects.count() == 2


def test_no_rest_is_longer_than_half_a_minute() -> None:
    assert ticks(NOON, takes=60 * SECOND)
    assert not ticks(NOON + 85 * SECOND)
    assert ticks(NOON + 60 * SECOND + LONGEST_REST)


def test_unfinished_run_blocks_the_next_one_until_it_counts_as_killed() -> None:
    JobRun.objects.create(job=JOB, slot=NOON.timestamp(), started_at=NOON)  # killed before its end
    assert not ticks(NOON + LONGEST_REST - SECOND)
    assert ticks(NOON + LONGEST_REST)


def test_run_that_reports_being_alive_blocks_the_next_one_up_to_a_limit(with_redis: Any) -> None:
    with time_machine.travel(NOON, tick=False), claimed_tick(JOB, tick=True, rest=4) as runs:
        assert runs
        end = time.monotonic() + 10
        while not with_redis.keys("*goes-on*"):
            assert time.monotonic() < end
        assert not ticks(NOON + 2 * LONGEST_REST)
        assert not ticks(NOON + LONGEST_RUN - SECOND)
        assert ticks(NOON + LONGEST_RUN)


def test_run_whose_clock_was_ahead_does_not_delay_the_next_one() -> None:
    ahead = NOON + 60 * SECOND
    JobRun.objects.create(job=JOB, slot=NOON.timestamp(), started_at=ahead, finished_at=ahead + 4 * SECOND)
    assert ticks(NOON + 5 * SECOND)


def test_job_is_due_an_interval_after_its_last_tick_despite_restarts(monkeypatch: Any) -> None:
    """Otherwise an hourly job would never run in a demo that is stopped within the hour."""
    JobRun.objects.create(job=JOB, slot=NOON.timestamp(), started_at=NOON)
    assert ticked()[JOB] == ticked()["quotas.monthly"] == NOON
    last_runs: dict[str, dt.datetime] = {}

    class Beat:
        def __init__(self, app: Any) -> None:
            self.schedule = {
                job: type("Entry", (), {"last_run_at": NOON + 3600 * SECOND})() for job in (JOB, "strange")
            }

        def tick(self) -> float:
            last_runs.update({job: entry.last_run_at for job, entry in self.schedule.items()})
            runtime.stopping.set()
            return 0

    monkeypatch.setattr("portal.background.embedded_runtime.Scheduler", Beat)
    runtime = Runtime.__new__(Runtime)  # without a worker
    runtime.stopping, runtime.since = threading.Event(), ticked()
    runtime.beat()
    assert last_runs == {JOB: NOON, "strange": NOON + 3600 * SECOND}

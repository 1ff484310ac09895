"""The misbehaving test doubles misbehave as described and otherwise keep the driver contract."""

from __future__ import annotations

import datetime as dt

from tests.clusters.beds import find_run, in_memory
from tests.clusters.fakes import LosesPods, NeverStarts, SlowToStop
from workloads.runtime.base import Phase


class Clock:
    def __init__(self) -> None:
        self.time = dt.datetime(2031, 1, 1, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += dt.timedelta(seconds=seconds)


def test_never_starts_stays_pending_and_can_be_stopped() -> None:
    clock = Clock()
    bed = in_memory(NeverStarts, clock=clock)
    spec = bed.spec("hello")
    bed.driver.ensure(spec)
    clock.advance(86_400)
    run = find_run(bed.driver, spec.ref)
    assert run is not None
    assert (run.phase, run.reason, run.started_at) == (Phase.PENDING, "ImagePullBackOff", None)
    bed.driver.stop(spec.ref, 5)
    run = find_run(bed.driver, spec.ref)
    assert run is not None
    assert run.phase is Phase.LOST
    bed.driver.remove(spec.ref)
    assert find_run(bed.driver, spec.ref) is None


def test_loses_pods_reports_a_lost_run_until_it_vanishes() -> None:
    clock = Clock()
    bed = in_memory(LosesPods, clock=clock, after=30)
    spec = bed.spec("forever")
    bed.driver.ensure(spec)
    clock.advance(29)
    assert (run := find_run(bed.driver, spec.ref))
    assert run.phase is Phase.RUNNING
    clock.advance(2)
    assert (run := find_run(bed.driver, spec.ref))
    assert (run.phase, run.reason) == (Phase.LOST, "NodeLost")
    assert isinstance(bed.driver, LosesPods)
    bed.driver.vanished.add(spec.ref.name)
    assert find_run(bed.driver, spec.ref) is None


def test_slow_to_stop_takes_the_whole_grace() -> None:
    clock = Clock()
    bed = in_memory(SlowToStop, clock=clock)
    spec = bed.spec("polite")
    bed.driver.ensure(spec)
    clock.advance(10)
    bed.driver.stop(spec.ref, 60)
    clock.advance(59)
    assert (run := find_run(bed.driver, spec.ref))
    assert (run.phase, run.stopping) == (Phase.RUNNING, True)
    clock.advance(2)
    assert (run := find_run(bed.driver, spec.ref))
    assert run.exit_code == 137

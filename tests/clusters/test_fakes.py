"""The doubles that misbehave do exactly that, and otherwise keep the contract."""

from __future__ import annotations

import datetime as dt

from tests.clusters.beds import in_memory, seen
from tests.clusters.fakes import LosesPods, NeverStarts, SlowToStop
from workloads.runtime.base import Phase


class Clock:
    def __init__(self) -> None:
        self.time = dt.datetime(2031, 1, 1, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.time

    def pass_(self, seconds: float) -> None:
        self.time += dt.timedelta(seconds=seconds)


def test_never_starts_waits_for_ever_and_can_be_stopped() -> None:
    clock = Clock()
    bed = in_memory(NeverStarts, clock=clock)
    spec = bed.spec("hello")
    bed.driver.ensure(spec)
    clock.pass_(86_400)
    run = seen(bed.driver, spec.ref)
    assert run is not None
    assert (run.phase, run.reason, run.started_at) == (Phase.PENDING, "ImagePullBackOff", None)
    bed.driver.stop(spec.ref, 5)
    run = seen(bed.driver, spec.ref)
    assert run is not None
    assert run.phase is Phase.LOST
    bed.driver.remove(spec.ref)
    assert seen(bed.driver, spec.ref) is None


def test_loses_pods_says_lost_and_then_nothing() -> None:
    clock = Clock()
    bed = in_memory(LosesPods, clock=clock, after=30)
    spec = bed.spec("forever")
    bed.driver.ensure(spec)
    clock.pass_(29)
    assert (run := seen(bed.driver, spec.ref))
    assert run.phase is Phase.RUNNING
    clock.pass_(2)
    assert (run := seen(bed.driver, spec.ref))
    assert (run.phase, run.reason) == (Phase.LOST, "NodeLost")
    assert isinstance(bed.driver, LosesPods)
    bed.driver.vanished.add(spec.ref.name)
    assert seen(bed.driver, spec.ref) is None


def test_slow_to_stop_takes_the_whole_grace() -> None:
    clock = Clock()
    bed = in_memory(SlowToStop, clock=clock)
    spec = bed.spec("polite")
    bed.driver.ensure(spec)
    clock.pass_(10)
    bed.driver.stop(spec.ref, 60)
    clock.pass_(59)
    assert (run := seen(bed.driver, spec.ref))
    assert (run.phase, run.stopping) == (Phase.RUNNING, True)
    clock.pass_(2)
    assert (run := seen(bed.driver, spec.ref))
    assert run.exit_code == 137

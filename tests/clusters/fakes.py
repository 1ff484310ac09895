"""Clusters in memory that fulfil the driver contract, for tests of everything above the drivers, and some that misbehave as
real ones do. A run follows a `Life` on a clock that the test can move; nothing is executed.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from workloads.runtime.base import (
    Home,
    KeptVolume,
    LogChunk,
    NodeInfo,
    NoSuchRun,
    Observed,
    Phase,
    Refused,
    RunRef,
    RunSpec,
    VolumeRef,
    last_lines,
)

SIGTERM, SIGKILL = 128 + 15, 128 + 9


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True)
class Life:
    """What a run does: starts after `start` s, exits by itself with `code` after `runs` s (None: never), prints `log`,
    and needs `farewell` s after SIGTERM to exit with `stopped_code`."""

    start: float = 0
    runs: float | None = None
    code: int = 0
    log: bytes = b""
    farewell: float = 0
    stopped_code: int = SIGTERM


@dataclass(slots=True)
class Run:
    spec: RunSpec
    life: Life
    created_at: dt.datetime
    reclaim_at: dt.datetime | None = None
    stopped_at: dt.datetime | None = None
    kill_at: dt.datetime | None = None


@dataclass
class InMemoryCluster:
    """`life_of` chooses a run's life by its spec; by default it runs until stopped."""

    name: str = "memory"
    declared: Sequence[NodeInfo] = ()
    life_of: Callable[[RunSpec], Life] = lambda spec: Life()
    clock: Callable[[], dt.datetime] = now
    runs: dict[tuple[str, str], Run] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def ensure(self, spec: RunSpec) -> None:
        with self.lock:
            key = (spec.ref.namespace, spec.ref.name)
            run = self.runs.setdefault(key, Run(spec, self.life_of(spec), self.clock()))
            if run.spec.ref != spec.ref:
                raise Refused(f"{spec.ref.name} belongs to another submission", "name_taken")

    def announce(self, ref: RunRef, reclaim_at: dt.datetime | None) -> None:
        if run := self._find(ref):
            run.reclaim_at = reclaim_at

    def stop(self, ref: RunRef, grace: int) -> None:
        with self.lock:
            run = self._find(ref)
            if run is None or self.look(run).phase not in (Phase.PENDING, Phase.RUNNING):
                return
            at = self.clock()
            run.stopped_at = run.stopped_at or at
            kill_at = at + dt.timedelta(seconds=grace)
            run.kill_at = min(run.kill_at or kill_at, kill_at)

    def remove(self, ref: RunRef) -> None:
        with self.lock:
            run = self._find(ref)
            if run is not None and self.look(run).phase not in (Phase.PENDING, Phase.RUNNING):
                del self.runs[ref.namespace, ref.name]

    def observe(self) -> tuple[Observed, ...]:
        with self.lock:
            return tuple(self.look(run) for run in self.runs.values())

    def look(self, run: Run) -> Observed:
        """The state of a run, which follows from its life, the calls it got and the time."""
        life, spec = run.life, run.spec
        begins = run.created_at + dt.timedelta(seconds=life.start)
        ends, code, reason = None, life.code, "Error" if life.code else "Completed"
        if life.runs is not None:
            ends = begins + dt.timedelta(seconds=life.runs)
        if run.stopped_at and run.kill_at and (ends is None or run.stopped_at < ends):
            leaves = max(run.stopped_at, begins) + dt.timedelta(seconds=life.farewell)
            ends, code = (leaves, life.stopped_code) if leaves <= run.kill_at else (run.kill_at, SIGKILL)
            reason = "Stopped"
        at = self.clock()
        over, begun = ends is not None and ends <= at, begins <= at
        phase = (Phase.FAILED if code else Phase.SUCCEEDED) if over else Phase.RUNNING if begun else Phase.PENDING
        return Observed(
            ref=spec.ref,
            workload_id=spec.workload_id,
            attempt=spec.attempt,
            phase=phase,
            stopping=run.stopped_at is not None,
            exit_code=code if over else None,
            reason=reason if over else "",
            node=spec.placement[0].node if spec.placement else "",
            cards=tuple(str(card) for place in spec.placement for card in place.cards),
            started_at=begins if begun else None,
            finished_at=ends if over else None,
        )

    def logs(
        self, ref: RunRef, *, offset: int = 0, tail: int | None = None, rank: int = 0, limit: int = 1 << 20,
        previous: bool = False,
    ) -> LogChunk:  # fmt: skip
        with self.lock:
            run = self._find(ref)
            if run is None:
                raise NoSuchRun(f"{ref.name} has left no log here")
            seen = self.look(run)
        if previous:
            return LogChunk(b"", offset, end=True)
        whole = run.life.log if seen.started_at else b""
        if tail is not None:
            offset = len(whole) - min(limit, len(last_lines(whole, tail)))
        part = whole[offset : offset + limit]
        over = seen.phase not in (Phase.PENDING, Phase.RUNNING)
        return LogChunk(part, offset, end=over and offset + len(part) == len(whole))

    def nodes(self) -> tuple[NodeInfo, ...]:
        return tuple(self.declared)

    def endpoint(self, ref: RunRef) -> tuple[str, int] | None:
        run = self._find(ref)
        if run is None or run.spec.port is None or self.look(run).phase is not Phase.RUNNING:
            return None
        return ("127.0.0.1", run.spec.port)

    def files(self, volume: VolumeRef) -> None:
        return None

    def keep_home(self, home: Home, *, fresh: bool = False) -> None:
        """Nothing to do: departments' namespaces are not simulated."""

    def volumes(self) -> tuple[KeptVolume, ...]:
        return ()

    def discard(self, volume: VolumeRef) -> None:
        pass

    def _find(self, ref: RunRef) -> Run | None:
        run = self.runs.get((ref.namespace, ref.name))
        return run if run is not None and run.spec.ref == ref else None


class NeverStarts(InMemoryCluster):
    """Accepts everything and starts nothing: an image that cannot be pulled, a node that never has room."""

    def look(self, run: Run) -> Observed:
        if run.stopped_at:
            return self._unstarted(run, Phase.LOST, "Deleted")
        return self._unstarted(run, Phase.PENDING, "ImagePullBackOff")

    def _unstarted(self, run: Run, phase: Phase, reason: str) -> Observed:
        seen = super().look(run)
        return replace(seen, phase=phase, reason=reason, exit_code=None, started_at=None, finished_at=None)


@dataclass
class LosesPods(InMemoryCluster):
    """A node is lost `after` seconds into every run, which is then LOST; runs in `vanished` are no longer listed."""

    after: float = 1
    vanished: set[str] = field(default_factory=set)

    def look(self, run: Run) -> Observed:
        seen = super().look(run)
        dies = run.created_at + dt.timedelta(seconds=self.after)
        if seen.phase is Phase.RUNNING and dies <= self.clock():
            return replace(seen, phase=Phase.LOST, reason="NodeLost")
        return seen

    def observe(self) -> tuple[Observed, ...]:
        return tuple(run for run in super().observe() if run.ref.name not in self.vanished)


class SlowToStop(InMemoryCluster):
    """Runs ignore SIGTERM: every stop takes the whole grace."""

    def look(self, run: Run) -> Observed:
        return super().look(replace(run, life=replace(run.life, farewell=float(1 << 20))))

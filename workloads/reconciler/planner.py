"""Act on hints as they arrive: plan pool groups, and hand every changed claim to the workers.
It does at once what the periodic tasks do later: any number of planners may run, or none. One loop takes the hints, so a burst
of submissions needs only one pass for each round, and what a pass admitted is started while the next one plans.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import nullcontext

import redis
import structlog
from django.db import close_old_connections, connections

from portal.background import hint_queue
from portal.errors import Busy
from portal.infra.telemetry.switch import work
from quotas.models import Claim, PoolGroup
from quotas.planning.run_pass import run_pass
from workloads.reconciler.workers import Workers
from workloads.runtime.base import Look

log = structlog.get_logger(__name__)
WAIT = 1.0  # s for the first hint
SHORT, LONGEST_REST = 0.3, 2.0  # s; a short pass, and the longest pause between two passes
BURST, LONGEST_BURST = 4, 2.0  # after so many changed claims, hints are collected while more come; at most s
GATHER = 0.05  # s without another hint: the burst is over
UNWELL = 15.0  # s after a failure in which this process does not announce that it takes hints


class Planner(threading.Thread):
    """Runs until `closing` is set."""

    def __init__(self, closing: threading.Event, workers: Workers) -> None:
        super().__init__(name="planner", daemon=True)
        self.closing, self.workers = closing, workers
        self._rest = 0.0  # s before the next hints are taken
        self._burst = False  # more hints are on their way
        self._well_from = 0.0  # monotonic time; until then the periodic tasks do its work

    def run(self) -> None:
        while not self.closing.is_set():
            try:
                self._gather()
                hints = hint_queue.take(WAIT, well=time.monotonic() >= self._well_from)
                close_old_connections()
                with work("act on hints", [ids for _name, ids in hints]) if hints else nullcontext():
                    self.act(hints)
            except redis.RedisError as error:
                log.warning("hints.away", error=str(error))
                self.closing.wait(WAIT)
            except Exception:  # the periodic tasks do what is left undone here
                log.exception("planner.failed")
                self._well_from = time.monotonic() + UNWELL
                self.closing.wait(WAIT)
        connections.close_all()

    def act(self, hints: Iterable[hint_queue.Hint]) -> None:
        groups: dict[int, None] = {}
        for name, ids in hints:
            match name:
                case "quotas.plan":
                    groups[int(ids["group_id"])] = None
                case "workloads.converge" if "claim" in ids:
                    self.workers.changed([str(ids["claim"])])
                case "workloads.converge":
                    self.workers.changed(_claims_of(str(ids["workload"])))
                case Look.RUNS | Look.NODES:
                    self.workers.look(Look(name), int(ids["cluster_id"]) if "cluster_id" in ids else None)
        for group in groups:
            began = time.thread_time()  # CPU time: waiting for a lock costs others nothing
            changed = self._plan(group)
            self._rest = max(self._rest, _rest_after(time.thread_time() - began))
            self._burst = self._burst or len(changed) >= BURST
            self.workers.changed(changed)

    def _plan(self, group: int) -> list[str]:
        """Plan a pool group; returns the public ids of the claims that changed."""
        try:
            with hint_queue.collected() as hints:
                run_pass(group_id=group)
        except (Busy, PoolGroup.DoesNotExist) as error:  # another process plans it just now, or it is gone
            log.info("plan.left", group=group, error=str(error))
        self.act([hint for hint in hints if "claim" not in hint[1]])
        return [str(ids["claim"]) for _name, ids in hints if "claim" in ids]

    def _gather(self) -> None:
        """Wait a moment for further hints: in a burst one pass for many costs less than many passes."""
        end, before = time.monotonic() + LONGEST_BURST, -1
        self.closing.wait(self._rest)
        while self._burst and time.monotonic() < end and (now := hint_queue.waiting()) != before:
            before = now
            self.closing.wait(GATHER)
        self._rest, self._burst = 0.0, False


def _rest_after(took: float) -> float:
    """The pause after a pass: as long as the pass, or three times as long for a large pool, whose passes cost nearly the same
    however many claims they admit. In seconds."""
    return took if took < SHORT else min(LONGEST_REST, 3 * took)


def _claims_of(workload: str) -> list[str]:
    live = Claim.objects.filter(attempt__workload__public_id=workload, attempt__finished_at=None)
    return list(live.values_list("public_id", flat=True))

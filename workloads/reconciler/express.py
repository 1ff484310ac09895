"""Acts on hints and sightings as they come: plans, starts what was admitted, and carries on what the cluster tells of.

It does what the workers' periodic tasks do, only at once: any number of these may run, or none. One loop takes hints, so a
burst of submissions is answered by as few passes as there were rounds. While it plans, what it admitted before is started,
and what takes long (a listing, a stop) runs beside it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import redis
import structlog
from django.db import Error as DatabaseError
from django.db import close_old_connections, connections

from portal.background import hint_queue
from portal.errors import Busy
from quotas.models import Claim, Cluster, PoolGroup
from quotas.planning.run_pass import run_pass
from workloads.nodes import inventory
from workloads.reconciler import starting
from workloads.reconciler.reconcile import converge_claim, converge_cluster
from workloads.reconciler.sightings import Sightings
from workloads.runtime.base import ClusterError, Observed

log = structlog.get_logger(__name__)
WAIT = 1.0  # s for the first hint
SHORT, LONGEST_REST = 0.1, 2.0  # s
BURST, LONGEST_BURST = 4, 2.0  # after a pass that admitted so many, hints gather while more come, so many s at most
GATHER = 0.05  # s without another hint: the burst is over
CREATORS, STARTERS = 32, 2  # threads that create runs; that write down which
BESIDE, TIDYING = 4, 16  # for everything else; and for what nobody waits for, which is mostly waiting for the cluster


class Express(threading.Thread):
    """Runs until `closing` is set."""

    def __init__(self, closing: threading.Event) -> None:
        super().__init__(name="express", daemon=True)
        self.closing = closing
        self.creators = ThreadPoolExecutor(CREATORS, thread_name_prefix="create")
        self.starters = ThreadPoolExecutor(STARTERS, thread_name_prefix="start")
        self.beside = ThreadPoolExecutor(BESIDE, thread_name_prefix="beside")
        self.tidying = ThreadPoolExecutor(TIDYING, thread_name_prefix="tidy")
        self.sightings = Sightings(closing, self._beside, partial(self._beside, threads=self.tidying))
        self._asked: dict[object, Callable[[], object]] = {}  # what waits for a thread; a newer one replaces it
        self._doing: set[object] = set()
        self._admitted: dict[str, None] = {}  # claims to be started, in the order of the plan
        self._rest = 0.0  # s before the next hints are taken
        self._burst = False  # more hints are on their way
        self._guard = threading.Lock()

    def run(self) -> None:
        self.sightings.start()
        while not self.closing.is_set():
            try:
                self._gather()
                hints = hint_queue.take(WAIT)
                close_old_connections()
                self.act(hints)
            except redis.RedisError as error:
                log.warning("lane.away", error=str(error))
                self.closing.wait(WAIT)
            except Exception:  # the beat does what is left undone here
                log.exception("express.failed")
                self.closing.wait(WAIT)
        for threads in (self.starters, self.creators, self.beside, self.tidying):
            threads.shutdown(cancel_futures=True)
        self.sightings.join(2 * WAIT)
        connections.close_all()

    def _gather(self) -> None:
        """Lets hints gather. In a burst one pass for many costs less than many passes, and what is admitted a moment later
        is created sooner: nothing else of the burst is in its way."""
        end, before = time.monotonic() + LONGEST_BURST, -1
        self.closing.wait(self._rest)
        while self._burst and time.monotonic() < end and (now := hint_queue.waiting()) != before:
            before = now
            self.closing.wait(GATHER)
        self._rest, self._burst = 0.0, False

    def act(self, hints: Iterable[hint_queue.Hint]) -> None:
        groups: dict[int, None] = {}
        claims: dict[str, None] = {}
        for name, ids in hints:
            match name:
                case "quotas.plan":
                    groups[int(ids["group_id"])] = None
                case "workloads.converge" if "claim" in ids:
                    claims[str(ids["claim"])] = None
                case "workloads.converge":
                    claims |= dict.fromkeys(_claims_of(str(ids["workload"])))
                case "workloads.converge_all" | "workloads.inventory":
                    self._look(name, ids.get("cluster_id"))
        self._begin(claims)
        for group in groups:
            began = time.monotonic()
            moved = self._plan(group)
            self._rest = max(self._rest, _rest_after(time.monotonic() - began))
            self._burst = self._burst or len(moved) >= BURST
            self._begin(moved)

    def seen(self, cluster: Cluster, run: Observed) -> None:
        """The watch tells how one run is now: acted on without a listing."""
        self.sightings.tell(cluster, run)

    def _begin(self, claims: Iterable[str]) -> None:
        with self._guard:
            self._admitted |= dict.fromkeys(claims)
            waiting = len(self._admitted)
        for _ in range(0, waiting, starting.BATCH):
            self.starters.submit(self._do, self._start)

    def _start(self) -> None:
        with self._guard:
            claims = list(self._admitted)[: starting.BATCH]
            for claim in claims:
                del self._admitted[claim]
        for claim in starting.start(claims, self.creators):
            self._beside(claim, partial(converge_claim, claim))
        self.sightings.again()

    def _plan(self, group: int) -> list[str]:
        """The claims that changed hands."""
        try:
            with hint_queue.kept() as hints:
                run_pass(group_id=group)
        except (Busy, PoolGroup.DoesNotExist) as error:  # somebody else plans it right now, or it is gone
            log.info("plan.left", group=group, error=str(error))
        self.act([hint for hint in hints if "claim" not in hint[1]])
        return [str(ids["claim"]) for name, ids in hints if "claim" in ids]

    def _look(self, name: str, cluster_id: int | str | None) -> None:
        chosen = Cluster.objects.filter(active=True)
        act: Callable[[Cluster], int] = inventory.refresh if name == "workloads.inventory" else converge_cluster
        for cluster in chosen if cluster_id is None else chosen.filter(pk=cluster_id):
            self._beside((name, cluster.pk), partial(act, cluster))

    def _beside(self, key: object, act: Callable[[], object], threads: ThreadPoolExecutor | None = None) -> None:
        """In another thread, one of each key at a time; of several that wait, only the newest is done."""
        with self._guard:
            busy = key in self._asked or key in self._doing
            self._asked[key] = act
        if not busy:
            (threads or self.beside).submit(self._newest, key, threads or self.beside)

    def _newest(self, key: object, threads: ThreadPoolExecutor) -> None:
        with self._guard:
            act = self._asked.pop(key)
            self._doing.add(key)
        self._do(act)
        with self._guard:
            self._doing.discard(key)
            again = key in self._asked
        if again and not self.closing.is_set():
            threads.submit(self._newest, key, threads)

    def _do(self, act: Callable[[], object]) -> None:
        try:
            act()
        except ClusterError as error:
            log.warning("cluster.failed", error=str(error))
        except DatabaseError as error:
            log.warning("database.failed", error=str(error))
        except Exception:  # the beat does what is left undone here
            log.exception("express.failed")
        finally:
            connections.close_all()  # a thread that waits needs none


def _rest_after(took: float) -> float:
    """As long as a pass took, while hints gather; three times as long after one over a large pool: what that costs hardly
    depends on how many it admits."""
    return took if took < SHORT else min(LONGEST_REST, 3 * took)


def _claims_of(workload: str) -> list[str]:
    live = Claim.objects.filter(attempt__workload__public_id=workload, attempt__finished_at=None)
    return list(live.values_list("public_id", flat=True))

"""The workers of this process: every change adds the key of an attempt to one queue, from which a few threads take keys.
When the plan changes a claim, or the watch or a listing reports a run, only its key is added (an attempt's submission id is its
claim's id). Each key is processed by one thread at a time, so no lock with a time-out is needed. A report that a run is running
waits for a moment for further ones: recorded together they cost less.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import structlog
from django.db import Error as DatabaseError
from django.db import connections
from django.utils import timezone

from portal.errors import Busy
from quotas.models import Cluster
from workloads.nodes import inventory
from workloads.reconciler.next_steps import Seen
from workloads.reconciler.queue import WorkQueue
from workloads.reconciler.reconcile import BATCH, due, note_running, reconcile_claim, sort_work, start
from workloads.runtime.base import ClusterError, Look, Observed, Phase

log = structlog.get_logger(__name__)
WORKERS, LOOKERS = 4, 2  # threads that process attempts; threads that list clusters
CREATORS, HANDS = 32, 16  # threads that create runs; that reconcile attempts one by one, mostly waiting for the cluster
GATHER = 0.25  # s that a report of a running run waits for further ones
RESTS, LONGEST_REST = 9, 30.0  # pause after a listing: so many times as long as it took; at most s


class Workers:
    def __init__(self) -> None:
        self.attempts: WorkQueue[str] = WorkQueue()
        self.looks: WorkQueue[tuple[Look, int]] = WorkQueue()  # and the cluster's primary key
        self._sightings: dict[str, Seen] = {}  # the newest sighting of each key that was not taken yet
        self._rests: dict[tuple[Look, int], float] = {}  # monotonic time before which it is not listed again
        self._guard = threading.Lock()
        self._creators = ThreadPoolExecutor(CREATORS, thread_name_prefix="create")
        self._hands = ThreadPoolExecutor(HANDS, thread_name_prefix="hand")
        self._threads = [
            *(threading.Thread(target=self._work, name=f"worker-{n}", daemon=True) for n in range(WORKERS)),
            *(threading.Thread(target=self._look, name=f"look-{n}", daemon=True) for n in range(LOOKERS)),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish what is under way; keys that wait are left to the next process."""
        self.attempts.close()
        self.looks.close()
        for pool in (self._creators, self._hands):
            pool.shutdown(wait=False, cancel_futures=True)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(5)

    def changed(self, claims: Iterable[str]) -> None:
        """Queue the attempts of these claims (public ids), which the plan, a person or a deadline changed."""
        self.attempts.add_all(claims)

    def sighted(self, cluster: Cluster, run: Observed) -> None:
        """Queue a run that the watch reports. A run that is merely starting is left to the listing."""
        if run.phase is not Phase.PENDING or run.reason or run.stopping:
            self._sight(run.ref.submission_id, Seen(timezone.now(), run))

    def look(self, what: Look, cluster_id: int | None = None) -> None:
        """Queue a listing of a cluster, or of all clusters that answer."""
        rows = Cluster.objects.filter(active=True)
        rows = rows.filter(unreachable_since=None) if cluster_id is None else rows.filter(pk=cluster_id)
        for pk in rows.values_list("pk", flat=True):
            self.looks.add((what, pk), after=self._rests.get((what, pk), 0) - time.monotonic())

    def _sight(self, key: str, seen: Seen) -> None:
        with self._guard:
            known = self._sightings.get(key)
            if known is None or known.at <= seen.at:
                self._sightings[key] = seen
        runs = seen.run is not None and seen.run.phase is Phase.RUNNING
        self.attempts.add(key, after=GATHER if runs else 0)

    def _work(self) -> None:
        while keys := self.attempts.take(BATCH):
            with self._guard:
                sightings = {key: self._sightings.pop(key) for key in keys if key in self._sightings}
            left: dict[str, Callable[[str], None]] = dict.fromkeys(keys, self.attempts.retry)
            self._carefully(lambda: self._together(left, sightings))  # noqa: B023 called at once
            for key, finish in left.items():
                finish(key)

    def _together(self, left: dict[str, Callable[[str], None]], sightings: dict[str, Seen]) -> None:
        """One round. `left`: key → how to finish it after the round; keys that are handed to another thread are removed."""
        work = sort_work([key for key in left if key not in sightings], sightings)
        for key, claim in work.alone.items():
            del left[key]
            self._hands.submit(self._alone, key, claim, sightings.get(key))
        note_running(work.running)
        not_created = start(work.admitted, self._creators)
        for key in list(left):
            if not_created.get(key):  # the ResourceQuota is outdated: reconciling it alone updates it
                del left[key]
                self._hands.submit(self._alone, key, key, None)
            elif key not in not_created:
                left[key] = self.attempts.done

    def _alone(self, key: str, claim: str, seen: Seen | None) -> None:
        finish = self.attempts.done if self._carefully(lambda: reconcile_claim(claim, seen)) else self.attempts.retry
        finish(key)

    def _look(self) -> None:
        while looks := self.looks.take():
            [look] = looks
            began = time.monotonic()
            self._carefully(lambda: self._look_at(*look))  # noqa: B023 called at once
            self._rests[look] = time.monotonic() + min(RESTS * (time.monotonic() - began), LONGEST_REST)
            self.looks.done(look)

    def _look_at(self, what: Look, cluster_id: int) -> None:
        cluster = Cluster.objects.filter(pk=cluster_id, active=True).first()
        if cluster is None:
            return
        if what is Look.NODES:
            inventory.refresh(cluster)
            return
        for key, seen in due(cluster).items():
            self._sight(key, seen)

    def _carefully(self, act: Callable[[], object]) -> bool:
        """Call `act`; False if it failed. The caller tries again, and so do the periodic tasks."""
        try:
            act()
        except (ClusterError, DatabaseError, Busy) as error:
            log.warning("worker.failed", error=str(error))
            return False
        except Exception:
            log.exception("worker.failed")
            return False
        finally:
            connections.close_all()  # a waiting thread needs none
        return True

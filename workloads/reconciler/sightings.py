"""What the watch tells of many runs, acted on together: one query for all, one transaction for those that began to run.

A burst of pods is three sightings each within seconds. They gather while one round is acted on, and for a moment or twice
as long as that took; of several of one run only the newest counts. One that only tells that it is on its way is left to
the listing. Whatever is more than "it runs now" is converged by itself, as after a listing, and what no longer runs at
once: somebody may wait for what it frees. What is left of it to tidy up has threads of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import structlog
from django.db import Error as DatabaseError
from django.db import connections
from django.utils import timezone

from portal.background import hint_queue
from portal.errors import Busy
from quotas.models import Cluster
from workloads.clusters.drivers import driver_for
from workloads.clusters.run_spec import BY_CLAIM
from workloads.lifecycle import Event, State
from workloads.models import Attempt
from workloads.reconciler import starting
from workloads.reconciler.next_steps import Happened, Remove, Seen, next_steps
from workloads.reconciler.reconcile import converge, view_of, viewed
from workloads.runtime.base import Observed, Phase

log = structlog.get_logger(__name__)
WAIT = 1.0  # s between two looks at whether to end
GATHER, LONGEST = 0.25, 1.0  # s for those that run; twice as long as the last round took if that is more, but no longer
Beside = Callable[[object, Callable[[], object]], None]


class Sightings(threading.Thread):
    """Runs until `closing` is set. `beside` and `tidy` have something done in other threads, once for each key."""

    def __init__(self, closing: threading.Event, beside: Beside, tidy: Beside) -> None:
        super().__init__(name="sightings", daemon=True)
        self.closing, self.beside, self.tidy = closing, beside, tidy
        self._told: dict[str, tuple[Cluster, Observed]] = {}  # by submission id
        self._guard, self._some, self._urgent = threading.Lock(), threading.Event(), threading.Event()

    def tell(self, cluster: Cluster, run: Observed) -> None:
        if run.phase is Phase.PENDING and not (run.reason or run.stopping):
            return
        with self._guard:
            self._told[run.ref.submission_id] = (cluster, run)
        if run.phase is not Phase.RUNNING:
            self._urgent.set()
        self._some.set()

    def again(self) -> None:
        """Something was created: what was told too early may be acted on now."""
        if self._told:
            self._some.set()

    def run(self) -> None:
        gather = GATHER
        while not self.closing.is_set():
            if not self._some.wait(WAIT):
                continue
            self._urgent.wait(gather)
            began = time.monotonic()
            self._urgent.clear()
            self._some.clear()
            try:
                self.act()
            except (DatabaseError, Busy) as error:
                log.warning("database.failed", what="sightings", error=str(error))
            except Exception:  # the next listing tells all of it again
                log.exception("sightings.failed")
            finally:
                connections.close_all()
            gather = min(LONGEST, max(GATHER, 2 * (time.monotonic() - began)))

    def act(self) -> None:
        with self._guard:
            told, self._told = self._told, {}
        by_cluster: dict[int, list[Observed]] = {}
        for cluster, run in told.values():
            by_cluster.setdefault(cluster.pk, []).append(run)
        for cluster_id, runs in by_cluster.items():
            early = self._act_on(cluster_id, runs)
            with self._guard:  # a newer one wins
                self._told = {id: told[id] for id in early} | self._told

    def _act_on(self, cluster_id: int, runs: Sequence[Observed]) -> list[str]:
        """Returns the submission ids of those that somebody is just creating: they are looked at again after that.

        An attempt that nobody knows is left to the listing, which knows orphans."""
        now, by_id = timezone.now(), {run.ref.submission_id: run for run in runs}
        rows = viewed(Attempt.objects.filter(submission_id__in=by_id))
        early: list[str] = []
        begun: list[tuple[Attempt, Observed]] = []
        for attempt in rows.order_by("pk"):
            if attempt.cluster_id != cluster_id or attempt.removed_at is not None:
                continue
            run = by_id[attempt.submission_id]
            seen = Seen(now, run)
            steps = next_steps(view_of(attempt), seen, now)
            if attempt.workload.state == State.ADMITTED:
                early.append(attempt.submission_id)
            elif steps == (Happened(Event.STARTED, run),):
                begun.append((attempt, run))
            elif any(isinstance(step, Remove) for step in steps):
                self._tidy_up(attempt.claim.public_id, seen)
            elif steps:
                self.beside(run.ref.name, partial(self._closer, attempt.claim.public_id, seen))
        starting.begun(begun)
        return early

    def _closer(self, claim: str, seen: Seen) -> None:
        for attempt in BY_CLAIM.all(claim):
            converge(attempt, driver_for(attempt.cluster), seen, later=lambda: self._tidy_up(claim, seen))

    def _tidy_up(self, claim: str, seen: Seen) -> None:
        self.tidy(("tidy", claim), partial(_tidy_up, claim, seen))


def _tidy_up(claim: str, seen: Seen) -> None:
    for attempt in BY_CLAIM.all(claim):
        if converge(attempt, driver_for(attempt.cluster), seen):
            hint_queue.tidied()

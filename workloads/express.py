"""Acts on hints and sightings as they come: plans, starts what was admitted, and carries on what the cluster tells of.

It does what the workers' periodic tasks do, only at once: any number of these may run, or none. One loop takes hints, so a
burst of submissions is answered by as few passes as there were rounds; what takes long (a listing, a stop) runs beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import redis
import structlog
from django.db import DatabaseError, close_old_connections, connections
from django.utils import timezone

from portal import lane
from portal.errors import Busy
from quotas.admission import run_pass
from quotas.models import Claim, Cluster, PoolGroup
from workloads import inventory, starting
from workloads.clusters.base import ClusterError, Observed
from workloads.converge import ROWS, converge, converge_claim, converge_cluster
from workloads.drivers import driver_for
from workloads.models import Attempt
from workloads.reconcile import Seen

log = structlog.get_logger(__name__)
WAIT = 1.0  # s for the first hint
CREATORS, BESIDE = 16, 4  # threads that create runs; threads for everything else


class Express(threading.Thread):
    """Runs until `closing` is set."""

    def __init__(self, closing: threading.Event) -> None:
        super().__init__(name="express", daemon=True)
        self.closing = closing
        self.creators = ThreadPoolExecutor(CREATORS, thread_name_prefix="create")
        self.beside = ThreadPoolExecutor(BESIDE, thread_name_prefix="beside")
        self._asked: dict[object, Callable[[], object]] = {}  # what waits for a thread; a newer one replaces it
        self._guard = threading.Lock()

    def run(self) -> None:
        while not self.closing.is_set():
            try:
                hints = lane.take(WAIT)
                close_old_connections()
                self.act(hints)
            except redis.RedisError as error:
                log.warning("lane.away", error=str(error))
                self.closing.wait(WAIT)
            except Exception:  # the beat does what is left undone here
                log.exception("express.failed")
                self.closing.wait(WAIT)
        self.creators.shutdown(cancel_futures=True)
        self.beside.shutdown(cancel_futures=True)

    def act(self, hints: Iterable[lane.Hint]) -> None:
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
        for group in groups:
            claims |= dict.fromkeys(self._plan(group))
        if claims:
            for claim in starting.start(claims, self.creators):
                self._beside(claim, partial(converge_claim, claim))

    def seen(self, cluster: Cluster, run: Observed) -> None:
        """The watch tells how one run is now: acted on without a listing."""
        self._beside(run.ref.name, partial(_sighted, cluster, run))

    def _plan(self, group: int) -> list[str]:
        """The claims that changed hands."""
        try:
            with lane.kept() as hints:
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

    def _beside(self, key: object, act: Callable[[], object]) -> None:
        """In another thread; of several of one key that wait, only the newest is done."""
        with self._guard:
            waits = key in self._asked
            self._asked[key] = act
        if not waits:
            self.beside.submit(self._do, key)

    def _do(self, key: object) -> None:
        with self._guard:
            act = self._asked.pop(key)
        try:
            act()
        except ClusterError as error:
            log.warning("cluster.failed", what=str(key), error=str(error))
        except DatabaseError as error:
            log.warning("database.failed", what=str(key), error=str(error))
        except Exception:
            log.exception("express.failed", what=str(key))
        finally:
            connections.close_all()  # a thread that waits needs none


def _claims_of(workload: str) -> list[str]:
    live = Claim.objects.filter(attempt__workload__public_id=workload, attempt__finished_at=None)
    return list(live.values_list("public_id", flat=True))


def _sighted(cluster: Cluster, run: Observed) -> None:
    """An attempt that nobody knows is left to the listing, which knows orphans."""
    rows = Attempt.objects.filter(cluster=cluster, submission_id=run.ref.submission_id, removed_at=None)
    attempt = rows.select_related(*ROWS).first()
    if attempt is not None:
        converge(attempt, driver_for(attempt.cluster), Seen(timezone.now(), run))

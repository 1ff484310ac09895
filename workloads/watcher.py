"""Watches the clusters and wakes the reconcile when something moved there. Without it all is still correct, only slower."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog
from django.db import close_old_connections
from django.utils import timezone

from portal.models import Heartbeat
from portal.wake import wake
from quotas.models import Cluster
from workloads.clusters.base import ClusterDriver, ClusterError
from workloads.drivers import driver_for

log = structlog.get_logger(__name__)
POLL = 0.5  # s between looks at a cluster that cannot be watched
QUIET = 0.1  # s in which many changes become one wake-up
HEARTBEAT = 10.0  # s


class ClusterWatch(threading.Thread):
    """One cluster, until `closing` is set. Errors of the cluster are waited out, never raised."""

    def __init__(self, cluster: Cluster, closing: threading.Event) -> None:
        super().__init__(name=f"watch-{cluster.name}", daemon=True)
        self.cluster, self.closing = cluster, closing
        self._moved = threading.Event()

    def run(self) -> None:
        waker = threading.Thread(target=self._wake, name=f"{self.name}-wake", daemon=True)
        waker.start()
        pause = 1.0
        while not self.closing.is_set():
            try:
                driver = driver_for(self.cluster)
                watch: Callable[..., None] = getattr(driver, "watch", None) or _poll
                if watch is _poll:
                    _poll(driver, self._moved.set, self.closing)
                else:
                    watch(self._moved.set, self.closing)
                pause = 1.0
            except ClusterError as error:
                log.warning("watch.failed", cluster=self.cluster.name, error=str(error))
                self.closing.wait(pause)
                pause = min(pause * 2, 30.0)
        self._moved.set()
        waker.join(5)

    def _wake(self) -> None:
        beat = 0.0
        while not self.closing.is_set():
            moved = self._moved.wait(1.0)
            self.closing.wait(QUIET)
            self._moved.clear()
            if moved:
                wake("workloads.converge_all", cluster_id=self.cluster.pk)
            if time.monotonic() - beat > HEARTBEAT:
                beat = time.monotonic()
                close_old_connections()
                Heartbeat.objects.update_or_create(name=f"watch:{self.cluster.name}", defaults={"at": timezone.now()})


def _poll(driver: ClusterDriver, moved: Callable[[], None], closing: threading.Event) -> None:
    """For a cluster without a watch: look often, and tell when the picture differs."""
    last: object = None
    while not closing.wait(POLL):
        now = driver.observe()
        if last is not None and now != last:
            moved()
        last = now


def watch_all(closing: threading.Event) -> list[ClusterWatch]:
    """Starts a watch for every active cluster; the caller sets `closing` and joins."""
    watches = [ClusterWatch(cluster, closing) for cluster in Cluster.objects.filter(active=True)]
    for watch in watches:
        watch.start()
    return watches

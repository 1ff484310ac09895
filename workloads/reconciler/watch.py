"""Watch the clusters and pass changes on. Without it everything is still correct, only slower.
Several copies may run: one of them watches a cluster, the others wait for its lease. The lease is a row of heartbeats for each
cluster, taken and kept by compare-and-set on the database's clock; a process that loses it stops watching.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import socket
import threading
from collections.abc import Callable

import structlog
from django.db import Error as DatabaseError  # also when the connection is gone, which Django calls InterfaceError
from django.db import connections
from django.db.models import Q
from django.db.models.functions import Now

from portal.background.hints import wake
from portal.ids import new_id
from portal.models import Heartbeat
from quotas.models import Cluster
from workloads.clusters.drivers import driver_for
from workloads.runtime.base import ClusterDriver, ClusterError, Look, Observed

log = structlog.get_logger(__name__)
POLL = 0.5  # s between two listings of a cluster that cannot be watched
QUIET = 0.5  # s in which many changes are joined into one listing
BEAT = 3.0  # s between two renewals of a lease, and between two tries to take it
EXPIRES = dt.timedelta(seconds=10)  # after the last renewal another process may take over
LOOK_FOR_NEW = 5.0  # s between two checks for added clusters
LONG_AGO = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
Sighted = Callable[[Cluster, Observed], None]


class Lease:
    """The right to watch one cluster. It only avoids duplicate work: two holders for a moment are harmless."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{new_id()[-6:]}"

    def take(self) -> bool:
        """Take or renew the lease. False: another process has it."""
        Heartbeat.objects.get_or_create(name=self.name, defaults={"at": LONG_AGO})
        takeable = Q(data__holder=self.holder) | Q(at__lt=Now() - EXPIRES)
        return bool(Heartbeat.objects.filter(takeable, name=self.name).update(at=Now(), data={"holder": self.holder}))

    def give_up(self) -> None:
        """Release the lease, so that the next holder need not wait until it expires."""
        Heartbeat.objects.filter(name=self.name, data__holder=self.holder).update(at=LONG_AGO)


class ClusterWatch(threading.Thread):
    """Watches one cluster until `closing` is set. Failures are logged and retried after a pause: none of its threads ends early.
    `sighted` is called for changes of single runs; without it every change leads to a listing of all runs."""

    def __init__(self, cluster: Cluster, closing: threading.Event, sighted: Sighted | None = None) -> None:
        super().__init__(name=f"watch-{cluster.name}", daemon=True)
        self.cluster, self.closing, self.sighted = cluster, closing, sighted
        self.lease = Lease(f"watch:{cluster.name}")
        self._looks: set[Look] = set()  # listings that are due
        self._moved = threading.Event()  # set when a listing is due

    def run(self) -> None:
        over: threading.Event | None = None  # ends the present watch
        while not self.closing.is_set():
            held = self._held()
            if held and over is None:
                over = threading.Event()
                threading.Thread(target=self._watch, args=(over,), name=f"{self.name}-events", daemon=True).start()
                log.info("watch.began", cluster=self.cluster.name, holder=self.lease.holder)
            elif not held and over is not None:
                over.set()
                over = None
                log.warning("watch.lost", cluster=self.cluster.name, holder=self.lease.holder)
            self.closing.wait(BEAT * random.uniform(0.8, 1))  # noqa: S311
        if over is not None:
            over.set()
            self._give_up()

    def _held(self) -> bool:
        try:
            return self.lease.take()
        except DatabaseError as error:
            log.warning("watch.database_away", cluster=self.cluster.name, error=str(error))
            return False
        finally:
            connections.close_all()

    def _give_up(self) -> None:
        try:
            self.lease.give_up()
        except DatabaseError as error:
            log.warning("watch.database_away", cluster=self.cluster.name, error=str(error))
        finally:
            connections.close_all()

    def _watch(self, over: threading.Event) -> None:
        waker = threading.Thread(target=self._wake, args=(over,), name=f"{self.name}-wake", daemon=True)
        waker.start()
        for look in Look:  # the last listing may be long ago
            self._on_change(look)
        pause = 1.0
        while not over.is_set():
            try:
                driver = driver_for(self.cluster)
                watch: Callable[..., None] = getattr(driver, "watch", None) or (
                    lambda on_change, stop: _poll(driver, on_change, stop)  # noqa: B023 called at once
                )
                watch(self._on_change, over)
                pause = 1.0
                continue
            except (ClusterError, DatabaseError) as error:
                log.warning("watch.failed", cluster=self.cluster.name, error=str(error))
            except Exception:  # a cluster may send anything: the next watch begins with a new listing
                log.exception("watch.failed", cluster=self.cluster.name)
            finally:
                connections.close_all()
            over.wait(pause * random.uniform(0.5, 1))  # noqa: S311
            pause = min(pause * 2, 30.0)

    def _on_change(self, news: Observed | Look) -> None:
        if isinstance(news, Observed) and self.sighted is not None:
            self.sighted(self.cluster, news)
        else:
            self._looks.add(news if isinstance(news, Look) else Look.RUNS)
            self._moved.set()

    def _wake(self, over: threading.Event) -> None:
        while not over.is_set():
            if self._moved.wait(1.0):
                self._moved.clear()
                try:
                    while self._looks:
                        wake(self._looks.pop(), cluster_id=self.cluster.pk)
                except Exception:  # only a hint is lost: the periodic tasks list, too
                    log.exception("watch.hint_lost", cluster=self.cluster.name)
                finally:
                    connections.close_all()
                over.wait(QUIET)


def _poll(driver: ClusterDriver, on_change: Callable[[Look], None], closing: threading.Event) -> None:
    """For a cluster without a watch: list it often, and report when the result differs."""
    last = driver.observe()
    while not closing.wait(POLL):
        now = driver.observe()
        if now != last:
            on_change(Look.RUNS)
        last = now


def watch_all(closing: threading.Event, sighted: Sighted | None = None) -> None:
    """Watch all active clusters, including ones added later, until `closing` is set."""
    watches: dict[int, ClusterWatch] = {}
    while not closing.is_set():
        try:
            for cluster in Cluster.objects.filter(active=True).exclude(pk__in=watches):
                watches[cluster.pk] = ClusterWatch(cluster, closing, sighted)
                watches[cluster.pk].start()
        except DatabaseError as error:
            log.warning("watch.database_away", error=str(error))
        finally:
            connections.close_all()
        closing.wait(LOOK_FOR_NEW)
    for watch in watches.values():
        watch.join(5)

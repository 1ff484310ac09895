"""The driver of a Cluster row: one for each process and cluster, recreated when the row's connection or options
change."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from django.conf import settings
from django.db.models import QuerySet

from portal.errors import N_, Problem
from portal.infra.crypt import Undecryptable, decrypt
from portal.infra.locks import lend_connection
from quotas.models import Cluster, ClusterKind
from workloads.models import Image
from workloads.runtime.base import ClusterDriver, Refused, Unreachable


class ClusterAway(Problem):
    """A page or request needs the cluster, but it does not answer."""

    status = 503
    code = "cluster_unreachable"
    message = N_("The cluster does not respond: %(why)s")
    retry_after = 5


_drivers: dict[int, tuple[object, ClusterDriver]] = {}
_guard = threading.Lock()


def driver_for(cluster: Cluster) -> ClusterDriver:
    """The cluster's driver. Raises Refused if the cluster must not be used by this portal."""
    identity = (os.getpid(), cluster.kind, cluster.name, cluster.connection, repr(cluster.options))
    with _guard:
        known = _drivers.get(cluster.pk)
        if known is None or known[0] != identity:
            known = _drivers[cluster.pk] = (identity, cast(ClusterDriver, Lending(make_driver(cluster))))
        return known[1]


def make_driver(cluster: Cluster) -> ClusterDriver:
    """A new driver, also for an unsaved row (the connection test). Raises Refused, also for options that cannot be read."""
    if cluster.kind == ClusterKind.EMBEDDED:
        from workloads.embedded.command import nodes_from
        from workloads.embedded.driver import EmbeddedCluster

        try:
            declared = nodes_from(cluster.options)
        except ValueError as error:
            raise Refused(str(error), code="bad_options") from error
        return EmbeddedCluster(
            name=cluster.name,
            root=Path(settings.DATA_DIR) / "cluster" / cluster.name,
            declared=declared,
            images=_Interpreters(),
            debug=settings.DEBUG,
            bind_host=settings.BIND_HOST,
        )
    from workloads.kubernetes.driver import Connection, KubernetesCluster

    try:
        kubeconfig = decrypt(cluster.connection, N_("The connection of the cluster %(name)s"), cluster.name)
    except Undecryptable as error:
        return cast(ClusterDriver, Unreadable(error))
    return KubernetesCluster(cluster.name, Connection(kubeconfig, cluster.options))


class Lending:
    """A driver that returns this thread's database connection to the pool before each call (unless a transaction is
    open), because a process has more threads that wait for clusters than database connections."""

    def __init__(self, driver: ClusterDriver) -> None:
        self.driver = driver

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.driver, name)
        if not callable(attribute):
            return attribute

        @functools.wraps(attribute)
        def call(*args: Any, **kwargs: Any) -> Any:
            lend_connection()
            return attribute(*args, **kwargs)

        return call


class Unreadable:
    """The driver of a cluster whose connection cannot be decrypted: it behaves as if the cluster did not answer."""

    def __init__(self, error: Undecryptable) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any, **__: Any) -> None:
            raise Unreachable(self.error.detail)

        return call


class _Interpreters(Mapping[str, str]):
    """Image → local interpreter, read from the database each time so that a new image needs no restart."""

    def __getitem__(self, name: str) -> str:
        row = self._rows().filter(name=name).values_list("interpreter", flat=True).first()
        if row is None:
            raise KeyError(name)
        return row

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows().values_list("name", flat=True))

    def __len__(self) -> int:
        return self._rows().count()

    def _rows(self) -> QuerySet[Image]:
        return Image.objects.filter(active=True).exclude(interpreter="")

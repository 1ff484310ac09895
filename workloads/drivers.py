"""The driver of a Cluster row. One a process and cluster; made again when the row's connection or options change."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from django.conf import settings

from portal.crypt import decrypt
from quotas.models import Cluster, ClusterKind
from workloads.clusters.base import ClusterDriver
from workloads.models import Image

_drivers: dict[int, tuple[object, ClusterDriver]] = {}
_guard = threading.Lock()


def driver_for(cluster: Cluster) -> ClusterDriver:
    """Raises Refused where the cluster must not be used here, Undecryptable when its key is gone."""
    identity = (os.getpid(), cluster.kind, cluster.name, cluster.connection, repr(cluster.options))
    with _guard:
        known = _drivers.get(cluster.pk)
        if known is None or known[0] != identity:
            known = _drivers[cluster.pk] = (identity, make_driver(cluster))
        return known[1]


def make_driver(cluster: Cluster) -> ClusterDriver:
    """A new driver, also for a row that is not saved yet (the connection test)."""
    if cluster.kind == ClusterKind.EMBEDDED:
        from workloads.clusters.embedded import EmbeddedCluster
        from workloads.clusters.embedded_plan import node_from

        return EmbeddedCluster(
            name=cluster.name,
            root=Path(settings.DATA_DIR) / "cluster" / cluster.name,
            declared=[node_from(node) for node in cluster.options.get("nodes", [])],
            images=_Interpreters(),
            debug=settings.EMBEDDED or settings.DEBUG,
            bind_host=settings.BIND_HOST,
        )
    from workloads.clusters.kubernetes import Connection, KubernetesCluster

    return KubernetesCluster(cluster.name, Connection(decrypt(cluster.connection), cluster.options))


class _Interpreters(dict[str, str]):
    """Image → local interpreter, read anew at each start so that a new image needs no restart."""

    def __init__(self) -> None:
        rows = Image.objects.exclude(interpreter="").filter(active=True)
        super().__init__(rows.values_list("name", "interpreter"))

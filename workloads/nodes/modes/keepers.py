"""The interface for changing a node: its labels, and the configurations that plugins read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Protocol

from quotas.models import Cluster, ClusterKind
from workloads.clusters.drivers import driver_for
from workloads.runtime.base import Refused


class Keeper(Protocol):
    """All calls may be repeated. Raises Unreachable, Refused (which right is missing)."""

    def labels(self, node: str) -> dict[str, str]: ...

    def set_labels(self, node: str, labels: Mapping[str, str | None]) -> None:
        """None takes a label away."""
        ...

    def may_write(self, which: str) -> bool:
        """Whether the cluster's options name a place for this configuration ("plugin", "mig")."""
        ...

    def config(self, which: str) -> dict[str, str]: ...

    def write_config(self, which: str, data: Mapping[str, str]) -> None: ...

    def restarted(self, which: str, node: str, since: dt.datetime) -> bool:
        """Restarts what reads the configuration on this node; True once it has restarted since then, or if nothing
        reads it there."""
        ...


def keeper_for(cluster: Cluster) -> Keeper:
    """Raises Refused where nodes cannot be changed from here."""
    if cluster.kind == ClusterKind.EMBEDDED:
        from workloads.nodes.modes.declared import DeclaredKeeper

        return DeclaredKeeper(cluster.pk)
    keeper = getattr(driver_for(cluster), "keeper", None)
    if keeper is None:
        raise Refused("the nodes of this cluster cannot be changed from here", code="unsupported")
    made: Keeper = keeper()
    return made

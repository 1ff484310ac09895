"""The interface for changing a node: its labels, and the configurations that plugins read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Protocol

from quotas.models import Cluster, ClusterKind
from workloads.clusters.drivers import driver_for
from workloads.runtime.base import Refused


class Keeper(Protocol):
    """Changes nodes. All calls may be repeated, and may raise Unreachable or Refused (with the missing right)."""

    def labels(self, node: str) -> dict[str, str]: ...

    def set_labels(self, node: str, labels: Mapping[str, str | None]) -> None:
        """None removes a label."""
        ...

    def may_write(self, which: str) -> bool:
        """Whether the cluster's options name a ConfigMap for this configuration ("plugin", "mig")."""
        ...

    def config(self, which: str) -> dict[str, str]: ...

    def write_config(self, which: str, data: Mapping[str, str]) -> None: ...

    def restarted(self, which: str, node: str, since: dt.datetime) -> bool:
        """Restart the pods that read the configuration on this node; True once they have restarted since then, or if there are
        none."""
        ...


def keeper_for(cluster: Cluster) -> Keeper:
    """The interface to the cluster's nodes. Raises Refused if the portal cannot change them."""
    if cluster.kind == ClusterKind.EMBEDDED:
        from workloads.nodes.modes.declared import DeclaredKeeper

        return DeclaredKeeper(cluster.pk)
    keeper = getattr(driver_for(cluster), "keeper", None)
    if keeper is None:
        raise Refused("the nodes of this cluster cannot be changed from here", code="unsupported")
    made: Keeper = keeper()
    return made

"""Nodes that do not answer. Their runs may still be running, so they are given up only if the operator decided so: by the
cluster's option `lost_after`, the taint node.kubernetes.io/out-of-service, or removing the node."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from quotas.models import Cluster, Node

NOT_READY = "not ready since "  # prefix of the inventory's note; the cluster's own time follows


def given_up(cluster: Cluster, *, now: dt.datetime) -> frozenset[str]:
    """Names of the nodes that have been silent for longer than the operator's option allows."""
    patience = cluster.options.get("lost_after", 0)
    if not patience:
        return frozenset()
    late = now - dt.timedelta(seconds=patience)
    rows = Node.objects.filter(cluster=cluster, present=True).exclude(held_back_by=[])
    return frozenset(
        name for name, notes in rows.values_list("name", "held_back_by") if (at := silent_since(notes)) and at < late
    )


def silent_since(notes: Iterable[dict[str, Any]]) -> dt.datetime | None:
    for note in notes:
        if str(note.get("message", "")).startswith(NOT_READY):
            try:
                return dt.datetime.fromisoformat(note["params"]["since"])
            except (KeyError, ValueError):
                return None
    return None

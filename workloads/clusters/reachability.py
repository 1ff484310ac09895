"""Whether a cluster answers, recorded when that changes. Every caller of a driver may report it."""

from __future__ import annotations

import datetime as dt

from portal.background.hints import wake
from portal.notify.events import emit
from quotas.models import Cluster


def mark_unreachable(cluster: Cluster, why: str, *, now: dt.datetime) -> None:
    if Cluster.objects.filter(pk=cluster.pk, unreachable_since=None).update(unreachable_since=now):
        emit("cluster.unreachable", cluster=cluster.name, why=why[:300])


def mark_reached(cluster: Cluster, *, now: dt.datetime) -> None:
    """Record that the cluster answers, and if it did not before, plan its pool groups."""
    Cluster.objects.filter(pk=cluster.pk).update(seen_at=now)
    if Cluster.objects.filter(pk=cluster.pk, unreachable_since__isnull=False).update(unreachable_since=None):
        emit("cluster.reached", cluster=cluster.name)
        for group in cluster.groups.all():
            wake("quotas.plan", group_id=group.pk)

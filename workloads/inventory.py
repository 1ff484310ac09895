"""The node inventory: what the cluster lists becomes Node and Card rows, and cards find their pools.

A kind of capacity seen for the first time makes a pool of its own; who is promised what of it is the operator's to say.
"""

from __future__ import annotations

import datetime as dt

from django.db.models import F
from django.utils import timezone
from django.utils.text import slugify

from portal.events import emit
from portal.locks import durable
from portal.wake import wake
from quotas.admission import locked_group
from quotas.models import Card, Cluster, Node, Pool, PoolGroup
from workloads.clusters.base import NodeInfo, Unreachable
from workloads.drivers import driver_for
from workloads.happenings import cluster_reached, cluster_unreachable


def refresh(cluster: Cluster) -> int:
    """Asks the cluster and writes what changed. Returns the number of nodes that changed."""
    now = timezone.now()
    try:
        found = driver_for(cluster).nodes()
    except Unreachable as error:
        cluster_unreachable(cluster, str(error), now=now)
        return 0
    cluster_reached(cluster, now=now)
    known = {node.name: node for node in Node.objects.filter(cluster=cluster).prefetch_related("cards")}
    changed = 0
    for info in found:
        node = known.pop(info.name, None)
        if node is None or _facts(node) != _told(info) or _cards(node) != _told_cards(info):
            _write(cluster, info, now)
            changed += 1
    for node in known.values():
        changed += node.present and _lost(node, now)
    Node.objects.filter(cluster=cluster, present=True).update(seen_at=now)
    return changed


def _told(info: NodeInfo) -> dict[str, object]:
    return {
        "present": True, "sharing": info.sharing, "product": info.product, "because": info.because[:200],
        "held_back": info.held_back[:300], "instances": dict(info.instances), "domain": info.domain,
        "cpu_milli": info.cpu_milli, "memory_mib": info.memory_mib, "labels": dict(info.labels),
    }  # fmt: skip


FACTS = (
    "present", "sharing", "product", "because", "held_back", "instances", "domain", "cpu_milli", "memory_mib", "labels",
)  # fmt: skip


def _facts(node: Node) -> dict[str, object]:
    return {name: getattr(node, name) for name in FACTS}


def _cards(node: Node) -> list[tuple[object, ...]]:
    return [(card.index, card.units, card.cores, card.uuid, card.healthy) for card in node.cards.all()]


def _told_cards(info: NodeInfo) -> list[tuple[object, ...]]:
    return [(card.index, card.units, card.cores, card.uuid, card.healthy) for card in info.cards]


def _write(cluster: Cluster, info: NodeInfo, now: dt.datetime) -> None:
    """One node, under the lock of its pool's group: it may have less to give than a moment ago."""
    pool = _pool_of(cluster, info) if info.cards else None
    with durable():
        if pool is not None:
            locked_group(pool.group_id)
        node, _ = Node.objects.update_or_create(
            cluster=cluster, name=info.name, defaults=_told(info) | {"seen_at": now, "lost_since": None}
        )
        before = Card.objects.filter(node=node).count()
        for card in info.cards:
            Card.objects.update_or_create(
                node=node,
                index=card.index,
                defaults={
                    "pool": pool, "units": card.units, "cores": card.cores, "uuid": card.uuid, "healthy": card.healthy,
                },
            )  # fmt: skip
        kept = {card.index for card in info.cards}
        Card.objects.filter(node=node).exclude(index__in=kept).update(healthy=False)
        if pool is not None:
            added = sum(card.units for card in info.cards[before:])
            Pool.objects.filter(pk=pool.pk).update(nominal=F("nominal") + added)
            wake("quotas.plan", group_id=pool.group_id)
        emit("node.changed", node=node.name, held_back=info.held_back)


def _lost(node: Node, now: dt.datetime) -> bool:
    """The cluster lists it no more. What it held stays claimed until its runs are known to be gone."""
    groups = sorted(set(node.cards.filter(pool__isnull=False).values_list("pool__group", flat=True)))
    with durable():
        for group_id in groups:
            locked_group(group_id)
            wake("quotas.plan", group_id=group_id)
        Node.objects.filter(pk=node.pk).update(present=False, lost_since=now)
        emit("node.lost", node=node.name)
    return True


def _pool_of(cluster: Cluster, info: NodeInfo) -> Pool:
    """The pool of this product and sharing system on this cluster; made when seen for the first time."""
    pool = Pool.objects.filter(group__cluster=cluster, product=info.product, sharing=info.sharing).first()
    if pool is not None:
        return pool
    slug = _free_slug(slugify(f"{info.product.removeprefix('NVIDIA-')}-{info.sharing}"))
    with durable():
        group = PoolGroup.objects.create(name=slug, cluster=cluster)
        return Pool.objects.create(
            slug=slug, name=f"{info.product} ({info.sharing})", group=group, product=info.product, sharing=info.sharing,
            unit=info.unit, units_per_card=info.units_per_card, nominal=0, mig=info.mig or "",
        )  # fmt: skip


def _free_slug(slug: str) -> str:
    taken = set(Pool.objects.filter(slug__startswith=slug).values_list("slug", flat=True))
    return next(name for name in (slug, *(f"{slug}-{n}" for n in range(2, 1000))) if name not in taken)

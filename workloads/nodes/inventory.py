"""The node inventory: the nodes that the cluster lists become Node and Card rows, and cards are assigned to pools."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.db.models import Min
from django.utils import timezone

from portal.background.hints import wake
from portal.infra.locks import durable
from portal.notify.events import emit
from quotas.health import quarantines
from quotas.models import Card, Cluster, Node, Pool
from quotas.planning.lock import locked_group
from workloads.clusters.drivers import driver_for
from workloads.clusters.reachability import mark_reached, mark_unreachable
from workloads.nodes import health, outside
from workloads.nodes.pools import (
    Key,
    carry_over,
    ensure_pools,
    key_of,
    memory_of,
    note_shares,
    pools_of,
    units_by_pool,
)
from workloads.runtime.base import NodeInfo, Unreachable, as_json

NOTED = dt.timedelta(minutes=1)  # `seen_at` is written at most this often: a planning pass rereads written rows


def refresh(cluster: Cluster) -> int:
    """List the cluster's nodes and write what changed. Returns the number of nodes that changed."""
    now = timezone.now()
    try:
        driver = driver_for(cluster)
        infos = driver.nodes()
        others = outside_of() if (outside_of := getattr(driver, "outside", None)) else ()
    except Unreachable as error:
        mark_unreachable(cluster, str(error), now=now)
        return 0
    mark_reached(cluster, now=now)
    known = {node.name: node for node in Node.objects.filter(cluster=cluster).prefetch_related("cards")}
    pools = pools_of(cluster)
    changed = 0
    for info in infos:
        node = known.pop(info.name, None)
        own_pools = ensure_pools(cluster, info, pools)
        cards = _reported_cards(info, own_pools)
        if node is None or _facts(node) != _as_reported(info) or _cards(node, {card[0] for card in cards}) != cards:
            _write(cluster, info, own_pools, now)
            changed += 1
    for node in known.values():
        changed += node.present and _lost(node, now)
    changed += outside.refresh(cluster, others)
    health.refresh(cluster, infos, now=now)
    if changed or any(pool.cpu_per_card is None for pool in pools.values()):
        note_shares(cluster)
    Node.objects.filter(cluster=cluster, present=True, seen_at__lt=now - NOTED).update(seen_at=now)
    return changed


def _as_reported(info: NodeInfo) -> dict[str, object]:
    return {
        "present": True, "sharing": info.sharing, "product": info.product, "because": info.because[:200],
        "because_of": as_json(info.because_of), "held_back": info.held_back[:300],
        "held_back_by": [as_json(note) for note in info.held_back_by], "conflicts": list(info.conflicts),
        "instances": dict(info.instances), "domain": info.domain, "cpu_milli": info.cpu_milli,
        "memory_mib": info.memory_mib, "pods": info.pods, "devices": dict(info.devices), "labels": dict(info.labels),
    }  # fmt: skip


FACTS = (
    "present", "sharing", "product", "because", "because_of", "held_back", "held_back_by", "conflicts", "instances",
    "domain", "cpu_milli", "memory_mib", "pods", "devices", "labels",
)  # fmt: skip


def _facts(node: Node) -> dict[str, object]:
    return {name: getattr(node, name) for name in FACTS}


def _cards(node: Node, indexes: set[int]) -> list[tuple[Any, ...]]:
    """The node's cards as tuples. Cards that are no longer listed stay as unhealthy rows; they are left out, as no change."""
    rows = (card for card in node.cards.all() if card.index in indexes or card.healthy)
    return sorted((c.index, c.units, c.cores, c.uuid, c.healthy, c.pool_id or 0) for c in rows)


def _reported_cards(info: NodeInfo, pools: dict[Key, Pool]) -> list[tuple[Any, ...]]:
    cards = []
    for offer in info.offers:
        pool = pools.get(key_of(offer))
        cards += [(c.index, c.units, c.cores, c.uuid, c.healthy, pool.pk if pool else 0) for c in offer.cards]
    return sorted(cards)


def _write(cluster: Cluster, info: NodeInfo, pools: dict[Key, Pool], now: dt.datetime) -> None:
    """Write one node under the locks of all pool groups whose capacity it changes, because it may have less than before."""
    old = Pool.objects.filter(cards__node__cluster=cluster, cards__node__name=info.name)
    groups = {*old.values_list("group", flat=True), *(pool.group_id for pool in pools.values())}
    with durable():
        for group_id in sorted(groups):
            locked_group(group_id)
            wake("quotas.plan", group_id=group_id)
        node, _ = Node.objects.update_or_create(
            cluster=cluster, name=info.name, defaults=_as_reported(info) | {"seen_at": now, "lost_since": None}
        )
        before = units_by_pool(node)
        _write_cards(node, info, pools)
        quarantines.mark(node)  # the cards may be new rows
        for pool in pools.values():
            least = Card.objects.filter(pool=pool, cores__gt=0).aggregate(least=Min("cores"))["least"]
            Pool.objects.filter(pk=pool.pk).exclude(card_cores=least).update(card_cores=least)
        carry_over(before, units_by_pool(node))
        emit("node.changed", node=node.name, held_back=info.held_back)


def _write_cards(node: Node, info: NodeInfo, pools: dict[Key, Pool]) -> None:
    by_index: dict[int, Card] = {}
    for offer in info.offers:
        pool = pools.get(key_of(offer))
        for card in offer.cards:
            facts = {"units": card.units, "cores": card.cores, "uuid": card.uuid, "healthy": card.healthy}
            by_index[card.index] = Card(node=node, index=card.index, pool=pool, **facts)
        if pool is not None and pool.card_mib is None and (memory := memory_of(offer)):
            Pool.objects.filter(pk=pool.pk, card_mib=None).update(card_mib=memory)
    Card.objects.bulk_create(
        by_index.values(), update_conflicts=True, unique_fields=["node", "index"],
        update_fields=["pool", "units", "cores", "uuid", "healthy"],
    )  # fmt: skip
    unlisted = Card.objects.filter(node=node).exclude(index__in=by_index)
    if info.offers:  # cards of a kind that the node no longer has: they will not come back
        unlisted.exclude(pool__in=pools.values()).delete()
    unlisted.update(healthy=False)


def _lost(node: Node, now: dt.datetime) -> bool:
    """Mark a node that the cluster no longer lists. Its claims remain until their runs are known to have ended."""
    groups = sorted(set(node.cards.filter(pool__isnull=False).values_list("pool__group", flat=True)))
    with durable():
        for group_id in groups:
            locked_group(group_id)
            wake("quotas.plan", group_id=group_id)
        Node.objects.filter(pk=node.pk).update(present=False, lost_since=now)
        emit("node.lost", node=node.name)
    return True

"""Pods that the portal did not start: what they use of a node and its cards is not available while they exist.
Each listing of the cluster has all of them, and only differences are written: the next listing makes up for one that was lost
or killed anywhere. Nothing here ever changes such a pod.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from portal.background.hints import wake
from portal.infra.locks import durable
from portal.notify.events import emit
from quotas.models import LIVE_CLAIMS, OCCUPYING, Card, Claim, Cluster, Node, OutsidePod, Pool
from quotas.planning.lock import locked_group
from workloads.models import Attempt
from workloads.requests.request import settings_of
from workloads.runtime import base
from workloads.sharing import SYSTEMS
from workloads.sharing.outside import Offered, Part, Slot, parts, put_on_cards, requests, wants_a_gpu

BY_CLAIM = frozenset({"dra", "dra-mig"})  # systems whose devices are allocated to a claim, which several pods may share
FOR_GOOD = ("DaemonSet", "Node")  # owners of pods that are on every node, or part of the node itself


def refresh(cluster: Cluster, pods: Iterable[base.OutsidePod]) -> int:
    """Record what outside pods use. Returns the number of nodes where that changed."""
    there: dict[str, list[base.OutsidePod]] = defaultdict(list)
    for pod in _uncounted(cluster, list(pods)):
        there[pod.node].append(pod)
    nodes = Node.objects.filter(cluster=cluster).prefetch_related("cards__pool", "outside_pods")
    ours = _ours(cluster)
    changed = 0
    for node in nodes:
        seen = _seen(cluster, node, there.get(node.name, []), ours)
        if seen != _known(node):
            changed += 1
            _write(node, seen)
    return changed


def _uncounted(cluster: Cluster, pods: list[base.OutsidePod]) -> list[base.OutsidePod]:
    """The pods without those that a claim counts, because the portal admitted them. Pods that were admitted with another
    database are not left out."""
    admitted = {pod.admitted for pod in pods if pod.admitted}
    if not admitted:
        return pods
    rows = Attempt.objects.filter(cluster=cluster, submission_id__in=admitted, finished_at=None)
    counted = set(rows.values_list("submission_id", flat=True))
    return [pod for pod in pods if pod.admitted not in counted]


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """Outside use of one node. `beside`: of the node itself; `cards`: index → (units, percent of compute);
    `pods`: (uid, pool id) → (namespace, name, kind of owner, units)."""

    beside: dict[str, Any]
    cards: dict[int, tuple[int, int]]
    pods: dict[tuple[str, int], tuple[str, str, str, int]]


def _known(node: Node) -> Seen:
    cards = {c.index: (c.outside, c.outside_cores) for c in node.cards.all() if c.outside or c.outside_cores}
    rows = node.outside_pods.all()
    return Seen(node.outside, cards, {(p.uid, p.pool_id): (p.namespace, p.name, p.owner_kind, p.units) for p in rows})


def _ours(cluster: Cluster) -> Mapping[tuple[str, int], int]:
    """(node, card) → units that the portal's own claims occupy or have reserved there."""
    used = Counter[tuple[str, int]]()
    for claim in Claim.objects.filter(pool__group__cluster=cluster, state__in=LIVE_CLAIMS):
        places = (claim.reserved or {}).get("places") if claim.state not in OCCUPYING else claim.placement
        for place in places or ():
            for card in place.get("cards") or ():
                used[place["node"], card] += claim.on_card // len(place["cards"])
    return used


def _seen(cluster: Cluster, node: Node, pods: list[base.OutsidePod], ours: Mapping[tuple[str, int], int]) -> Seen:
    by_pool: dict[int, list[Card]] = defaultdict(list)
    pools: dict[str, Pool] = {}
    for card in node.cards.all():
        if card.pool is not None:
            by_pool[card.pool.pk].append(card)
            pools[card.pool.sharing] = card.pool
    parts: dict[tuple[str, int], list[Part]] = defaultdict(list)
    claimed = set[tuple[str, str]]()
    for pod in sorted(pods, key=lambda pod: pod.uid) if pools else ():
        for key, part in _parts(cluster, node, pod, pools):
            if key in BY_CLAIM and part.device:
                if (
                    key,
                    part.device,
                ) in claimed:  # pods that share a resource claim use its device together: counted once
                    part = dataclasses.replace(part, units=0)
                claimed.add((key, part.device))
            parts[pod.uid, pools[key].pk].append(part)
    taken: dict[int, tuple[int, int]] = {}
    instances = Counter[str]()
    for pool in pools.values():
        in_pool = [
            part for (_, pk), pod_parts in sorted(parts.items()) if pk == pool.pk for part in pod_parts if part.units
        ]
        if pool.mig and node.instances:
            instances.update(part.profile for part in in_pool)
            continue
        slots = [
            Slot(card.index, card.uuid, card.units if card.healthy else 0, ours.get((node.name, card.index), 0))
            for card in sorted(by_pool[pool.pk], key=lambda card: card.index)
        ]
        put_on_cards(slots, in_pool)
        taken |= {slot.index: (slot.outside, slot.cores) for slot in slots if slot.outside or slot.cores}
    named = {pod.uid: (pod.namespace[:253], pod.name[:253], pod.owner_kind) for pod in pods}
    rows = {key: (*named[key[0]], sum(part.units for part in pod_parts)) for key, pod_parts in parts.items()}
    return Seen(_beside(node, pods, instances), taken, rows)


def _parts(cluster: Cluster, node: Node, pod: base.OutsidePod, pools: Mapping[str, Pool]) -> Iterator[tuple[str, Part]]:
    if not wants_a_gpu(pod.pod):
        return
    offers = [
        Offered(pool.sharing, pool.units_per_card, pool.mig, node.instances if pool.mig else {})
        for pool in pools.values()
    ]
    held = {key: SYSTEMS[key].read_back(pod.pod) for key in pools if key in SYSTEMS}
    yield from parts(pod.pod, offers, held, settings_of(cluster))


def _beside(node: Node, pods: list[base.OutsidePod], instances: Mapping[str, int]) -> dict[str, Any]:
    """Resources of the node that all outside pods use together: CPU, memory, pods, devices, MIG instances."""
    total: dict[str, float] = {}
    for pod in pods:
        for name, amount in requests(pod.pod).items():
            total[name] = total.get(name, 0) + amount
    devices = {name: int(total[name]) for name in node.devices if total.get(name)}
    amounts: dict[str, Any] = {
        "cpu_milli": -int(-total.get("cpu", 0) * 1000 // 1),
        "memory_mib": -int(-total.get("memory", 0) // 2**20),
        "pods": len(pods),
        "standing": _standing(pods),
        "devices": devices,
        "instances": dict(sorted(instances.items())),
    }
    return {name: value for name, value in amounts.items() if value}


def _standing(pods: list[base.OutsidePod]) -> dict[str, int]:
    """CPU and memory of permanent pods (such as those of DaemonSets), which are there whatever cards are used."""
    cpu = memory = 0.0
    for pod in pods:
        if pod.owner_kind in FOR_GOOD:
            asked = requests(pod.pod)
            cpu, memory = cpu + asked.get("cpu", 0), memory + asked.get("memory", 0)
    amounts = {"cpu_milli": -int(-cpu * 1000 // 1), "memory_mib": -int(-memory // 2**20)}
    return {name: amount for name, amount in amounts.items() if amount}


def _write(node: Node, seen: Seen) -> None:
    """Write the use under the locks of all pool groups with cards there, because the node may have less capacity than before."""
    groups = sorted({card.pool.group_id for card in node.cards.all() if card.pool is not None})
    with durable():
        for group_id in groups:
            locked_group(group_id)
            wake("quotas.plan", group_id=group_id)
        Node.objects.filter(pk=node.pk).update(outside=seen.beside)
        for card in node.cards.all():
            units, cores = seen.cards.get(card.index, (0, 0))
            if (card.outside, card.outside_cores) != (units, cores):
                Card.objects.filter(pk=card.pk).update(outside=units, outside_cores=cores)
        rows = {(row.uid, row.pool_id): row for row in OutsidePod.objects.filter(node=node)}
        ended = [row.pk for key, row in rows.items() if key not in seen.pods]
        OutsidePod.objects.filter(pk__in=ended).delete()
        for (uid, pool_id), (namespace, name, kind, units) in seen.pods.items():
            facts = {"node": node, "namespace": namespace, "name": name, "owner_kind": kind, "units": units}
            OutsidePod.objects.update_or_create(uid=uid, pool_id=pool_id, defaults=facts)
        emit("node.changed", node=node.name, held_back=node.held_back)

"""Signs of faulty hardware, from what a cluster reports: they begin and end quarantines (quotas/health/quarantines.py).

Conditions and taints of a node concern the whole node; an unhealthy or missing card concerns only that card. Nothing is
concluded from a node that is lost, drained or held back: its cards may be missing because somebody works on it.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Sequence

from quotas.health.quarantines import Answer, Reason, judge
from quotas.health.signs import AWAY, Sign
from quotas.models import Card, Cluster, ClusterKind, Node, Quarantine
from workloads.runtime.base import NodeInfo, Note, as_json
from workloads.sharing.api import N_

OF_NODES, OF_CARDS = "node", "card"  # sources: prefixes of the names of their signs
UNHEALTHY = Note(N_("the cluster reports the card as unhealthy or missing"))


def refresh(cluster: Cluster, infos: Sequence[NodeInfo], *, now: dt.datetime) -> int:
    """Judge all nodes of a listing, after it has been written. Returns how many nodes changed."""
    ids = dict(Node.objects.filter(cluster=cluster, present=True).values_list("name", "pk"))
    answers = {
        ids[info.name]: Answer({Sign(fault.name): as_json(fault.reason) for fault in info.faults}, {None})
        for info in infos
        if info.name in ids
    }
    return judge(cluster, OF_NODES, answers, now=now) + judge(cluster, OF_CARDS, _of_cards(cluster), now=now)


def _of_cards(cluster: Cluster) -> dict[int, Answer]:
    """Answers for nodes with a card that is unhealthy, or was not long ago.
    On Kubernetes a card counts again as soon as its device plugin offers it: the plugin decides which card a pod gets, so
    holding one back in the portal would not keep pods off it.
    """
    seen: dict[int, dict[Sign, Reason]] = defaultdict(dict)
    cards = Card.objects.filter(healthy=False, pool__isnull=False, node__cluster=cluster)
    for node, index in cards.values_list("node", "index"):
        seen[node][Sign(f"{OF_CARDS}/unhealthy", index)] = as_json(UNHEALTHY)
    places: dict[int, set[int | None]] = defaultdict(set)
    live = Quarantine.objects.filter(node__cluster=cluster, sign__startswith=f"{OF_CARDS}/", sign_over_at=None)
    for node, card in live.values_list("node", "card"):
        places[node].add(card)
    concerned = Node.objects.filter(pk__in=seen.keys() | places.keys(), present=True, drained=False, held_back="")
    away = AWAY if cluster.kind == ClusterKind.EMBEDDED else dt.timedelta()
    return {
        node: Answer(seen[node], places[node] | {sign.card for sign in seen[node]}, away)
        for node in concerned.values_list("pk", flat=True)
    }

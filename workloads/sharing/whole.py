"""Whole cards through NVIDIA's device plugin: one unit is one physical card.

| | |
|---|---|
| recognised by | `nvidia.com/gpu` in its capacity, and no label or resource of a system that divides cards |
| asked for by | `limits: {nvidia.com/gpu: N}`; the product by the label `nvidia.com/gpu.product`, never by a |
| | resource |
| unit | card |
| isolation | full: one tenant a card |
| doubt | labels with fewer cards (several products, or slices) or with several replicas: the node is held back |
| errors | fewer allocatable cards than capacity: a card is lost, and the node does not show which one; the plugin |
| | offers it again only after a restart. `UnexpectedAdmissionError` by the kubelet: the attempt is lost and |
| | tried again elsewhere |
| never | on a time-sliced or MPS node, whose resource has the same name: the pod excludes such nodes |
| read back | `allocatedResourcesStatus` of the container (Kubernetes 1.36); in it `NVIDIA_VISIBLE_DEVICES` |
| source | NVIDIA/k8s-device-plugin README, internal/plugin/server.go; labels from its gpu-feature-discovery |
"""

from __future__ import annotations

from workloads.runtime.base import CardInfo, NodeInfo
from workloads.sharing.api import FULL, N_, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import Facts, allocated_devices, card_memory, entry, even_cards, of_product, plugin_down

RESOURCE, STRATEGY = "nvidia.com/gpu", "nvidia.com/gpu.sharing-strategy"
COUNT, REPLICAS = "nvidia.com/gpu.count", "nvidia.com/gpu.replicas"
# Also true if a node has no such label.
NOT_SHARED = {"key": STRATEGY, "operator": "NotIn", "values": ["time-slicing", "mps"]}

ABOUT = About(
    key="whole",
    order=900,
    title=N_("Whole cards"),
    unit="card",
    gives=N_("One or more whole cards with all of their memory and compute, for your exclusive use."),
    risks=N_("If a card fails, the workload restarts elsewhere from its last checkpoint."),
    isolation=N_("Full: the card is used by nobody else."),
    memory=FULL,
    compute=FULL,
    faults=FULL,
    several=True,
    peers=True,
)


def applies(node: Facts) -> Note | None:
    if node.capacity(RESOURCE):
        return Note(N_("it advertises %(resource)s"), {"resource": RESOURCE})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    total, usable = node.capacity(RESOURCE), node.allocatable(RESOURCE)
    return entry(
        node,
        ABOUT,
        product=node.product,
        cards=cards(node, total, usable),
        because=Note(N_("it advertises %(count)s of %(resource)s, not shared"), {"count": total, "resource": RESOURCE}),
        held_back=_doubt(node, total) or (None if usable else plugin_down(total)),
    )


def _doubt(node: Facts, total: int) -> Note | None:
    """Why the node is held back if its labels contradict whole cards of one product: to allocate what may be a part of a card
    is worse than to hold a node back."""
    count, replicas = node.number(COUNT), node.number(REPLICAS)
    if replicas > 1:
        return Note(N_("its %(label)s is %(value)s: its cards may be shared"), {"label": REPLICAS, "value": replicas})
    if 0 < count < total:
        numbers = {"total": total, "resource": RESOURCE, "label": COUNT, "count": count}
        message = N_("%(total)s of %(resource)s, but its %(label)s is %(count)s: cards of several products, or shared")
        return Note(message, numbers)
    return None


def cards(node: Facts, total: int, usable: int) -> tuple[CardInfo, ...]:
    return even_cards(node, total, 1, usable, memory_mib=card_memory(node))


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT))


def manifest(request: Request, settings: Settings) -> PodPatch:
    return PodPatch(limits={RESOURCE: str(request.units)}, node_selector=of_product(request), node_rules=(NOT_SHARED,))


def read_back(pod: Json) -> tuple[Held, ...]:
    return allocated_devices(pod)

"""Whole cards through NVIDIA's device plugin: the resource nvidia.com/gpu, one unit is one physical card.

Source: NVIDIA/k8s-device-plugin README and internal/plugin/server.go; labels from its gpu-feature-discovery.
An unhealthy device leaves `capacity` as it was and lowers `allocatable`; which one it is, the node does not say.
"""

from __future__ import annotations

from workloads.clusters.base import CardInfo, NodeInfo
from workloads.sharing import api
from workloads.sharing.api import Json, PodPatch, Problem, Request, Settings

RESOURCE = "nvidia.com/gpu"


def discover(node: Json, settings: Settings) -> NodeInfo:
    capacity, allocatable = api.amount(node, RESOURCE, "capacity"), api.amount(node, RESOURCE)
    labels = api.labels_of(node)
    host = api.host(node)
    if not allocatable:
        host["held_back"] = host["held_back"] or f"its device plugin offers none of {capacity} cards"
    return NodeInfo(
        sharing="whole",
        product=labels.get("nvidia.com/gpu.product", ""),
        unit="card",
        units_per_card=1,
        cards=tuple(CardInfo(index=i, units=1, healthy=i < allocatable) for i in range(capacity)),
        because=f"{RESOURCE}: {capacity}, not shared",
        **host,
    )


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return api.reserved_env(request)


def manifest(request: Request, settings: Settings) -> PodPatch:
    """The product is a label, never a resource. Time-sliced nodes, which may offer the same resource, are told apart
    by it too: there it ends in -SHARED."""
    selector = {"nvidia.com/gpu.product": request.product} if request.product else {}
    return PodPatch(limits={RESOURCE: str(request.units)}, node_selector=selector)


def read_back(pod: Json) -> tuple[str, ...]:
    return api.allocated_devices(pod)

"""GPU sharing systems, one module each: how it is discovered on nodes, asked for by pods, validated and read back.

The mode is a property of the node, derived from its labels and resource names in a fixed order, never from its name.
A node that offers GPUs in a way no module here serves is kept in the inventory and held back, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from workloads.clusters.base import NodeInfo
from workloads.sharing import api, memory, mig, whole
from workloads.sharing.api import Json, PodPatch, Problem, Request, Settings, System

__all__ = ["SYSTEMS", "NodeInfo", "PodPatch", "Problem", "Request", "Settings", "System", "discover"]

SYSTEMS: dict[str, System] = {"whole": whole, "mig": mig, "memory": memory}


def _shares_by_count(node: Json) -> bool:
    strategy = api.labels_of(node).get("nvidia.com/gpu.sharing-strategy")
    return api.amount(node, "nvidia.com/gpu.shared", "capacity") > 0 or strategy in ("time-slicing", "mps")


def _has(*resources: str) -> Callable[[Json], bool]:
    return lambda node: any(api.amount(node, resource, "capacity") for resource in resources)


def _is_mig(node: Json) -> bool:
    labels = api.labels_of(node)
    if "-MIG-" in labels.get("nvidia.com/gpu.product", ""):
        return True
    if any(key.startswith(mig.PREFIX) and int(n) for key, n in (node["status"].get("capacity") or {}).items()):
        return True
    # being cut right now: its resources read 0 until it is done
    return labels.get("nvidia.com/mig.config.state", "success") != "success"


def _is_ack(node: Json) -> bool:
    return "ack.node.gpu.schedule" in api.labels_of(node) or _has("aliyun.com/gpu-core.percentage")(node)


def _is_virtual(node: Json) -> bool:
    return api.labels_of(node).get("nvidia.com/gpu.workload.config", "container") != "container"


# The order matters: a node of an earlier kind may bear a later mark too. A name outside SYSTEMS is not served.
DERIVATION: tuple[tuple[Callable[[Json], bool], str], ...] = (
    (_is_virtual, "vGPU or passthrough, which serves virtual machines"),
    (_is_mig, "mig"),
    (_is_ack, "Aliyun ACK cGPU"),
    (_has("aliyun.com/gpu-mem"), "memory"),
    (lambda node: "hami.io/node-nvidia-register" in api.notes_of(node), "HAMi"),
    (_has("tencent.com/vcuda-core"), "Tencent gpu-manager"),
    (_has("tke.cloud.tencent.com/qgpu-core"), "Tencent qGPU"),
    (_has("volcano.sh/vgpu-number"), "Volcano vGPU"),
    (_has("volcano.sh/gpu-memory"), "Volcano GPU share"),
    (lambda node: api.labels_of(node).get("SharedGPU") == "true", "KubeShare"),
    (_shares_by_count, "NVIDIA time-slicing or MPS"),
    (_has("nvidia.com/gpu"), "whole"),
    (
        lambda node: api.labels_of(node).get("nvidia.com/gpu.present") == "true",
        "no nvidia.com/gpu although a GPU is present: its device plugin is not ready, or it is served by DRA",
    ),
)


def discover(node: Json, settings: Settings | None = None) -> NodeInfo | None:
    """A node of the Kubernetes API as an entry of the inventory; None if it shows no sign of a GPU."""
    for applies, kind in DERIVATION:
        if applies(node):
            if kind in SYSTEMS:
                return SYSTEMS[kind].discover(node, settings or Settings())
            return _not_served(node, kind)
    return None


def _not_served(node: Json, system: str) -> NodeInfo:
    host = api.host(node) | {"held_back": f"not served yet: {system}"}
    product = api.labels_of(node).get("nvidia.com/gpu.product", "")
    return NodeInfo(sharing="", product=product, unit="card", units_per_card=1, cards=(), because=system, **host)

"""NVIDIA vGPU: virtual machines that are workers here, and nodes that give their GPUs to virtual machines.

| | |
|---|---|
| recognised by | guest: label `nvidia.com/vgpu.present=true`; host: `nvidia.com/gpu.workload.config` vm-vgpu or |
| | vm-passthrough, or a resource named after a device, such as `nvidia.com/NVIDIA_A10-12Q` |
| asked for by | guest: `limits: {nvidia.com/gpu: N}` and the product label. A host offers nothing to pods and is not |
| | used |
| unit | card: one virtual GPU, with the memory of its type |
| isolation | memory fixed for each vGPU, compute by slices of time or MIG, faults isolated by the virtual machine |
| errors | a guest without a licence is throttled |
| read back | `allocatedResourcesStatus` of the container (Kubernetes 1.36) |
| source | NVIDIA/cloud-native-docs gpu-operator/gpu-operator-kubevirt.rst; NVIDIA/k8s-device-plugin internal/lm |
"""

from __future__ import annotations

import re

from workloads.runtime.base import NodeInfo
from workloads.sharing import whole
from workloads.sharing.api import FULL, N_, SOFT, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import Facts, allocated_devices, entry, plugin_down

GUEST, HOST = "nvidia.com/vgpu.present", "nvidia.com/gpu.workload.config"
DEVICE = re.compile(r"nvidia\.com/[A-Z].*")  # NVIDIA_A10-12Q, GA102GL_A10; resources for containers are in lowercase

ABOUT = About(
    key="vgpu",
    order=50,
    title=N_("Virtual GPUs"),
    unit="card",
    gives=N_("A virtual GPU with fixed memory, in a virtual machine that is a node of this cluster."),
    risks=N_("Compute is shared with the other virtual machines on the card; without a licence it is throttled."),
    isolation=N_("Memory is fixed; faults stay within the virtual machine; compute is time-sliced or divided by MIG."),
    memory=FULL,
    compute=SOFT,
    faults=FULL,
    several=True,
    beside=frozenset({"whole"}),
)


def _host(node: Facts) -> str:
    """What the node's GPUs serve instead of pods: its configuration, or the resource for virtual machines that it advertises; ""
    if they serve pods."""
    config = node.labels.get(HOST, "container")
    if config == "container":
        config = next((name for name in node.offered("nvidia.com/") if DEVICE.fullmatch(name)), "")
    return config[:60]


def applies(node: Facts) -> Note | None:
    if (config := _host(node)).startswith("nvidia.com/"):
        return Note(N_("it advertises %(resource)s"), {"resource": config})
    if config:
        return Note(N_("its %(label)s is %(value)s"), {"label": HOST, "value": config})
    if node.labels.get(GUEST) == "true":
        return Note(N_("its %(label)s is %(value)s"), {"label": GUEST, "value": "true"})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    because = applies(node) or Note(N_("pinned by an operator"))
    if config := _host(node):
        held = Note(N_("not used: its GPUs serve virtual machines (%(config)s)"), {"config": config})
        product = node.labels.get("nvidia.com/vgpu.config", "")[:100]
        return entry(node, ABOUT, product=product, because=because, held_back=held)
    total, usable = node.capacity(whole.RESOURCE), node.allocatable(whole.RESOURCE)
    return entry(
        node,
        ABOUT,
        product=node.product,
        cards=whole.cards(node, total, usable),
        because=because,
        held_back=None if usable else plugin_down(total),
    )


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT))


def manifest(request: Request, settings: Settings) -> PodPatch:
    return whole.manifest(request, settings)


def read_back(pod: Json) -> tuple[Held, ...]:
    return allocated_devices(pod)

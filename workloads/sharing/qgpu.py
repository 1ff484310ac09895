"""TKE qGPU: memory and compute of a card, kept apart by Tencent's driver; one unit is one MiB.

| | |
|---|---|
| recognised by | `tke.cloud.tencent.com/qgpu-core` in its capacity |
| asked for by | `limits: {tke.cloud.tencent.com/qgpu-core: %, tke.cloud.tencent.com/qgpu-memory: GiB}`; 100 for |
| | each whole card |
| unit | MiB in whole GiB, and percent of a card's compute in steps of 5 |
| cards | qgpu-core / 100; memory of a card: an equal part of qgpu-memory (both are inferred: the product is |
| | closed) |
| isolation | memory and compute, by the driver; faults are not isolated |
| limits | 16 pods a card |
| errors | as with every device plugin: the kubelet refuses the pod and the attempt is tried elsewhere |
| read back | `allocatedResourcesStatus` of the container (Kubernetes 1.36) |
| source | Tencent Cloud's documentation 457/59103 and 457/127667; elastic-ai/elastic-gpu types.go |
"""

from __future__ import annotations

from workloads.runtime.base import NodeInfo
from workloads.sharing import vcuda
from workloads.sharing.api import FULL, N_, NONE, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import Facts, allocated_devices

CORES, MEMORY = "tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory"
BLOCK = 1024  # MiB in one qgpu-memory

ABOUT = About(
    key="qgpu",
    order=330,
    title=N_("Shared memory and compute (TKE qGPU)"),
    unit="MiB",
    gives=N_("Part of a card's memory and a percentage of its compute, both limited by the driver."),
    risks=N_("At most 16 pods per card; a fatal fault of a neighbour may also end your program."),
    isolation=N_("Memory and compute are isolated by the driver; faults are not."),
    memory=FULL,
    compute=FULL,
    faults=NONE,
    cores="must",
    step=BLOCK,
    cores_step=5,
    several=True,
)


def applies(node: Facts) -> Note | None:
    if node.capacity(CORES):
        return Note(N_("it advertises %(resource)s"), {"resource": CORES})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    return vcuda.of_cores_and_memory(node, ABOUT, CORES, MEMORY, BLOCK)


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT))


def manifest(request: Request, settings: Settings) -> PodPatch:
    cores = (request.cores or 0) * request.cards
    return PodPatch(limits={CORES: str(cores), MEMORY: str(request.units // BLOCK)})


def read_back(pod: Json) -> tuple[Held, ...]:
    return allocated_devices(pod)

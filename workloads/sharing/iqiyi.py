"""iQIYI's vGPU: Aliyun's gpushare scheduling with a preloaded library that keeps a limit; one unit is one MiB.

| | |
|---|---|
| recognised by | no label or resource on the node: an operator pins it (option `pins`: "iqiyi"); then, as with gpushare, |
| | `aliyun.com/gpu-mem` |
| asked for by | `limits: {aliyun.com/gpu-mem: N}` in GiB or MiB, as with gpushare (the name of the resource is |
| | uncertain) |
| unit | MiB |
| isolation | soft: the library refuses allocations above the share and delays kernels; faults are not isolated |
| reserved | `LD_PRELOAD`, which would replace the library, and `ALIYUN_COM_GPU_*`, from which the library reads the |
| | limit |
| errors | as with gpushare; a program linked statically to CUDA is not limited |
| read back | annotation `ALIYUN_COM_GPU_MEM_IDX` |
| source | articles by iQIYI's engineers; no public repository: to be checked on the cluster that runs it |
"""

from __future__ import annotations

from workloads.runtime.base import NodeInfo
from workloads.sharing import memory
from workloads.sharing.api import N_, NONE, SOFT, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import Facts

ABOUT = About(
    key="iqiyi",
    order=305,
    title=N_("Shared memory with a soft limit (iQIYI vGPU)"),
    unit="MiB",
    gives=N_("Part of a card's memory, limited by a library; compute is shared."),
    risks=N_(
        "A program that does not load the library is not limited; a fatal fault of a neighbour may "
        "also end your program."
    ),
    isolation=N_("Memory and compute are limited by a library; faults are not isolated."),
    memory=SOFT,
    compute=SOFT,
    faults=NONE,
    step=1024,
    beside=frozenset({"memory"}),
    reserved=frozenset({"ALIYUN_COM_GPU_*"}),
)


def applies(node: Facts) -> Note | None:
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    return memory.of_memory(node, ABOUT, settings)


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT, step=settings.gpu_mem_mib))


def manifest(request: Request, settings: Settings) -> PodPatch:
    return memory.manifest(request, settings)


def read_back(pod: Json) -> tuple[Held, ...]:
    return memory.read_back(pod)

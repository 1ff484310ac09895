"""Memory of a card, shared by Aliyun's open-source gpushare; one unit is one MiB.

| | |
|---|---|
| recognised by | `aliyun.com/gpu-mem` in its capacity, or the label `gpushare=true`, and no label or resource of ACK |
| asked for by | `limits: {aliyun.com/gpu-mem: N}` in GiB, or MiB where the plugin has --memory-unit=MiB (option |
| | `gpu_mem_unit`) |
| unit | MiB; a card has floor(MiB of the first card / 1024) GiB, all cards are assumed to be alike; a pod must |
| | fit one card |
| isolation | none: the system only counts |
| errors | the container does not start: `no-gpu-has-XMiB-to-run` (extender absent, or a race): the attempt is |
| | tried again elsewhere |
| scheduler | its extender is part of the default scheduler, so pods name no scheduler |
| read back | annotation `ALIYUN_COM_GPU_MEM_IDX` (card), `_POD` (amount) |
| source | AliyunContainerService/gpushare-scheduler-extender docs/{install,userguide}.md, pkg/utils; |
| | gpushare-device-plugin |
"""

from __future__ import annotations

from workloads.runtime.base import NodeInfo
from workloads.sharing.api import N_, NONE, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import Facts, notes_of, of_even_memory, of_product

RESOURCE, COUNT, MARK = "aliyun.com/gpu-mem", "aliyun.com/gpu-count", "gpushare"
CARD_OF_POD, AMOUNT_OF_POD = "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD"

ABOUT = About(
    key="memory",
    order=300,
    title=N_("Shared memory (Aliyun gpushare)"),
    unit="MiB",
    gives=N_("Part of a card's memory; compute is shared with other programs on the card."),
    risks=N_("Shares are not enforced: a neighbour that uses more memory can make your program run out of memory."),
    isolation=N_("None: amounts are only counted. Set the memory limit of your framework."),
    memory=NONE,
    compute=NONE,
    faults=NONE,
    step=1024,
)


def applies(node: Facts) -> Note | None:
    if node.capacity(RESOURCE):
        return Note(N_("it advertises %(resource)s"), {"resource": RESOURCE})
    if node.labels.get(MARK) == "true":
        return Note(N_("its %(label)s is %(value)s"), {"label": MARK, "value": "true"})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    return of_memory(node, ABOUT, settings)


def of_memory(
    node: Facts, about: About, settings: Settings, *, cores: int | None = None, held_back: Note | None = None
) -> NodeInfo:
    """A node that advertises memory and a number of cards in Aliyun's resources, whichever system enforces it."""
    return of_even_memory(
        node, about, RESOURCE, COUNT, mib=settings.gpu_mem_mib, unit=settings.gpu_mem_unit, option="gpu_mem_unit",
        cores=cores, held_back=held_back,
    )  # fmt: skip


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT, step=settings.gpu_mem_mib))


def manifest(request: Request, settings: Settings) -> PodPatch:
    return PodPatch(limits=memory_limit(request, settings), node_selector=of_product(request))


def memory_limit(request: Request, settings: Settings) -> dict[str, str]:
    return {RESOURCE: str(-(-request.units // settings.gpu_mem_mib))}


def read_back(pod: Json) -> tuple[Held, ...]:
    """Only the card: the unit of the amount is not in the annotation."""
    index = notes_of(pod).get(CARD_OF_POD, "")
    return (Held(index),) if index.isdigit() else ()

"""Volcano's classic GPU sharing: memory of a card, only counted; one unit is one MiB.

| | |
|---|---|
| recognised by | `volcano.sh/gpu-memory` in its capacity |
| asked for by | `limits: {volcano.sh/gpu-memory: N}`, N × --gpu-memory-factor MiB (option |
| | `volcano_memory_factor`), scheduler volcano |
| unit | MiB; one card a pod |
| cards | `volcano.sh/gpu-number`, each with an equal part of gpu-memory |
| isolation | none: the system only counts |
| errors | more than about 60 000 units of memory on a node do not fit the kubelet's message; set the factor |
| read back | annotation `volcano.sh/gpu-index` |
| source | volcano-sh/volcano docs/user-guide/how_to_use_gpu_sharing.md, pkg/scheduler/plugins/deviceshare; |
| | deprecated since 1.9 |
"""

from __future__ import annotations

from dataclasses import replace

from workloads.runtime.base import NodeInfo
from workloads.sharing import memory
from workloads.sharing.api import N_, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import Facts, notes_of, of_even_memory

RESOURCE, COUNT, INDEX = "volcano.sh/gpu-memory", "volcano.sh/gpu-number", "volcano.sh/gpu-index"
SCHEDULER = "volcano"

ABOUT = replace(
    memory.ABOUT,
    key="volcano",
    order=350,
    title=N_("Shared memory (Volcano)"),
    step=1,
    beside=frozenset({"volcano-number"}),
)


def applies(node: Facts) -> Note | None:
    if node.capacity(RESOURCE):
        return Note(N_("it advertises %(resource)s"), {"resource": RESOURCE})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    factor = settings.volcano_memory_factor
    return of_even_memory(node, ABOUT, RESOURCE, COUNT, mib=factor, option="volcano_memory_factor")


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT, step=settings.volcano_memory_factor))


def manifest(request: Request, settings: Settings) -> PodPatch:
    return PodPatch(limits={RESOURCE: str(-(-request.units // settings.volcano_memory_factor))}, scheduler=SCHEDULER)


def read_back(pod: Json) -> tuple[Held, ...]:
    return indexes(pod)


def indexes(pod: Json) -> tuple[Held, ...]:
    return tuple(Held(index) for index in notes_of(pod).get(INDEX, "").split(",") if index.strip().isdecimal())

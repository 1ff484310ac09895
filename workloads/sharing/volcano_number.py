"""Volcano's classic whole cards (device plugin with --gpu-strategy=number): one unit is one card.

| | |
|---|---|
| recognised by | `volcano.sh/gpu-number` in its capacity without `volcano.sh/gpu-memory` |
| asked for by | `limits: {volcano.sh/gpu-number: N}`, scheduler volcano |
| unit | card |
| isolation | full: one tenant a card |
| errors | as with every device plugin: the kubelet refuses the pod and the attempt is tried elsewhere |
| read back | annotation `volcano.sh/gpu-index` |
| source | volcano-sh/volcano docs/user-guide/how_to_use_gpu_number.md, pkg/scheduler/plugins/deviceshare; |
| | deprecated since 1.9 |
"""

from __future__ import annotations

from dataclasses import replace

from workloads.runtime.base import NodeInfo
from workloads.sharing import volcano, whole
from workloads.sharing.api import N_, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import Facts, card_memory, entry, even_cards, plugin_down

ABOUT = replace(whole.ABOUT, key="volcano-number", order=360, title=N_("Whole cards (Volcano)"))


def applies(node: Facts) -> Note | None:
    if node.capacity(volcano.COUNT) and not node.capacity(volcano.RESOURCE):
        return Note(N_("it advertises %(resource)s"), {"resource": volcano.COUNT})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    total, usable = node.capacity(volcano.COUNT), node.allocatable(volcano.COUNT)
    return entry(
        node,
        ABOUT,
        product=node.product,
        cards=even_cards(node, total, 1, usable, memory_mib=card_memory(node)),
        because=applies(node) or Note(N_("pinned by an operator")),
        held_back=None if usable else plugin_down(total),
    )


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT))


def manifest(request: Request, settings: Settings) -> PodPatch:
    return PodPatch(limits={volcano.COUNT: str(request.units)}, scheduler=volcano.SCHEDULER)


def read_back(pod: Json) -> tuple[Held, ...]:
    return volcano.indexes(pod)

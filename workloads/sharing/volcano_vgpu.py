"""Volcano vGPU (HAMi's library under Volcano's scheduler): memory and compute of a card; one unit is one MiB.

| | |
|---|---|
| recognised by | `volcano.sh/vgpu-number` in its capacity |
| asked for by | `limits: {volcano.sh/vgpu-number: cards, vgpu-memory: of each, vgpu-cores: % of each}`, scheduler |
| | volcano; memory is |
| | N × --gpu-memory-factor MiB (option `volcano_memory_factor`) |
| unit | MiB, and percent of a card's compute; with 100 % one pod has the card alone |
| cards | those of the node annotation `volcano.sh/node-vgpu-register`: `UUID,count,MiB,type,health,mode:` for |
| | each; vgpu-number advertises each card ten times |
| isolation | by a preloaded library: a hard limit of memory for CUDA calls, compute throttled; faults are not |
| | isolated |
| reserved | `CUDA_DISABLE_CONTROL`, `LD_PRELOAD` and the library's own variables |
| errors | vgpu-memory is 0: more than about 60 000 units do not fit the kubelet's message; set the factor |
| read back | annotation `volcano.sh/vgpu-ids-new`: `UUID,NVIDIA,MiB,cores:` |
| source | volcano-sh/volcano docs/user-guide/how_to_use_volcano_vgpu.md; Project-HAMi/volcano-vgpu-device-plugin |
| | README, util.go |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from workloads.runtime.base import CardInfo, NodeInfo
from workloads.sharing import hami, volcano
from workloads.sharing.api import N_, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import LARGEST, MOST_CARDS, Facts, entry, notes_of, plugin_down, spelled

NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
REGISTER, MODE, ALLOCATED = "volcano.sh/node-vgpu-register", "volcano.sh/vgpu-mode", "volcano.sh/vgpu-ids-new"

ABOUT = replace(
    hami.ABOUT, key="volcano-vgpu", order=340, title=N_("Shared memory and compute (Volcano vGPU)"), beside=frozenset()
)


def applies(node: Facts) -> Note | None:
    if node.capacity(NUMBER):
        return Note(N_("it advertises %(resource)s"), {"resource": NUMBER})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    registered = list(_registered(node))
    cards = tuple(card for _, card in registered)
    products = sorted({product for product, _ in registered})
    held = None
    if not cards:
        held = Note(N_("%(name)s lists no card"), {"name": REGISTER})
    elif len(products) > 1:
        held = Note(N_("it has cards of different products: %(products)s"), {"products": ", ".join(products)[:120]})
    elif not node.allocatable(NUMBER):
        held = plugin_down(len(cards))
    elif not node.capacity(CORES):
        held = Note(N_("%(resource)s is missing"), {"resource": CORES})
    elif not node.allocatable(MEMORY):
        held = Note(N_("%(resource)s reads 0: its plugin needs a larger memory factor"), {"resource": MEMORY})
    return entry(
        node,
        ABOUT,
        product=products[0] if products else node.product,
        units_per_card=max((card.units for card in cards), default=1),
        cards=cards,
        because=Note(N_("its annotation %(name)s: %(cards)s cards"), {"name": REGISTER, "cards": len(cards)}),
        held_back=held,
    )


def _registered(node: Facts) -> Iterator[tuple[str, CardInfo]]:
    """(product, card) of each entry, numbered in their order."""
    parts = [part for part in node.notes.get(REGISTER, "").split(":") if part]
    if len(parts) > MOST_CARDS:
        node.fault(N_("it reports %(count)s cards"), count=len(parts))
        return
    for index, part in enumerate(parts):
        fields = [field.strip() for field in part.split(",")]
        memory = int(fields[2]) if len(fields) >= 5 and fields[2].isdecimal() and len(fields[2]) <= 10 else 0
        if not 0 < memory <= LARGEST:
            node.fault(N_("%(name)s lists a card that does not exist"), name=REGISTER)
            continue
        if fields[5:] == ["mig"]:
            node.fault(N_("its cards are partitioned on demand, which is not supported"))
        yield (
            spelled(fields[3]),
            CardInfo(index, memory, cores=100, uuid=fields[0][:80], healthy=fields[4] == "true", memory_mib=memory),
        )


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT, step=settings.volcano_memory_factor))


def manifest(request: Request, settings: Settings) -> PodPatch:
    memory = request.units // request.cards // settings.volcano_memory_factor
    limits = {NUMBER: str(request.cards), MEMORY: str(memory)}
    if request.cores is not None:
        limits[CORES] = str(request.cores)
    return PodPatch(limits=limits, annotations={MODE: "hami-core"}, scheduler=volcano.SCHEDULER)


def read_back(pod: Json) -> tuple[Held, ...]:
    return tuple(hami.parsed(notes_of(pod).get(ALLOCATED, "")))

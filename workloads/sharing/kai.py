"""Fractions of cards under the KAI scheduler (and Run:ai, which it comes from); one unit is one percent of a card.

| | |
|---|---|
| recognised by | no label or resource on the node: an operator pins it (option `pins`: "kai"); the labels |
| | `nvidia.com/gpu.memory` and `gpu.count`, which KAI needs, must be there |
| asked for by | annotation `gpu-fraction` (a decimal below 1) and no `nvidia.com/gpu` limit; whole cards by that |
| | limit; both with |
| | the label `kai.scheduler/queue` (option `kai_queue`), scheduler kai-scheduler |
| unit | percent; 100 and its multiples are whole cards |
| isolation | none: neither memory nor compute is limited |
| cards | `nvidia.com/gpu`; a shared card is held by a reservation pod in kai-resource-reservation, which is no |
| | workload and is not counted; the use of its tenants is counted |
| reserved | `RUNAI_*`, `GPU_PORTION`: the binder's variables about the share |
| errors | a fraction together with a limit is denied; sharing is off unless KAI has global.gpuSharing=true |
| read back | label `runai-gpu-group`: pods of one group are on one card; whole cards: `allocatedResourcesStatus` |
| source | NVIDIA/KAI-Scheduler docs/gpu-sharing, docs/queues, pkg/common/constants, pkg/scheduler/api/node_info |
"""

from __future__ import annotations

from workloads.runtime.base import NodeInfo
from workloads.sharing import kubeshare, whole
from workloads.sharing.api import N_, NONE, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import (
    Facts,
    allocated_devices,
    card_memory,
    entry,
    even_cards,
    mapping,
    notes_of,
    of_product,
    plugin_down,
    texts,
)

FRACTION, QUEUE, GROUP = "gpu-fraction", "kai.scheduler/queue", "runai-gpu-group"
MEMORY, DEVICES = (
    "gpu-memory",
    "gpu-fraction-num-devices",
)  # annotations: MiB instead of a fraction; on how many cards

ABOUT = About(
    key="kai",
    order=800,
    title=N_("Shares of a card (KAI)"),
    unit="percent",
    gives=N_("A percentage of a card, or whole cards."),
    risks=N_("Shares are not enforced: a neighbour that uses more memory can make your program run out of memory."),
    isolation=N_("None: amounts are only counted. Set the memory limit of your framework."),
    memory=NONE,
    compute=NONE,
    faults=NONE,
    several=True,
    beside=frozenset({"whole"}),
    reserved=frozenset({"RUNAI_*", "GPU_PORTION"}),
)


def applies(node: Facts) -> Note | None:
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    total, usable = node.capacity(whole.RESOURCE), node.allocatable(whole.RESOURCE)
    held = None
    if not (node.number("nvidia.com/gpu.memory") and node.number("nvidia.com/gpu.count")):
        held = Note(N_("KAI needs the labels %(labels)s"), {"labels": "nvidia.com/gpu.memory, nvidia.com/gpu.count"})
    elif not usable:
        held = plugin_down(total)
    return entry(
        node,
        ABOUT,
        product=node.product,
        units_per_card=100,
        cards=even_cards(node, total, 100, usable * 100, memory_mib=card_memory(node)),
        because=Note(N_("pinned by an operator")),
        held_back=held,
    )


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT))


def manifest(request: Request, settings: Settings) -> PodPatch:
    labels = {QUEUE: settings.kai_queue.replace("{department}", request.department)}
    if request.units % 100 == 0:
        limits = {whole.RESOURCE: str(request.units // 100)}
        return PodPatch(limits=limits, node_selector=of_product(request), labels=labels, scheduler="kai-scheduler")
    notes = {FRACTION: kubeshare.share(request.units)}
    return PodPatch(annotations=notes, node_selector=of_product(request), labels=labels, scheduler="kai-scheduler")


def is_reservation(pod: Json) -> bool:
    """Whether this is the pod that reserves a shared card for its tenants: it has their group, but no share of its own."""
    notes, labels = notes_of(pod), texts(mapping(pod.get("metadata")).get("labels"))
    grouped = any(name == GROUP or name.startswith(f"{GROUP}/") for name in labels)
    return grouped and FRACTION not in notes and MEMORY not in notes


def read_back(pod: Json) -> tuple[Held, ...]:
    group = texts(mapping(pod.get("metadata")).get("labels")).get(GROUP)
    return (Held(group),) if group else allocated_devices(pod)

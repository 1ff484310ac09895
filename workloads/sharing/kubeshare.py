"""KubeShare 2: a percentage of a card, asked for by labels; one unit is one percent of a card.

| | |
|---|---|
| recognised by | label `SharedGPU=true` |
| asked for by | labels `sharedgpu/gpu_request` and `sharedgpu/gpu_limit` (both, shares of a card as decimals; from 1.0 |
| | on, both the same whole number), scheduler kubeshare-scheduler |
| unit | percent |
| cards | not on the node (they are in Prometheus and a ConfigMap): the label `nvidia.com/gpu.count`, or option |
| | `cards` |
| isolation | by the Gemini library: turns for compute, a cap for memory; faults are not isolated |
| reserved | `LD_PRELOAD`, which loads the library, and `POD_MANAGER_*`, the address at which it requests its turn |
| errors | its scheduler deletes and recreates the pod: an attempt may be counted as lost and started again |
| read back | annotations `sharedgpu/gpu_uuid`, `sharedgpu/gpu_mem` (bytes) |
| source | NTHU-LSALAB/KubeShare README, doc/deploy.md, pkg/scheduler; unmaintained, tested by its authors with |
| | Kubernetes 1.18 |
"""

from __future__ import annotations

from workloads.runtime.base import NodeInfo
from workloads.sharing import timeslicing
from workloads.sharing.api import N_, NONE, SOFT, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import Facts, card_memory, entry, even_cards, notes_of

MARK = "SharedGPU"
PREFIX = "sharedgpu/"

ABOUT = About(
    key="kubeshare",
    order=370,
    title=N_("Shares of a card (KubeShare)"),
    unit="percent",
    gives=N_("A percentage of a card: time slices of its compute, and the same share of its memory."),
    risks=N_("Limits are enforced by a library that a program can bypass; the project is no longer maintained."),
    isolation=N_("Memory and compute are limited by a library; faults are not isolated."),
    memory=SOFT,
    compute=SOFT,
    faults=NONE,
    several=True,
    reserved=frozenset({"POD_MANAGER_*"}),
)


def applies(node: Facts) -> Note | None:
    if node.labels.get(MARK) == "true":
        return Note(N_("its %(label)s is %(value)s"), {"label": MARK, "value": "true"})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    count = timeslicing.settings_cards(node, settings) or node.number("nvidia.com/gpu.count")
    held = None
    if not count:
        held = Note(N_("the node does not report its number of cards: set the cluster option “cards”"))
    return entry(
        node,
        ABOUT,
        product=node.product,
        units_per_card=100,
        cards=even_cards(node, count, 100, count * 100, memory_mib=card_memory(node)),
        because=applies(node) or Note(N_("pinned by an operator")),
        held_back=held,
    )


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT))


def share(percent: int) -> str:
    """50 → "0.5", 100 → "1.0", 200 → "2"."""
    return str(percent // 100) if percent > 100 else str(percent / 100)


def manifest(request: Request, settings: Settings) -> PodPatch:
    amount = share(request.units)
    labels = {f"{PREFIX}gpu_request": amount, f"{PREFIX}gpu_limit": amount, f"{PREFIX}priority": "1"}
    return PodPatch(labels=labels, scheduler="kubeshare-scheduler")


def read_back(pod: Json) -> tuple[Held, ...]:
    notes = notes_of(pod)
    memory = notes.get(f"{PREFIX}gpu_mem", "")
    mib = int(memory) // 2**20 if memory.isdecimal() and len(memory) < 20 else None
    uuids = [uuid for uuid in notes.get(f"{PREFIX}gpu_uuid", "").split(",") if uuid]
    return tuple(Held(uuid, mib if len(uuids) == 1 else None) for uuid in uuids)

"""Tencent's GaiaGPU (gpu-manager with vcuda): percent of a card's compute and its memory; one unit is one MiB.

| | |
|---|---|
| recognised by | `tencent.com/vcuda-core` in its capacity, or the label `nvidia-device-enable=enable` |
| asked for by | `limits: {tencent.com/vcuda-core: %, tencent.com/vcuda-memory: N × 256 MiB}`, both are required, or the |
| | kubelet refuses the pod; whole cards are 100 each; annotation `tencent.com/vcuda-core-limit`: compute |
| | that it may use while others are idle |
| unit | MiB in steps of 256, and percent of a card's compute: 1 to 99, or 100 for each whole card |
| cards | vcuda-core / 100; memory of a card: an equal part of vcuda-memory |
| isolation | by a library in place of libcuda: a hard limit of memory, a quota of compute; works up to CUDA 11.5; |
| | faults are not isolated |
| errors | `UnexpectedAdmissionError … candidate pod not found`, `Nvidia node mismatch`: the attempt is tried again |
| | elsewhere |
| read back | annotation `tencent.com/predicate-gpu-idx-0`: the cards of the first container |
| source | tkestack/gpu-manager README, docs/faq.md, pkg/services/allocator/nvidia; tkestack/gpu-admission |
| | pkg/predicate |
"""

from __future__ import annotations

from workloads.runtime.base import NodeInfo
from workloads.sharing.api import N_, NONE, SOFT, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import Facts, entry, even_cards, notes_of, plugin_down

CORES, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
BLOCK = 256  # MiB in one vcuda-memory
MARK = "nvidia-device-enable"
ELASTIC, INDEX = "tencent.com/vcuda-core-limit", "tencent.com/predicate-gpu-idx-0"

ABOUT = About(
    key="vcuda",
    order=320,
    title=N_("Shared memory and compute (Tencent GaiaGPU)"),
    unit="MiB",
    gives=N_("Part of a card's memory and a percentage of its compute; whole cards from 100 percent."),
    risks=N_("Programs need CUDA 11.5 or older; a fatal fault of a neighbour may also end your program."),
    isolation=N_("Memory and compute are limited by a library; faults are not isolated."),
    memory=SOFT,
    compute=SOFT,
    faults=NONE,
    cores="must",
    step=BLOCK,
    several=True,
    extra={"core_limit": N_("Percentage of compute that it may use while others are idle")},
    reserved=frozenset({"VCUDA_*"}),
)


def applies(node: Facts) -> Note | None:
    if node.capacity(CORES):
        return Note(N_("it advertises %(resource)s"), {"resource": CORES})
    if node.labels.get(MARK) == "enable":
        return Note(N_("its %(label)s is %(value)s"), {"label": MARK, "value": "enable"})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    return of_cores_and_memory(node, ABOUT, CORES, MEMORY, BLOCK)


def of_cores_and_memory(node: Facts, about: About, cores: str, memory: str, block: int) -> NodeInfo:
    """A node that advertises 100 of `cores` for each card, and memory in blocks of so many MiB."""
    total, usable = node.capacity(cores), node.allocatable(cores)
    count = total // 100
    each = node.capacity(memory) // count * block if count else 0
    held = None
    if not total:
        held = Note(N_("its device plugin offers nothing"))
    elif not count or total % 100:
        held = Note(
            N_("%(amount)s of %(resource)s is not a whole number of cards"), {"amount": total, "resource": cores}
        )
    elif not each:
        held = Note(N_("%(resource)s is missing: the size of a card is unknown"), {"resource": memory})
    elif usable < 100 or node.allocatable(memory) * block < each:
        held = plugin_down(count)
    healthy = min(usable // 100, node.allocatable(memory) * block // each if each else 0)
    numbers = {"resource": cores, "amount": total, "cards": count, "memory": each}
    return entry(
        node,
        about,
        product=node.product,
        units_per_card=each,
        cards=even_cards(node, count, each, healthy * each, memory_mib=each, cores=100, measure=memory),
        because=Note(N_("it advertises %(amount)s of %(resource)s: %(cards)s cards of %(memory)s MiB"), numbers),
        held_back=held,
    )


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    problems = common(request, ABOUT)
    limit = request.extra.get("core_limit")
    least = request.cores or 1
    if limit is not None and not (limit.isdecimal() and least <= int(limit) <= 100):
        message = N_("The limit while others are idle is %(least)s to 100 percent, not %(asked)s.")
        problems.append(Problem("core_limit", "cores_out_of_range", message, {"least": least, "asked": limit[:20]}))
    return tuple(problems)


def manifest(request: Request, settings: Settings) -> PodPatch:
    """No node selector by product: it may come from Tencent's own label."""
    cores = (request.cores or 0) * request.cards
    notes = {ELASTIC: request.extra["core_limit"]} if "core_limit" in request.extra else {}
    return PodPatch(limits={CORES: str(cores), MEMORY: str(request.units // BLOCK)}, annotations=notes)


def read_back(pod: Json) -> tuple[Held, ...]:
    return tuple(Held(index) for index in notes_of(pod).get(INDEX, "").split(",") if index.isdecimal())

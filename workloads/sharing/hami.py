"""HAMi (and its ancestor, 4paradigm's k8s-vgpu-scheduler): memory and compute of a card, limited by a library.

| | |
|---|---|
| recognised by | node annotation `hami.io/node-nvidia-register` (JSON, before 2.8 fields separated by commas); without it |
| | label `gpu=on` and an `nvidia.com/gpu` that is not the number of its cards |
| asked for by | `limits: {nvidia.com/gpu: cards, nvidia.com/gpumem: MiB of each, nvidia.com/gpucores: % of each}` |
| unit | MiB, and percent of a card's compute; with 100 % one pod has the card alone, unless the card registers |
| | more than 100 (`devcore`): a share of compute is then charged as a share of that |
| cards | those of the annotation: `nvidia.com/gpu` advertises each card ten times (80 are 8 cards); memory and |
| | cores are not advertised |
| isolation | by a preloaded library: a hard limit of memory for CUDA calls, compute throttled with bursts; faults are |
| | not isolated |
| reserved | `CUDA_DISABLE_CONTROL`, `LD_PRELOAD` and the library's own variables, with which a program could escape |
| | its limits |
| scheduler | pods name hami-scheduler: otherwise a pod would start without limits while its webhook is down |
| errors | privileged pods are denied by its webhook; `node-handshake` Deleted: its plugin no longer reports |
| read back | annotation `hami.io/vgpu-devices-allocated`: `UUID,NVIDIA,MiB,cores:` for each card, `;` between |
| | containers |
| source | Project-HAMi/HAMi README, docs/develop/protocol.md, pkg/device/{devices,nvidia/device}.go, |
| | pkg/scheduler/webhook.go |
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from workloads.runtime.base import CardInfo, NodeInfo
from workloads.sharing import whole
from workloads.sharing.api import N_, NONE, SOFT, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import (
    LARGEST,
    MOST_CARDS,
    Facts,
    entry,
    listing,
    mapping,
    notes_of,
    plugin_down,
    spelled,
)

REGISTER, HANDSHAKE = "hami.io/node-nvidia-register", "hami.io/node-handshake"
MEMORY, CORES = "nvidia.com/gpumem", "nvidia.com/gpucores"
MOST_CORES = 100_000  # percent of compute that a card offers in all, if it is oversubscribed
ALLOCATED, MARK = "hami.io/vgpu-devices-allocated", "gpu"
OWN_VARIABLES = frozenset(
    {
        "CUDA_DEVICE_MEMORY_*", "CUDA_DEVICE_SM_LIMIT*", "CUDA_OVERSUBSCRIBE", "GPU_CORE_UTILIZATION_POLICY",
        "CUDA_TASK_PRIORITY", "ACTIVE_OOM_KILLER", "CUDA_REDIRECT",
    }
)  # fmt: skip

ABOUT = About(
    key="hami",
    order=310,
    title="HAMi",
    unit="MiB",
    gives=N_("Part of a card's memory and, optionally, of its compute; 100 percent is a whole card."),
    risks=N_(
        "Limits are enforced by a library that a program can bypass; a fatal fault of a neighbour "
        "may also end your program."
    ),
    isolation=N_("Memory and compute are limited by a library; faults are not isolated."),
    memory=SOFT,
    compute=SOFT,
    faults=NONE,
    cores="may",
    several=True,
    beside=frozenset({"whole"}),
    reserved=OWN_VARIABLES,
)


def applies(node: Facts) -> Note | None:
    if node.notes.get(REGISTER):
        return Note(N_("its annotation %(name)s"), {"name": REGISTER})
    offered = node.capacity(whole.RESOURCE)
    if node.labels.get(MARK) == "on" and offered and offered != node.number(whole.COUNT):
        # The resource does not count cards.
        return Note(N_("its %(label)s is %(value)s"), {"label": MARK, "value": "on"})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    registered = list(_registered(node))
    products = sorted({product for product, _ in registered})
    cards = tuple(card for _, card in sorted(registered, key=lambda pair: pair[1].index))
    offered = node.allocatable(whole.RESOURCE)
    held = None
    if not cards:
        held = Note(N_("%(name)s lists no card"), {"name": REGISTER})
    elif len({card.index for card in cards}) < len(cards):
        held = Note(N_("%(name)s lists a card twice"), {"name": REGISTER})
        cards = ()
    elif len(products) > 1:
        held = Note(N_("it has cards of different products: %(products)s"), {"products": ", ".join(products)[:120]})
    elif not offered or node.notes.get(HANDSHAKE, "").startswith("Deleted"):
        held = plugin_down(len(cards))
    numbers = {"name": REGISTER, "cards": len(cards)}
    return entry(
        node,
        ABOUT,
        product=products[0] if products else node.product,
        units_per_card=max((card.units for card in cards), default=1),
        cards=cards,
        because=Note(N_("its annotation %(name)s: %(cards)s cards"), numbers),
        held_back=held,
    )


def _registered(node: Facts) -> Iterator[tuple[str, CardInfo]]:
    """(product, card) of each entry. Its writer leaves out zero and false values, so a card without health is unhealthy."""
    for one in map(mapping, _listed(node)):
        index, memory, cores = one.get("index", 0), one.get("devmem", 0), one.get("devcore", 0)
        if not (_count(index, MOST_CARDS) and _count(memory, LARGEST) and _count(cores, MOST_CORES) and memory):
            node.fault(N_("%(name)s lists a card that does not exist"), name=REGISTER)
            continue
        if one.get("mode") == "mig":
            node.fault(N_("its cards are partitioned on demand, which is not supported"))
        product = spelled(str(one.get("type", "")))
        yield (
            product,
            CardInfo(
                index=index,
                units=memory,
                cores=cores or None,
                uuid=str(one.get("id", ""))[:80],
                healthy=one.get("health") is True,
                memory_mib=memory,
            ),
        )


def _listed(node: Facts) -> Sequence[Any]:
    """The entries as in the JSON. Versions before 2.8 wrote them with commas, and a colon after each:
    UUID,count,MiB,cores,type,NUMA node,health[,index[,mode]]."""
    text = node.notes.get(REGISTER, "").strip()
    if text[:1] not in ("[", "{", '"'):
        parts = [part.split(",") for part in text.split(":") if part.strip()]
        return [_with_names([field.strip() for field in part], place) for place, part in enumerate(parts)]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, list):
        node.fault(N_("%(name)s cannot be read"), name=REGISTER)
    return listing(value)


def _with_names(fields: list[str], place: int) -> Json:
    """One entry of the older form; {} if it is not one. The 8th field is the index; without it the order counts."""
    if not 7 <= len(fields) <= 9:
        return {}
    further = fields[7:]
    index = further.pop(0) if further and _number(further[0]) is not None else str(place)
    numbers = {"devmem": fields[2], "devcore": fields[3], "index": index}
    return {
        "id": fields[0], "type": fields[4], "health": fields[6] == "true", "mode": "".join(further),
        **{name: _number(text) for name, text in numbers.items()},
    }  # fmt: skip


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else None


def _count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT))


def manifest(request: Request, settings: Settings) -> PodPatch:
    """No node selector by product: it comes from the annotation, and such a node need not have the label."""
    limits = {whole.RESOURCE: str(request.cards), MEMORY: str(request.units // request.cards)}
    if request.cores is not None:
        limits[CORES] = str(request.cores)
    return PodPatch(limits=limits, scheduler="hami-scheduler")


def read_back(pod: Json) -> tuple[Held, ...]:
    return tuple(parsed(notes_of(pod).get(ALLOCATED, "")))


def parsed(text: str) -> Iterator[Held]:
    """`UUID,NVIDIA,3000,30:;` → device, MiB, cores of each card. Entries of another form are left out."""
    for part in text.replace(";", ":").split(":"):
        fields = part.split(",")
        if len(fields) >= 4 and fields[0] and fields[2].isdecimal() and fields[3].isdecimal():
            yield Held(fields[0], int(fields[2]), int(fields[3]))

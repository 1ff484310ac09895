"""Time-slicing through NVIDIA's device plugin: every card of a node is offered several times; one unit is one replica.

| | |
|---|---|
| recognised by | label `nvidia.com/gpu.sharing-strategy=time-slicing`, or the resource `nvidia.com/gpu.shared`, or a |
| | product label `…-SHARED` |
| asked for by | renamed: `limits: {nvidia.com/gpu.shared: 1}`; not renamed: `nvidia.com/gpu: 1` and the product |
| | label `…-SHARED` |
| unit | replica: 1/n of a card's time (n: label `gpu.replicas`), all of its memory |
| isolation | none for memory and faults; compute in equal slices of time |
| limits | one replica a pod: two are neither two cards nor twice the share, and the kubelet refuses them |
| errors | `UnexpectedAdmissionError … maximum request size for shared resources is 1`: the request was made |
| | outside the portal |
| trap | if not renamed, the resource is that of whole cards: pods for whole cards therefore exclude nodes with a |
| | sharing strategy |
| read back | `allocatedResourcesStatus` (Kubernetes 1.36): `<uuid>::<replica>`, which shows which pods share a card |
| source | NVIDIA/cloud-native-docs gpu-operator/gpu-sharing.rst; NVIDIA/k8s-device-plugin README, api/config/v1, |
| | internal/lm |
"""

from __future__ import annotations

from workloads.runtime.base import NodeInfo
from workloads.sharing import whole
from workloads.sharing.api import N_, NONE, SOFT, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import Facts, allocated_devices, card_memory, entry, even_cards, of_product, plugin_down

SHARED, SUFFIX = "nvidia.com/gpu.shared", "-SHARED"

ABOUT = About(
    key="timeslicing",
    order=400,
    title=N_("Time-slicing"),
    unit="replica",
    gives=N_(
        "Time slices of a card that is shared with other programs; all of it while they are idle. "
        "The whole memory is visible."
    ),
    risks=N_(
        "Memory is not divided: if a neighbour uses all of it, your program runs out of memory, or the card fails."
    ),
    isolation=N_("None: neither memory nor faults are isolated; compute is divided into equal time slices."),
    memory=NONE,
    compute=SOFT,
    faults=NONE,
    most=1,
    beside=frozenset({"whole"}),
)


def applies(node: Facts) -> Note | None:
    strategy = node.labels.get(whole.STRATEGY)
    if strategy == "time-slicing":
        return Note(N_("its %(label)s is %(value)s"), {"label": whole.STRATEGY, "value": strategy})
    if node.capacity(SHARED) and strategy != "mps":
        return Note(N_("it advertises %(resource)s"), {"resource": SHARED})
    if node.product.endswith(SUFFIX) and strategy != "mps":  # versions of feature discovery before the label
        return Note(N_("its product is %(product)s"), {"product": node.product})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    return of_replicas(node, ABOUT, applies(node), settings)


def of_replicas(node: Facts, about: About, because: Note | None, settings: Settings) -> NodeInfo:
    """A node whose plugin offers each card several times, by time-slicing or MPS."""
    resource = SHARED if node.capacity(SHARED) else whole.RESOURCE
    total, usable = node.capacity(resource), node.allocatable(resource)
    count = settings_cards(node, settings) or node.number(whole.COUNT)
    replicas = total // count if count else 0
    numbers = {"resource": resource, "total": total, "cards": count}
    held = None
    if not count or (total and not replicas):
        held = Note(N_("%(total)s of %(resource)s: its labels do not say on how many cards"), numbers)
    elif total % count:
        held = Note(N_("%(total)s of %(resource)s cannot be divided evenly among %(cards)s cards"), numbers)
    elif replicas != (labelled := node.number(whole.REPLICAS, replicas)):
        held = Note(
            N_("%(total)s of %(resource)s on %(cards)s cards, but its labels say %(said)s per card"),
            numbers | {"said": labelled},
        )
    elif resource == SHARED and node.allocatable(whole.RESOURCE):
        held = Note(
            N_("it offers both %(one)s and %(other)s: the same cards are counted twice"),
            {"one": whole.RESOURCE, "other": SHARED},
        )
    elif resource == whole.RESOURCE and node.product and not node.product.endswith(SUFFIX):
        held = Note(N_("its product label does not end in -SHARED although its cards are shared"))
    elif usable < max(replicas, 1):
        held = plugin_down(count)
    return entry(
        node,
        about,
        product=node.product,
        units_per_card=replicas,
        cards=even_cards(node, count, replicas, usable, memory_mib=card_memory(node)),
        because=because or Note(N_("it advertises %(resource)s"), {"resource": resource}),
        held_back=held,
    )


def settings_cards(node: Facts, settings: Settings) -> int:
    """The number of cards that the operator set for the node; 0: not set."""
    cards = node.chosen(settings.cards)
    return cards if isinstance(cards, int) and cards > 0 else 0


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT))


def manifest(request: Request, settings: Settings) -> PodPatch:
    """The product shows which of the two resources to request: it ends in -SHARED only if the resource was not renamed."""
    resource = whole.RESOURCE if request.product.endswith(SUFFIX) else SHARED
    return PodPatch(limits={resource: "1"}, node_selector=of_product(request))


def read_back(pod: Json) -> tuple[Held, ...]:
    """The cards of the replicas: a replica's id is that of its card followed by a number."""
    return tuple(Held(held.device.partition("::")[0]) for held in allocated_devices(pod))

"""A node of the Kubernetes API, read without trust: invalid values count as absent and are noted as faults.
Labels and annotations are written by anyone who may edit nodes, resource amounts by device plugins of any version. Reading
never raises; every fault holds the node back, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workloads.sharing import clouds
from workloads.sharing.api import MIB, N_, About, CardInfo, Held, Json, NodeInfo, Note, Offer, Request

LARGEST = 2**31 - 1  # what a database integer holds
MOST_CARDS = 256  # on one machine; more is a mistake, and would only create rows
LEAST_MEMORY, MOST_MEMORY = 1024, 2**21  # MiB of a card, far beyond any that exists
GPU_RESOURCE = re.compile(
    r"nvidia\.com/|aliyun\.com/gpu|tencent\.com/vcuda|tke\.cloud\.tencent\.com/qgpu|volcano\.sh/v?gpu|"
    r"deviceclass\.resource\.kubernetes\.io/"
)
"""Resources that are cards or parts of them, and those by which a pod asks for any device of a class of DRA."""
GPU_LABELS = (
    ("nvidia.com/gpu.present", "true"), ("feature.node.kubernetes.io/pci-10de.present", "true"),
    ("cloud.google.com/gke-gpu", "true"), ("kubernetes.azure.com/accelerator", "nvidia"),
)  # fmt: skip
PRODUCT = clouds.PRODUCT
ACK_MODE = "ack.node.gpu.schedule"
NAMED = re.compile(
    r"(?!.*(-SHARED|-MIG-))[A-Za-z0-9]([-A-Za-z0-9._]{0,61}[A-Za-z0-9])?"
)  # a product, as a label's value
WRONG_PRODUCT = "give a product as a label's value is written, such as NVIDIA-A100-SXM4-80GB"
QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|[kMGTPE]|[KMGTPE]i|e[0-9]{1,2})?")
FACTORS = {
    "": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip


def quantity(text: object) -> float | None:
    """A Kubernetes quantity as a number: "250m" → 0.25, "64" → 64.0, "16Ki" → 16384.0; None for anything else."""
    match = QUANTITY.fullmatch(str(text)[:60]) if isinstance(text, (str, int)) and not isinstance(text, bool) else None
    if match is None:
        return None
    suffix = match[2] or ""
    factor = 10.0 ** int(suffix[1:]) if suffix.startswith("e") else FACTORS[suffix]
    return float(match[1]) * factor


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def listing(value: object) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def texts(value: object) -> dict[str, str]:
    """The entries whose key and value are text, as in labels and annotations."""
    return {key: text for key, text in mapping(value).items() if isinstance(key, str) and isinstance(text, str)}


@dataclass(slots=True)
class Facts:
    """One node. Amounts are whole numbers ≥ 0; absent and 0 mean the same (a stopped plugin leaves either)."""

    node: Json
    name: str = ""
    written: dict[str, str] = field(default_factory=dict)  # its labels as they are
    labels: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    faults: list[Note] = field(default_factory=list)

    def __post_init__(self) -> None:
        meta = mapping(mapping(self.node).get("metadata"))
        self.name = str(meta.get("name", ""))[:253]
        self.written, self.notes = texts(meta.get("labels")), texts(meta.get("annotations"))
        strategy = self.written.get(clouds.SHARING, "").strip()
        if strategy not in ("", "none", *clouds.STRATEGIES):
            self.fault(N_("its %(label)s is %(value)s"), label=clouds.SHARING, value=strategy[:40])
        offered = quantity(self._amounts("capacity").get("nvidia.com/gpu", 0)) or 0
        self.labels = clouds.with_nvidia_labels(self.written, int(min(offered, LARGEST)))

    def pin_product(self, product: str) -> None:
        """Set the product that the operator pinned; the suffix that marks shared or partitioned cards stays."""
        now = self.labels.get(PRODUCT, "")
        suffix = next((now[now.index(mark) :] for mark in ("-MIG-", "-SHARED") if mark in now), "")
        self.labels[PRODUCT] = f"{product}{suffix}"

    def fault(self, message: str, **params: str | int) -> None:
        note = Note(message, params)
        if note not in self.faults:
            self.faults.append(note)

    def _amounts(self, of: str) -> Mapping[str, Any]:
        return mapping(mapping(mapping(self.node).get("status")).get(of))

    def _whole(self, text: object, name: str) -> int:
        number = quantity(text)
        if number is None or number > LARGEST or number != int(number):
            self.fault(N_("%(name)s is %(value)s, which is not a valid amount"), name=name, value=str(text)[:40])
            return 0
        return int(number)

    def capacity(self, resource: str) -> int:
        """The amount that exists, healthy or not."""
        return self._whole(self._amounts("capacity").get(resource, 0), resource)

    def allocatable(self, resource: str) -> int:
        """The amount that pods may get now; never more than the capacity."""
        amount = self._whole(self._amounts("allocatable").get(resource, 0), resource)
        return min(amount, self.capacity(resource))

    def offered(self, prefix: str) -> dict[str, int]:
        """Resource with this prefix and a capacity above 0 → its allocatable amount now."""
        names = sorted(name for name in self._amounts("capacity") if isinstance(name, str) and name.startswith(prefix))
        return {name: self.allocatable(name) for name in names if self.capacity(name)}

    def number(self, label: str, default: int = 0) -> int:
        """A label that is a count."""
        text = self.labels.get(label)
        return default if text is None else self._whole(text, label)

    @property
    def slices(self) -> Iterator[Mapping[str, Any]]:
        """The ResourceSlices (their spec) that came with the node."""
        return (mapping(mapping(one).get("spec")) for one in listing(mapping(self.node).get("resourceSlices")))

    def chosen(self, table: Mapping[str, Any]) -> Any:
        """The value for this node in an operator's table: by its name, else by a label `key=value`; None: none."""
        if self.name in table:
            return table[self.name]
        return next((table[f"{k}={v}"] for k, v in sorted(self.written.items()) if f"{k}={v}" in table), None)

    # facts that do not depend on the sharing system

    def shows_a_gpu(self) -> bool:
        """Whether the node has a GPU, even if no device plugin offers it now."""
        named = any(isinstance(name, str) and GPU_RESOURCE.match(name) for name in self._amounts("capacity"))
        return named or any(self.labels.get(label) == value for label, value in GPU_LABELS) or ACK_MODE in self.labels

    def unready(self) -> Iterator[Note]:
        """Why the node takes no new pods, independently of its cards."""
        if mapping(mapping(self.node).get("spec")).get("unschedulable"):
            yield Note(N_("cordoned"))
        for condition in self.conditions:
            if condition.get("type") == "Ready" and condition.get("status") != "True":
                since, reason = str(condition.get("lastTransitionTime", "")), str(condition.get("reason", ""))
                yield Note(N_("not ready since %(since)s: %(reason)s"), {"since": since or "?", "reason": reason[:60]})

    @property
    def conditions(self) -> Iterator[Mapping[str, Any]]:
        return map(mapping, listing(mapping(mapping(self.node).get("status")).get("conditions")))

    @property
    def taints(self) -> Iterator[tuple[str, str, str]]:
        """(key, value, effect) of each."""
        for taint in map(mapping, listing(mapping(mapping(self.node).get("spec")).get("taints"))):
            yield str(taint.get("key", "")), str(taint.get("value", "")), str(taint.get("effect", ""))

    def host(self, resource: str, scale: float) -> int:
        number = quantity(self._amounts("allocatable").get(resource, 0))
        if number is None or number * scale > LARGEST:
            value = str(self._amounts("allocatable").get(resource))[:40]
            self.fault(N_("%(name)s is %(value)s, which is not a valid amount"), name=resource, value=value)
            return 0
        return int(number * scale)

    @property
    def most_pods(self) -> int | None:
        """The most pods that its kubelet takes; None if it is not reported, which means no limit."""
        return self.host("pods", 1) if "pods" in self._amounts("allocatable") else None

    @property
    def domain(self) -> str:
        return (self.labels.get("nvidia.com/gpu.clique") or self.labels.get("topology.kubernetes.io/rack", ""))[:100]

    @property
    def product(self) -> str:
        return self.labels.get(PRODUCT, "").strip()[:100]


def entry(
    node: Facts,
    about: About | None,
    *,
    because: Note,
    product: str = "",
    units_per_card: int = 1,
    cards: Iterable[CardInfo] = (),
    held_back: Note | None = None,
    instances: Mapping[str, int] | None = None,
    mig: str | None = None,
    beside: tuple[Offer, ...] = (),
) -> NodeInfo:
    """The inventory's entry of a node, with everything that holds it back, including faults found while reading it."""
    cpu, memory = node.host("cpu", 1000), node.host("memory", 2**-20)
    held = [*node.unready(), *node.faults, *([held_back] if held_back else [])]
    return NodeInfo(
        name=node.name,
        sharing=about.key if about else "",
        product=product,
        unit=about.unit if about else "card",
        units_per_card=min(max(units_per_card, 1), LARGEST),
        cards=tuple(cards),
        instances=instances or {},
        mig=mig,
        beside=beside,
        cpu_milli=cpu,
        memory_mib=memory,
        pods=node.most_pods,
        domain=node.domain,
        because=str(because),
        held_back="; ".join(map(str, held)),
        because_of=because,
        held_back_by=tuple(held),
        labels=node.written,
    )


def plugin_down(total: int) -> Note:
    return Note(N_("its device plugin offers none of its %(cards)s cards"), {"cards": total})


def spelled(name: str) -> str:
    """NVML's name of a card as the label nvidia.com/gpu.product spells it; older plugins of HAMi put the vendor before it."""
    name = name.strip().replace(" ", "-")
    bare = name.removeprefix("NVIDIA-")
    return (bare if bare.startswith(("NVIDIA-", "Tesla-")) else name)[:100]


def even_cards(
    node: Facts, count: int, units: int, usable: int, *,
    memory_mib: int | None = None, cores: int | None = None, measure: str = "",
) -> tuple[CardInfo, ...]:  # fmt: skip
    """`count` cards of `units` each, of which only `usable` units are healthy. Missing units make whole cards unhealthy, the
    last ones, because a node that only counts does not report which ones are missing.
    `measure`: the option or resource that defines the unit of memory; there are no cards if the result is implausible."""
    if count > MOST_CARDS:
        node.fault(N_("it reports %(count)s cards"), count=count)
        return ()
    if measure and units and not LEAST_MEMORY <= units <= MOST_MEMORY:
        node.fault(N_("%(memory)s MiB for a card is implausible: check %(what)s"), memory=units, what=measure)
        return ()
    healthy = usable // units if units else 0
    return tuple(
        CardInfo(index=i, units=units, healthy=i < healthy, memory_mib=memory_mib, cores=cores) for i in range(count)
    )


def of_even_memory(
    node: Facts, about: About, memory: str, count: str, *, mib: int, option: str, unit: str = "MiB",
    cores: int | None = None, held_back: Note | None = None,
) -> NodeInfo:  # fmt: skip
    """A node whose device plugin advertises the memory of all its cards as one amount, and their number.

    `memory`, `count`: names of the two resources. `mib`: MiB of one of the plugin's units, which the cluster's `option` sets.
    `unit`: MiB or GiB, in which the amount is shown. `held_back`: a reason that the caller found."""
    total, usable, cards = node.capacity(memory), node.allocatable(memory), node.capacity(count)
    each = total // cards if cards else 0
    numbers = {"resource": memory, "amount": total * mib // MIB[unit], "unit": unit, "cards": cards}
    held = held_back
    if not total:
        held = Note(N_("its device plugin offers nothing"))
    elif not cards:
        held = Note(
            N_("%(resource)s without %(count)s: the size of a card is unknown"), {"resource": memory, "count": count}
        )
    elif total % cards:
        held = Note(N_("%(amount)s of %(resource)s cannot be divided evenly among %(cards)s cards"), numbers)
    elif usable < each:
        held = plugin_down(cards)
    size = each * mib
    return entry(
        node,
        about,
        product=node.product,
        units_per_card=size,
        cards=even_cards(node, cards, size, usable * mib, memory_mib=size, cores=cores, measure=option),
        because=Note(N_("it advertises %(resource)s: %(amount)s %(unit)s on %(cards)s cards"), numbers),
        held_back=held,
    )


def allocated_devices(pod: Json) -> tuple[Held, ...]:
    """Device ids that the kubelet reports (ResourceHealthStatus, enabled since Kubernetes 1.36); () if it does not."""
    return tuple(
        Held(str(device["resourceID"]))
        for container in map(mapping, listing(mapping(pod.get("status")).get("containerStatuses")))
        for resource in map(mapping, listing(container.get("allocatedResourcesStatus")))
        for device in map(mapping, listing(resource.get("resources")))
        if device.get("resourceID")
    )


def notes_of(pod: Json) -> dict[str, str]:
    return texts(mapping(pod.get("metadata")).get("annotations"))


def of_product(request: Request) -> dict[str, str]:
    """The node selector for the product of a request; GKE's own names are in its own label."""
    product = request.product
    if product.startswith("nvidia-"):
        return {clouds.ACCELERATOR: product.partition("-MIG-")[0].removesuffix("-SHARED")}
    return {PRODUCT: product} if product else {}


def card_memory(node: Facts) -> int | None:
    """MiB of each card by GPU feature discovery; None: unknown."""
    return node.number("nvidia.com/gpu.memory") or None

"""What a pod that the portal did not start takes of its node, by its requests and the marks of its sharing system.
Where that is not exact, too much is counted rather than too little: a card that is shown as free must be free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quotas.engine.mig_profiles import profile_of
from workloads.sharing import ack_core, hami, kai, kubeshare, memory, mig, qgpu, timeslicing, vcuda, volcano, whole
from workloads.sharing import volcano_vgpu as vgpu
from workloads.sharing.api import Held, Json, Settings
from workloads.sharing.nodes import GPU_RESOURCE, LARGEST, listing, mapping, notes_of, quantity, texts

OVER = ("Succeeded", "Failed")
MARKS = (kai.FRACTION, kai.MEMORY)  # annotations that request a part of a card without a resource
ASKING = (
    ("annotations", kai.FRACTION), ("annotations", kai.MEMORY), ("annotations", kai.DEVICES),
    ("labels", f"{kubeshare.PREFIX}gpu_request"), ("labels", f"{kubeshare.PREFIX}gpu_limit"),
)  # fmt: skip
"""What besides resources requests GPUs for a pod: (where in its metadata, key)."""


DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
"""Prefix of the resource of a class of DRA's devices; the scheduler creates the claim once the pod may start."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a pod takes of one card, in the pool's `units` and in percent of compute (`cores`), or one instance of a `profile`.
    `device`: id or index of the card, if the system reports it."""

    units: int
    cores: int = 0
    device: str = ""
    profile: str = ""


@dataclass(frozen=True, slots=True)
class Offered:
    """One kind of cards on a node: the key of its system, units of a card, its MIG table and fixed instances."""

    sharing: str
    units_per_card: int
    mig: str = ""
    instances: Mapping[str, int] = field(default_factory=dict)


# What a pod requests --------------------------------------------------------------------------------------------------


def requests(pod: Json) -> dict[str, float]:
    """The pod's requests as the scheduler counts them, as plain numbers (cores, bytes, pieces).

    The sum of its containers, or of an init container and the sidecars before it if that is more; plus its overhead.
    """
    spec = mapping(pod.get("spec"))
    running: dict[str, float] = {}
    for container in map(mapping, listing(spec.get("containers"))):
        _add(running, _asked(container))
    sidecars: dict[str, float] = {}
    peak: dict[str, float] = {}
    for container in map(mapping, listing(spec.get("initContainers"))):
        asked = _asked(container)
        beside = dict(sidecars)
        _add(beside, asked)
        peak = {name: max(peak.get(name, 0), beside.get(name, 0)) for name in peak.keys() | beside.keys()}
        if container.get("restartPolicy") == "Always":
            sidecars = beside
    _add(running, sidecars)
    amounts = {name: max(peak.get(name, 0), running.get(name, 0)) for name in peak.keys() | running.keys()}
    amounts |= _asked(spec)  # requests of the pod as a whole, if there are any
    _add(amounts, _amounts(spec.get("overhead")))
    return amounts


def _asked(container: Mapping[str, Any]) -> dict[str, float]:
    """The requests of a container; a limit without a request counts as a request."""
    resources = mapping(container.get("resources"))
    return _amounts(resources.get("limits")) | _amounts(resources.get("requests"))


def _amounts(values: object) -> dict[str, float]:
    read = {str(name): quantity(value) for name, value in mapping(values).items()}
    return {name: amount for name, amount in read.items() if amount is not None and amount < float(2**60)}


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def asked(pod: Json) -> dict[str, float | str]:
    """The pod's GPU requests, to be compared with another pod's: resources of device plugins, marks, number of claims."""
    meta = mapping(pod.get("metadata"))
    amounts: dict[str, float | str] = {name: value for name, value in requests(pod).items() if "/" in name and value}
    for where, key in ASKING:
        if key in (marks := texts(meta.get(where))):
            amounts[key] = marks[key][:60].replace("\0", "?")
    if claims := listing(mapping(pod.get("spec")).get("resourceClaims")):
        amounts["claims"] = len(claims)
    return amounts


def asks_by_claim(pod: Json) -> bool:
    """Whether the pod requests DRA devices: by claims, or by a resource from which the scheduler creates a claim."""
    by_class = any(amount > 0 and name.startswith(DEVICE_CLASS) for name, amount in requests(pod).items())
    return by_class or bool(listing(mapping(pod.get("spec")).get("resourceClaims")))


def occupies_node(pod: Json) -> bool:
    """Whether the pod occupies capacity of a node: it has a node and is not over."""
    placed = mapping(pod.get("spec")).get("nodeName")
    return bool(placed) and mapping(pod.get("status")).get("phase") not in OVER


def wants_a_gpu(pod: Json) -> bool:
    """Whether the pod requests a card, a part of one, or a device that may be one."""
    named = any(amount > 0 and GPU_RESOURCE.match(name) for name, amount in requests(pod).items())
    labels = texts(mapping(pod.get("metadata")).get("labels"))
    marked = any(mark in notes_of(pod) for mark in MARKS) or f"{kubeshare.PREFIX}gpu_request" in labels
    return named or marked or asks_by_claim(pod)


# What it takes of a node ----------------------------------------------------------------------------------------------


def parts(
    pod: Json, offers: Sequence[Offered], held: Mapping[str, tuple[Held, ...]], settings: Settings
) -> Iterator[tuple[str, Part]]:
    """(key of the system, part) for all that the pod takes of a node with these offers. `held`: key → what it reads back."""
    if any(offer.sharing == "kai" for offer in offers) and kai.is_reservation(pod):
        return
    asked, is_known = requests(pod), False
    for offer in offers:
        beside_others = any(other.sharing == "whole" for other in offers)
        for part in of_system(pod, asked, offer, held.get(offer.sharing, ()), settings, beside_others):
            is_known = True
            yield offer.sharing, part
    if not is_known and offers:  # an unknown form of request: as many whole cards as that may be
        count = max((amount for name, amount in asked.items() if GPU_RESOURCE.match(name)), default=0)
        for _ in range(min(int(count), 64)):
            yield offers[0].sharing, Part(offers[0].units_per_card)


def of_system(
    pod: Json,
    asked: Mapping[str, float],
    offer: Offered,
    held: tuple[Held, ...],
    settings: Settings,
    whole_beside: bool,
) -> Iterator[Part]:
    key, card = offer.sharing, offer.units_per_card
    if key in ("dra", "dra-mig"):
        yield from _of_claims(offer, held)
    elif key == "mig":
        yield from _instances(asked, offer, whole_beside)
    elif key in ("whole", "vgpu", "volcano-number"):
        yield from _cards(_whole(asked, volcano.COUNT if key == "volcano-number" else whole.RESOURCE), 1, held)
    elif key in ("timeslicing", "mps"):
        count = _whole(asked, timeslicing.SHARED) + _whole(asked, whole.RESOURCE)
        yield from _cards(count, 1, held)
    elif key in ("kai", "kubeshare"):
        yield from _cards(_whole(asked, whole.RESOURCE), card, held)
        for index, share in enumerate(_fractions(pod)):
            yield Part(min(card, share), device=_device(held, index))
    else:
        yield from _memory(asked, offer, held, settings)


def _whole(asked: Mapping[str, float], resource: str) -> int:
    return int(min(asked.get(resource, 0), LARGEST))


def _device(held: Sequence[Held], index: int) -> str:
    return held[index].device if index < len(held) else ""


def _cards(count: int, units: int, held: Sequence[Held]) -> Iterator[Part]:
    """Parts for so many cards or replicas; the devices of the first ones are known from `held`."""
    for index in range(min(count, 4096)):
        yield Part(units, device=_device(held, index))


def _instances(asked: Mapping[str, float], offer: Offered, whole_beside: bool) -> Iterator[Part]:
    """Instances by their profile; if all are called nvidia.com/gpu, of the only profile on the node."""
    for name, amount in sorted(asked.items()):
        if name.startswith(mig.PREFIX):
            profile = name.removeprefix(mig.PREFIX).replace(".me", "+me")
            yield from [_instance(offer, profile)] * min(int(amount), 4096)
    if not whole_beside and (count := _whole(asked, whole.RESOURCE)):
        profile = max(offer.instances, key=lambda name: _size(offer, name), default="")
        yield from [_instance(offer, profile)] * min(count, 4096)


def _size(offer: Offered, profile: str) -> int:
    slice_profile = profile_of(offer.mig or None, profile)
    return slice_profile.size if slice_profile else offer.units_per_card


def _instance(offer: Offered, profile: str, device: str = "") -> Part:
    return Part(_size(offer, profile), profile=profile, device=device)


def _of_claims(offer: Offered, held: Sequence[Held]) -> Iterator[Part]:
    """Allocated devices; an instance of unknown profile counts as the largest on the node."""
    for device in held:
        if offer.sharing == "dra":
            yield Part(1, device=device.device)
        else:
            largest = max(offer.instances, key=lambda name: _size(offer, name), default="")
            yield _instance(offer, device.profile if device.profile in offer.instances else largest, device.device)


def _fractions(pod: Json) -> list[int]:
    """Percent of each of the pod's cards. Memory in MiB alone does not show the share, so it counts as a whole card."""
    notes, labels = notes_of(pod), texts(mapping(pod.get("metadata")).get("labels"))
    text = notes.get(kai.FRACTION) or labels.get(f"{kubeshare.PREFIX}gpu_request") or ""
    share = quantity(text)
    if share is not None and share > 0:
        percent = -(-int(min(share, 64) * 1000) // 10)
        whole_cards, rest = divmod(percent, 100)
        each = [100] * whole_cards + [rest] * bool(rest)
    else:
        each = [100] if kai.MEMORY in notes or text else []
    count = quantity(notes.get(kai.DEVICES) or "1")
    return each * int(min(max(1, count or 1), 64))


def _memory(asked: Mapping[str, float], offer: Offered, held: Sequence[Held], settings: Settings) -> Iterator[Part]:
    """A part of each of the pod's cards in MiB and compute. What the system wrote on the pod counts before its requests."""
    card = offer.units_per_card
    if held and all(one.memory_mib is not None for one in held):
        yield from (Part(min(card, one.memory_mib or 0), one.cores or 0, one.device) for one in held)
        return
    count, mib, cores = _asked_memory(asked, card, settings)
    if mib is None and not count:
        return
    cards = max(1, count, -(-(mib or 0) // card) if card and not count else 1)
    each = card if mib is None else mib if count else -(-mib // cards)
    for index in range(min(cards, 64)):
        yield Part(min(card, each), -(-cores // cards) if not count else cores, _device(held, index))


def _asked_memory(asked: Mapping[str, float], card: int, settings: Settings) -> tuple[int, int | None, int]:
    """(cards, or 0 if the memory is that of all together; MiB, or None for a whole card; percent of compute)."""
    factor = settings.volcano_memory_factor
    for count, amount, unit, cores in (
        (whole.RESOURCE, hami.MEMORY, 1, hami.CORES),
        (vgpu.NUMBER, vgpu.MEMORY, factor, vgpu.CORES),
        ("", volcano.RESOURCE, factor, ""),
        ("", vcuda.MEMORY, vcuda.BLOCK, vcuda.CORES),
        ("", qgpu.MEMORY, qgpu.BLOCK, qgpu.CORES),
        ("", memory.RESOURCE, settings.gpu_mem_mib, ack_core.CORES),
    ):
        compute, cards = _whole(asked, cores), _whole(asked, count) if count else 0
        if asked.get(amount):
            return cards, int(min(asked[amount], LARGEST)) * unit, compute
        percent = asked.get(f"{amount}-percentage", 0)
        if cards:
            return cards, (int(card * min(percent, 100)) // 100 if percent else None), compute
        if compute:
            return -(-compute // 100), None, min(compute, 100)
    return 0, None, 0


# Which cards ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Slot:
    """A card: its units, those that the portal's claims occupy or have reserved (`ours`), and the outside use."""

    index: int
    uuid: str
    units: int
    ours: int = 0
    outside: int = 0
    cores: int = 0

    @property
    def left(self) -> int:
        return self.units - self.ours - self.outside


def put_on_cards(slots: Sequence[Slot], taken: Iterable[Part]) -> None:
    """Assign the parts to cards: parts with a known card to that; the others, largest first, to the card where they fit beside
    the portal's claims and the least is left over, the last card first. A part that fits nowhere takes what is left."""
    unknown = []
    for part in taken:
        slot = next((slot for slot in slots if part.device and _is(slot, part.device)), None)
        if slot is None:
            unknown.append(part)
        else:
            _enter(slot, part)
    for part in sorted(unknown, key=lambda part: -part.units):
        fitting = [slot for slot in slots if slot.left >= part.units]
        if fitting:
            _enter(min(fitting, key=lambda slot: (slot.left, -slot.index)), part)
        elif slots:
            _enter(max(slots, key=lambda slot: (slot.left, slot.units - slot.outside, slot.index)), part)


def _is(slot: Slot, device: str) -> bool:
    return device == str(slot.index) or bool(slot.uuid and device.startswith(slot.uuid))


def _enter(slot: Slot, part: Part) -> None:
    slot.outside = min(slot.units, slot.outside + part.units)
    slot.cores += part.cores

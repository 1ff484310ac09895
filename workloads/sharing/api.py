"""What every module of this package speaks. A sharing system is a module with one value and five functions:

    ABOUT                                what it is: unit, isolation, limits, words for people; forms, API and docs come from it
    applies(node) -> Note | None         the mark by which a node is known to run it; None: it does not, or only a pin tells
    discover(node, settings) -> NodeInfo       which cards such a node offers, and their health
    validate(request, settings) -> tuple[Problem, …]    what such a request may not ask for; empty: fine
    manifest(request, settings) -> PodPatch    how a pod asks for it
    read_back(pod) -> tuple[Held, …]           which devices a running pod got and how much of each, as far as the system tells

Nodes and pods are Kubernetes JSON as parsed; a node is wrapped as workloads.sharing.nodes.Facts, which never raises. A
node may carry the ResourceSlices that speak of it under "resourceSlices", a pod its ResourceClaims under "resourceClaims".
A new system is one file with these names: the registry finds it. Sentences are message ids, translated when they are shown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.runtime.base import CardInfo, NodeInfo, Note, Offer

__all__ = [
    "FULL",
    "NONE",
    "N_",
    "SOFT",
    "About",
    "CardInfo",
    "Held",
    "Json",
    "NodeInfo",
    "Note",
    "Offer",
    "PodPatch",
    "Problem",
    "Request",
    "Settings",
]  # fmt: skip

Json = Mapping[str, Any]


def N_(message: str) -> str:
    """Marks a sentence for the translators; it is translated when it is shown."""
    return message


# How well what one gets is kept from others: by hardware or kernel, by a library that can be got round, not at all.
FULL, SOFT, NONE = "full", "soft", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a system is, for forms, API, board and docs. `title`, `gives`, `risks`, `isolation` are sentences to translate."""

    key: str  # Pool.sharing, Node.sharing
    order: int  # a node that bears several marks is the one of the lowest order
    title: str
    unit: str  # card | replica | MiB | percent | slice
    gives: str  # what a person gets for it
    risks: str  # what can go wrong
    isolation: str  # in words
    memory: str  # FULL | SOFT | NONE: whether a neighbour can take its memory
    compute: str  # … its share of the processor
    faults: str  # … bring it down
    cores: str = NONE  # may a request limit compute: NONE no, "may", "must"
    step: int = 1  # an amount is a multiple of it, in units (where the cluster's settings do not say otherwise)
    cores_step: int = 1
    most: int | None = None  # units a pod may ask for at most; None: no limit but the card's or node's
    several: bool = False  # a pod may have several cards (whole ones, where the unit is a part of a card)
    peers: bool = False  # pods on these cards may work as one over NCCL
    beside: frozenset[str] = frozenset()  # keys of systems whose marks its nodes bear too
    reserved: frozenset[str] = frozenset()  # variables (or patterns) that would undo it, besides RESERVED_ENV
    extra: Mapping[str, str] = dataclasses.field(default_factory=dict)  # what else may be asked: name → what it means


@dataclass(frozen=True, slots=True)
class Settings:
    """What cannot be read from the cluster and its operator has to say: keys of a cluster's options.

    `pins`, `products` and `cards` name nodes by name, or by a label as `key=value`.
    """

    gpu_mem_unit: str = "GiB"  # of aliyun.com/gpu-mem: the flag --memory-unit of gpushare's device plugin
    volcano_memory_factor: int = (
        1  # MiB in one volcano.sh/gpu-memory or vgpu-memory: --gpu-memory-factor of its plugins
    )
    kai_queue: str = "{department}"  # the KAI queue of a department's pods
    pins: Mapping[str, str] = dataclasses.field(default_factory=dict)  # node → key of the system that it runs
    products: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # node → product, where no label tells it or one lies
    cards: Mapping[str, int] = dataclasses.field(default_factory=dict)  # node → cards, where the node does not tell


@dataclass(frozen=True, slots=True)
class Request:
    """What one pod asks of a pool: `units` in the pool's unit and, where compute is limited, `cores` in percent of
    a card (100: all of it). Several cards: units is a multiple of units_per_card, and cores count for each card."""

    product: str
    units: int
    pods: int = 1
    profile: str | None = None
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cores: int | None = None
    table: str = ""  # MIG: the key of the pool's table of profiles; "": that of the product
    units_per_card: int = 0  # of the pool; 0: not known, and not checked
    cores_per_card: int = (
        100  # percent of compute that a card gives out in all: more where it is given out several times
    )
    extra: Mapping[str, str] = dataclasses.field(default_factory=dict)  # keys of About.extra
    peers: bool = True  # whether the pods work as one (a service's do not)
    name: str = ""  # of the run: other objects it needs are named after it
    department: str = ""

    @property
    def cards(self) -> int:
        """How many cards a pod gets: 1, or more where it asks for more than one card has."""
        return max(1, -(-self.units // self.units_per_card)) if self.units_per_card else 1


@dataclass(frozen=True, slots=True)
class Problem:
    """A request that cannot be; `field` is the one to change. `message` is a message id with %(name)s places for `params`."""

    field: str
    code: str
    message: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def detail(self) -> str:
        """The sentence in English."""
        return self.message % self.params


@dataclass(frozen=True, slots=True)
class PodPatch:
    """What a sharing system adds to a pod and to its one container."""

    limits: Mapping[str, str] = dataclasses.field(default_factory=dict)
    node_selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    scheduler: str = ""
    node_rules: Sequence[Json] = ()  # matchExpressions that its node must meet besides
    claims: Sequence[Json] = ()  # entries of the pod's resourceClaims; the container names them all
    objects: Sequence[Json] = ()  # other objects it needs in its namespace; they go with the pods that own them
    follows_claim: bool = False  # it goes where its claim's device is; until there is one, where the plan forecast


@dataclass(frozen=True, slots=True)
class Held:
    """One device that a pod got: its index or id as the system writes it, and how much of it where that is told."""

    device: str
    memory_mib: int | None = None
    cores: int | None = None
    profile: str = ""  # of a MIG instance, where it is told

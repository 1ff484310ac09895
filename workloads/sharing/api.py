"""The interface of all modules of this package. A sharing system is a module with one value and five functions:

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
    """Mark a sentence for translation; it is translated when it is shown."""
    return message


# How well a share is isolated from others: by hardware or kernel, by a library that can be bypassed, not at all.
FULL, SOFT, NONE = "full", "soft", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """A description of a system, for forms, API, board and docs. `title`, `gives`, `risks`, `isolation` are translated."""

    key: str  # Pool.sharing, Node.sharing
    order: int  # a node with marks of several systems has the one of the lowest order
    title: str
    unit: str  # card | replica | MiB | percent | slice
    gives: str  # what a person gets for it
    risks: str  # what can go wrong
    isolation: str  # in words
    memory: str  # FULL | SOFT | NONE: whether a neighbour can take its memory
    compute: str  # … its share of the processor
    faults: str  # … bring it down
    cores: str = NONE  # whether a request limits compute: NONE: never, "may", "must"
    step: int = 1  # an amount is a multiple of it, in units (unless the cluster's settings differ)
    cores_step: int = 1
    most: int | None = None  # most units of a pod; None: limited only by the card or node
    several: bool = False  # a pod may have several cards (whole ones, where the unit is a part of a card)
    peers: bool = False  # pods on these cards may work as one over NCCL
    beside: frozenset[str] = frozenset()  # keys of systems whose marks its nodes have too
    reserved: frozenset[str] = frozenset()  # variables (or patterns) that would disable it, besides RESERVED_ENV
    extra: Mapping[str, str] = dataclasses.field(default_factory=dict)  # further options of a request: name → meaning


MIB = {"MiB": 1, "GiB": 1024}


@dataclass(frozen=True, slots=True)
class Settings:
    """What cannot be read from the cluster and has to be set by its operator: keys of a cluster's options.

    `pins`, `products` and `cards` name nodes by name, or by a label as `key=value`.
    """

    gpu_mem_unit: str = "GiB"  # of aliyun.com/gpu-mem: the flag --memory-unit of gpushare's device plugin
    # MiB in one volcano.sh/gpu-memory or vgpu-memory: --gpu-memory-factor of its plugins.
    volcano_memory_factor: int = 1
    kai_queue: str = "{department}"  # the KAI queue of a department's pods
    pins: Mapping[str, str] = dataclasses.field(default_factory=dict)  # node → key of the system that it runs
    # Node → product, where its labels lack it or are wrong.
    products: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Node → number of cards, where the node does not report it.
    cards: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def gpu_mem_mib(self) -> int:
        return MIB[self.gpu_mem_unit]


@dataclass(frozen=True, slots=True)
class Request:
    """What one pod requests from a pool: `units` in the pool's unit and, where compute is limited, `cores` in percent of
    a card (100: all of it). For several cards, units is a multiple of units_per_card, and cores apply to each card."""

    product: str
    units: int
    pods: int = 1
    profile: str | None = None
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cores: int | None = None
    table: str = ""  # MIG: the key of the pool's table of profiles; "": that of the product
    units_per_card: int = 0  # of the pool; 0: unknown, and not checked
    cores_per_card: int = 100  # percent of compute that a card offers in all: more than 100 if it is oversubscribed
    extra: Mapping[str, str] = dataclasses.field(default_factory=dict)  # keys of About.extra
    peers: bool = True  # whether the pods work as one (those of a service do not)
    name: str = ""  # of the run; other objects that it needs are named after it
    department: str = ""

    @property
    def cards(self) -> int:
        """How many cards a pod gets: 1, or more if it requests more units than a card has."""
        return max(1, -(-self.units // self.units_per_card)) if self.units_per_card else 1


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request fails. `field`: the one to change; `message`: a message id with %(name)s placeholders for `params`."""

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
    node_rules: Sequence[Json] = ()  # further matchExpressions that its node must meet
    claims: Sequence[Json] = ()  # entries of the pod's resourceClaims; the container names them all
    objects: Sequence[Json] = ()  # other objects that it needs in its namespace; deleted with the pods that own them
    follows_claim: bool = False  # it goes where its claim's device is; before that is allocated, to the planned node


@dataclass(frozen=True, slots=True)
class Held:
    """One device that a pod got: its index or id as the system writes it, and how much of it, if that is reported."""

    device: str
    memory_mib: int | None = None
    cores: int | None = None
    profile: str = ""  # of a MIG instance, if it is reported

"""GPU sharing systems, one module each: how a system is discovered on nodes, requested by pods, validated and read back.
The system is a property of the node, derived from its labels and resource names, never from its name; an operator may
pin it (Settings.pins). Every module with an ABOUT in this folder is a system. A node with marks of several systems has
that of the lowest order, and is held back unless this system allows the others beside it.
A node that offers GPUs in a way that no module here serves is kept in the inventory and held back, with the reason.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any, Protocol, cast

from workloads.runtime.base import NodeInfo, Note
from workloads.sharing.api import N_, About, Held, Json, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import charge
from workloads.sharing.nodes import PRODUCT, Facts, entry, listing, mapping

__all__ = [
    "SYSTEMS", "About", "Held", "NodeInfo", "Note", "PodPatch", "Problem", "Request", "Settings", "System", "charge",
    "discover", "with_slices",
]  # fmt: skip


class System(Protocol):
    """A module of this package."""

    ABOUT: About

    def applies(self, node: Facts) -> Note | None: ...

    def discover(self, node: Facts, settings: Settings) -> NodeInfo: ...

    def validate(self, request: Request, settings: Settings) -> Sequence[Problem]: ...

    def manifest(self, request: Request, settings: Settings) -> PodPatch: ...

    def read_back(self, pod: Json) -> tuple[Held, ...]: ...


def _systems() -> dict[str, System]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules: list[Any] = [importlib.import_module(f"{__name__}.{name}") for name in names]
    systems = sorted((m for m in modules if isinstance(getattr(m, "ABOUT", None), About)), key=lambda m: m.ABOUT.order)
    return {module.ABOUT.key: cast(System, module) for module in systems}


SYSTEMS: dict[str, System] = _systems()  # by order of recognition


def discover(node: Json, settings: Settings | None = None) -> NodeInfo | None:
    """A node of the Kubernetes API as an entry of the inventory; None if it shows no sign of a GPU. Never raises."""
    settings = settings or Settings()
    facts = Facts(node)
    product = facts.chosen(settings.products)
    if isinstance(product, str) and product:
        facts.pin_product(product)
    marks = {key: note for key, system in SYSTEMS.items() if (note := system.applies(facts)) is not None}
    pinned = facts.chosen(settings.pins)
    if pinned is not None and pinned not in SYSTEMS:
        return _not_served(
            facts, Note(N_("pinned to %(key)s, which is not a known sharing system"), {"key": str(pinned)[:40]})
        )
    key = pinned or next(iter(marks), None)
    if key is None:
        if facts.shows_a_gpu() or facts.faults:
            return _not_served(facts, Note(N_("it has a GPU that is not offered: its device plugin is not ready")))
        return None
    info = _of_product(SYSTEMS[key].discover(facts, settings), product if isinstance(product, str) else "")
    if pinned is not None:
        info = _because(info, Note(N_("pinned by an operator")))
    others = tuple(other for other in marks if other != key and other not in SYSTEMS[key].ABOUT.beside)
    return _in_conflict(info, key, {other: marks[other] for other in others}) if others else info


def _of_product(info: NodeInfo, pinned: str) -> NodeInfo:
    """The node with the product that its operator pinned, whatever the cards report. Held back if the product is unknown:
    cards must not count as interchangeable only because nothing is known about them."""
    if pinned:
        product = info.product if info.product.startswith((f"{pinned}-MIG-", f"{pinned}-SHARED")) else pinned
        beside = tuple(dataclasses.replace(offer, product=pinned) for offer in info.beside)
        return dataclasses.replace(info, product=product, beside=beside)
    if all(offer.product.partition("-MIG-")[0].removesuffix("-SHARED") for offer in info.offers):
        return info
    note = Note(
        N_("no label names the product of its cards: set %(label)s on the node, or pin the product"),
        {"label": PRODUCT},
    )
    return info.held(note)


def _because(info: NodeInfo, note: Note) -> NodeInfo:
    return dataclasses.replace(info, because=str(note), because_of=note)


def _in_conflict(info: NodeInfo, key: str, others: dict[str, Note]) -> NodeInfo:
    notes = [
        Note(
            N_("two sharing systems that cannot be on the same node: %(one)s and %(other)s (%(because)s)"),
            {"one": Note(SYSTEMS[key].ABOUT.title), "other": Note(SYSTEMS[other].ABOUT.title), "because": because},
        )
        for other, because in others.items()
    ]
    return dataclasses.replace(info.held(*notes), conflicts=tuple(others))


def _not_served(node: Facts, note: Note) -> NodeInfo:
    return entry(node, None, because=note, product=node.product, held_back=note)


def with_slices(nodes: list[Any], slices: list[Any]) -> list[Any]:
    """The nodes, each with its ResourceSlices under "resourceSlices", as discover() reads them."""
    of: dict[object, list[Any]] = {}
    for one in slices:
        of.setdefault(mapping(mapping(one).get("spec")).get("nodeName"), []).append(one)
    named = ((node, mapping(mapping(node).get("metadata")).get("name")) for node in listing(nodes))
    return [{**node, "resourceSlices": of[name]} if name in of else node for node, name in named]

"""The test table of one sharing system: a module in tests/sharing/tables with a TABLE. Nodes are those of the cluster kit."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from workloads.sharing import Held, PodPatch, Settings, with_slices

FILE = Path(__file__).parents[1] / "cluster/data/kwok_gpu_nodes.yaml"
DOCUMENTS = [document for document in yaml.safe_load_all(FILE.read_text()) if document]
SLICES = [document for document in DOCUMENTS if document["kind"] == "ResourceSlice"]
NODES: dict[str, Any] = {
    node["metadata"]["name"]: node
    for node in with_slices([document for document in DOCUMENTS if document["kind"] == "Node"], SLICES)
}


def node(
    name: str,
    *,
    labels: Mapping[str, str | None] | None = None,
    notes: Mapping[str, str | None] | None = None,
    amounts: Mapping[str, str | None] | None = None,
    usable: Mapping[str, str | None] | None = None,
) -> dict[str, Any]:
    """A changed node of the kit; None removes a key. `amounts` is capacity and allocatable, `usable` allocatable."""
    changed: dict[str, Any] = deepcopy(NODES[name])
    places = (
        (changed["metadata"]["labels"], labels),
        (changed["metadata"]["annotations"], notes),
        (changed["status"]["capacity"], amounts),
        (changed["status"]["allocatable"], {**(amounts or {}), **(usable or {})}),
    )
    for place, values in places:
        for key, value in (values or {}).items():
            place.pop(key, None)
            if value is not None:
                place[key] = value
    return changed


@dataclass(frozen=True, kw_only=True)
class Found:
    """The expected result of discovering a node: one of the kit, by name, or a changed one."""

    node: str | Mapping[str, Any]
    product: str = ""
    unit: str
    units_per_card: int = 1
    cards: int
    healthy: int | None = None  # None: all of them
    cores: int | None = None
    instances: Mapping[str, int] = field(default_factory=dict)
    because: str
    held_back: str = ""
    beside: tuple[tuple[str, str, int], ...] = ()  # (system, unit, cards)
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True, kw_only=True)
class Live:
    """One request through the REST API that runs on a node of a real API server, and one that is refused.

    `node` is one of the kit, or a changed one that is created for the test under a unique name. `plays` is what the vendor's
    scheduler or plugin would write on the pod; the test writes it, because KWOK runs neither.
    """

    node: str | Mapping[str, Any]
    body: Mapping[str, Any]
    limits: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    scheduler: str = "default-scheduler"
    plays: Mapping[str, Any] = field(default_factory=dict)  # {"annotations": …, "labels": …, "devices": …}
    claims: str = ""  # selector of the ResourceClaim that Kubernetes creates and its own scheduler allocates
    cards: tuple[str, ...] = ()  # as read back from the pod
    bad: Mapping[str, Any]
    blamed: str
    said: str
    options: Mapping[str, Any] = field(default_factory=dict)
    system: str = ""  # of the pool, if it is not the table's


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """A node that is held back, the error for requests for it, and the node after the repair.

    `pool` False: it has no pool to request. `mended` is merged into the node; {}: it stays as it is.
    """

    node: str
    pool: bool = True
    body: Mapping[str, Any] = field(default_factory=dict)
    said: str
    mended: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Table:
    system: str
    found: tuple[Found, ...]
    asked: tuple[tuple[Mapping[str, Any], PodPatch], ...]  # fields of Request → what it adds to the pod
    refused: tuple[
        tuple[Mapping[str, Any], tuple[str, str]], ...
    ]  # fields of Request → (field, code) of the only expected problem
    read: tuple[tuple[Mapping[str, Any], tuple[Held, ...]], ...]  # pod → what it holds
    settings: Settings = field(default_factory=Settings)
    live: tuple[Live, ...] = ()
    held: tuple[Stopped, ...] = ()  # nodes of the kit that this system holds back


def tables() -> dict[str, Table]:
    from tests.sharing import tables as package

    modules = [importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    return {module.TABLE.system: module.TABLE for module in modules}

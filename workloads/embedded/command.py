"""RunSpec → local process: arguments, environment, cards, and an interpreter for the image."""

from __future__ import annotations

import random
import re
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portal.errors import N_
from workloads import sharing
from workloads.runtime import mpi, rank_environment
from workloads.runtime.base import CardInfo, NodeInfo, Note, Refused, RunSpec, environment
from workloads.runtime.expansion import for_process
from workloads.runtime.places import DIRECTORY_VARIABLE
from workloads.runtime.rank_environment import LOOPBACK, Gang, Template
from workloads.sharing.nodes import MOST_CARDS

DECLARED = Note(N_("its cards are simulated"))
PORTS = range(20_000, 30_000)  # below the ephemeral ports, which outgoing connections take
OPTIONS: dict[str, type] = {"nodes": list, "namespace_prefix": str, "configurations": dict}
"""The options of an embedded cluster and their types; `configurations` is written by mode changes."""
TYPES: dict[str, type | tuple[type, ...]] = {
    "name": str, "sharing": str, "product": str, "unit": str, "cards": (int, list), "units_per_card": int, "instances": dict,
    "mig": str, "cpu_milli": int, "memory_mib": int, "pods": int, "devices": dict, "domain": str, "labels": dict,
    "held_back": str, "object": dict, "original": dict,
}  # fmt: skip
"""The keys of a declared node and the types of their values."""
NEEDED = ("name", "sharing", "product", "unit", "cards")
NODE_KEYS = ("instances", "mig", "cpu_milli", "memory_mib", "pods", "devices", "domain", "labels", "held_back")


def node_from(data: Mapping[str, Any]) -> NodeInfo:
    """A node as the cluster's options declare it; `cards` is a list of objects, or their number. If `object` is given, a
    Kubernetes Node, the result is what would be discovered from it. Raises KeyError."""
    if "object" in data and (node := sharing.discover(data["object"], sharing.Settings())) is not None:
        return node
    per_card = data.get("units_per_card", 1)
    cards = [{}] * data["cards"] if isinstance(data["cards"], int) else data["cards"]
    return NodeInfo(
        name=data["name"],
        sharing=data["sharing"],
        product=data["product"],
        unit=data["unit"],
        units_per_card=per_card,
        cards=tuple(
            CardInfo(
                index=card.get("index", position),
                units=card.get("units", per_card),
                cores=card.get("cores"),
                uuid=card.get("uuid", ""),
                healthy=card.get("healthy", True),
            )
            for position, card in enumerate(cards)
        ),
        because=str(DECLARED),
        because_of=DECLARED,
        **{key: data[key] for key in NODE_KEYS if key in data},
    )


def nodes_from(options: Mapping[str, Any]) -> list[NodeInfo]:
    """The nodes that a cluster's options declare. Raises ValueError that names the node and key."""
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise ValueError(f"unknown option {unknown[0]!r}; known: {', '.join(sorted(OPTIONS))}")
    for key, value in options.items():
        if not isinstance(value, OPTIONS[key]):
            raise ValueError(f"option {key} must be of type {OPTIONS[key].__name__}")
    if not re.fullmatch("[a-z0-9-]{0,31}", options.get("namespace_prefix", "")):
        raise ValueError("option namespace_prefix must be lowercase letters, digits and hyphens, at most 31")
    _check_configurations(options.get("configurations", {}))
    declared = enumerate(options.get("nodes", ()), start=1)
    nodes = [_checked(data, f"option nodes: node {place}") for place, data in declared]
    if len({node.name for node in nodes}) < len(nodes):
        raise ValueError("option nodes: two nodes have the same name")
    return nodes


def _check_configurations(configurations: Mapping[str, Any]) -> None:
    """Check what mode changes write: for the plugin and for mig-manager, texts by name. Raises ValueError."""
    for which, texts in configurations.items():
        if which not in ("plugin", "mig"):
            raise ValueError(f"option configurations.{which:.60} is not known: there are plugin and mig")
        if not isinstance(texts, dict):
            raise ValueError(f"option configurations.{which} must be an object")
        for name, text in texts.items():
            if not isinstance(text, str):
                raise ValueError(f"option configurations.{which}.{name:.60} must be a string, in quotes")


def _checked(data: Any, where: str) -> NodeInfo:
    """The declared node. Raises ValueError that begins with `where`."""
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be an object")
    for key, value in data.items():
        if key not in TYPES:
            raise ValueError(f"{where}: unknown key {key!r}; known: {', '.join(sorted(TYPES))}")
        if value is None and key not in NEEDED:
            continue
        if not isinstance(value, TYPES[key]) or isinstance(value, bool):
            raise ValueError(f"{where}: {key} cannot be {value!r:.60}")
        if isinstance(value, int) and value < (1 if key in ("cards", "units_per_card") else 0):
            raise ValueError(f"{where}: {key} cannot be {value}")
    cards = data.get("cards", 0)
    if (cards if isinstance(cards, int) else len(cards)) > MOST_CARDS:  # checked before that many are created
        raise ValueError(f"{where} can have at most {MOST_CARDS} cards")
    if missing := [key for key in NEEDED if "object" not in data and key not in data]:
        raise ValueError(f"{where} has no {missing[0]}")
    try:
        node = node_from(data)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{where} cannot be read: {error}") from error
    if node.sharing and node.sharing not in sharing.SYSTEMS:
        raise ValueError(f"{where}: there is no sharing system {node.sharing[:40]!r}")
    if not 1 <= len(node.name) <= 253 or not node.name.isprintable():
        raise ValueError(f"{where}: give a name of one line")
    return node


def free_port() -> int:
    """A free port. Raises Refused after a hundred tries."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Refused("no free port between 20000 and 29999 on this machine", "no_port")


def interpreter_for(image: str, images: Mapping[str, str]) -> Path:
    """The interpreter declared for the image. Raises Refused that lists the declared images."""
    if not (named := images.get(image)):
        known = ", ".join(sorted(name for name, path in images.items() if path)) or "none"
        raise Refused(f"{image} has no interpreter on this machine; declared are: {known}", "unknown_image")
    path = Path(named) if "/" in named else Path(sys.executable).with_name(named)
    if not path.exists():
        raise Refused(f"{image} is declared as {path}, which does not exist", "unknown_image")
    return path


@dataclass(frozen=True)
class Plan:
    """How to run a RunSpec here. `directory` belongs to the run, `workdir` survives the workload's attempts."""

    spec: RunSpec
    directory: Path
    workdir: Path
    interpreter: Path
    port: int | None
    ids: Mapping[tuple[str, int], str]  # UUIDs of real cards; CUDA may number cards in another order than the driver
    gang: Gang | None = None
    shared: Mapping[str, str] = field(default_factory=dict)  # environment variables with the paths of shared volumes

    def as_json(self) -> dict[str, Any]:
        """The content of spec.json, as supervisor.py reads it."""
        spec = self.spec
        return {
            "name": spec.ref.name,
            "namespace": spec.ref.namespace,
            "submission_id": spec.ref.submission_id,
            "workload_id": spec.workload_id,
            "attempt": spec.attempt,
            "node": spec.placement[0].node if spec.placement else "",
            "cards": [str(card) for place in spec.placement for card in place.cards],
            "alone_on": [[p.node, card] for p in spec.placement for card in p.cards] if spec.sharing == "whole" else [],
            "workdir": str(self.workdir),
            "grace": spec.grace,
            "max_runtime": spec.max_runtime,
            "port": self.port,
            "ready_path": spec.setup.ready_path,
            "restarts": spec.kind == "service",
            "leader_decides": self.gang is not None and self.gang.template in rank_environment.LEADER_DECIDES,
            "hostfile": rank_environment.hostfile(self.gang) if self.gang else "",
            "starter": mpi.SCRIPT if self.gang and self.gang.template == Template.MPI else "",
            "ranks": [self.rank(rank) for rank in range(spec.pods)],
        }

    def rank(self, rank: int) -> dict[str, Any]:
        env = self.environment(rank)
        program, *arguments = for_process(self.spec.command, self.spec.own_words, env)
        if program in {"python", "python3"}:
            program = str(self.interpreter)
        elif "/" not in program:  # found by the run's own PATH, never by the portal's
            program = shutil.which(program, path=env["PATH"]) or program
        places = [place for place in self.spec.placement if place.pod == rank]
        where = {"node": places[0].node if places else "", "cards": [str(card) for p in places for card in p.cards]}
        return {"argv": [program, *arguments], "env": env} | where

    def environment(self, rank: int) -> dict[str, str]:
        """The process's environment: nothing of the portal's own, and user variables cannot override the portal's."""
        spec = self.spec
        cards_of_rank = [(place.node, card) for place in spec.placement if place.pod == rank for card in place.cards]
        cards = ",".join(self.ids.get(card, "") or str(card[1]) for card in cards_of_rank)
        env = {
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",  # as in Python images: the log is read while it is written
            **environment(spec),
            "PATH": f"{self.interpreter.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.workdir),
            "NVIDIA_VISIBLE_DEVICES": cards or "void",
            "CUDA_VISIBLE_DEVICES": cards,
            "PORTAL_WORKDIR": str(self.workdir),
            "PORTAL_RECLAIM_AT_FILE": str(self.directory / "reclaim-at"),
            "PORTAL_READY_FILE": str(self.directory / "ready"),
            **self.shared,
        }
        if self.port is not None:
            env |= {"PORTAL_ADDRESS": "127.0.0.1", "PORTAL_PORT": str(self.port)}
        return env | rank_environment.environment(self.gang, rank) if self.gang else env


def gang_of(spec: RunSpec, directory: Path) -> Gang | None:
    """The gang on this one machine: each rank has its own port."""
    if spec.pods < 2:
        return None
    ports: set[int] = set()
    while len(ports) < spec.pods:
        ports.add(free_port())
    return Gang(
        template=Template(spec.setup.template or Template.GENERIC),
        hosts=(LOOPBACK,) * spec.pods,
        ports=tuple(sorted(ports)),
        cards=spec.units_per_pod,
        parameter_servers=spec.setup.parameter_servers,
        hostfile=str(directory / "hostfile"),
    )


def plan(
    spec: RunSpec, directory: Path, volume: Callable[[str], Path], nodes: Sequence[NodeInfo], images: Mapping[str, str]
) -> Plan:
    """The plan of a run. `volume`: name → directory. Raises Refused for a run that can never start here."""
    if not spec.command:
        raise Refused("an image of the embedded cluster has no command of its own: give one", "no_command")
    cards = {(node.name, card.index): card.uuid for node in nodes for card in node.cards}
    for place in spec.placement:
        for index in place.cards:
            if (place.node, index) not in cards:
                raise Refused(f"node {place.node} with card {index} is not declared", "unknown_card")
    port = free_port() if spec.port is not None else None
    interpreter = interpreter_for(spec.image, images)
    shared = {
        DIRECTORY_VARIABLE[each.whose]: str(volume(f"{spec.ref.namespace}-{each.name}")) for each in spec.shared_volumes
    }
    return Plan(spec, directory, volume(spec.volume), interpreter, port, cards, gang_of(spec, directory), shared)

"""The conditions and taints of a node that mean that its hardware is faulty."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from workloads.kubernetes.manifests.options import Options
from workloads.runtime.base import Fault, Note
from workloads.sharing.api import N_
from workloads.sharing.nodes import Facts

SOURCE = "node"  # prefix of the names of these faults


def faults(node: Facts, options: Options) -> Iterator[Fault]:
    """The faults of a node: conditions that match the option health_conditions, and taints that match health_taints."""
    for condition in node.conditions:
        kind, status = _line(str(condition.get("type", "")))[:120], str(condition.get("status", ""))
        if any(fnmatchcase(kind, each) and status == bad for each, bad in options.health_conditions.items()):
            message_of = str(condition.get("message") or condition.get("reason") or "")
            params = {"condition": kind, "status": status, "message": _line(message_of)}
            message = N_("node condition %(condition)s is %(status)s: %(message)s") if params["message"] else N_(
                "node condition %(condition)s is %(status)s"
            )  # fmt: skip
            yield Fault(f"{SOURCE}/condition/{kind}", Note(message, params))
    for key, value in ((_line(key)[:120], _line(value)[:63]) for key, value, _effect in node.taints):
        if any(fnmatchcase(key, each) for each in options.health_taints):
            text = f"{key}={value}" if value else key
            yield Fault(f"{SOURCE}/taint/{key}", Note(N_("node taint %(taint)s"), {"taint": text}))


def _line(text: str) -> str:
    """One short, printable line: agents write whole logs there."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]

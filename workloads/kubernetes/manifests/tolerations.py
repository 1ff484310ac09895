"""The taints that the portal's pods tolerate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from workloads.kubernetes.manifests.options import Options
from workloads.runtime.base import Note
from workloads.sharing.api import N_
from workloads.sharing.nodes import Facts

OF_GPUS: Mapping[str, str] = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
KEEPS_AWAY = ("NoSchedule", "NoExecute")
SAID_BY_CONDITIONS = tuple(f"node.kubernetes.io/{what}" for what in ("unschedulable", "not-ready", "unreachable"))


def tolerations(options: Options, more: Iterable[Mapping[str, str]] = ()) -> list[dict[str, str]]:
    """The tolerations of every pod of the portal."""
    return [dict(each) for each in (OF_GPUS, *options.tolerations, *more)]


def not_tolerated(node: Facts, options: Options) -> Iterator[Note]:
    """The taints of a node that keep the portal's pods away, except those that only repeat that it is cordoned or not ready."""
    for key, value, effect in node.taints:
        if effect not in KEEPS_AWAY or key in SAID_BY_CONDITIONS:
            continue
        if not any(_tolerates(each, key, value, effect) for each in tolerations(options)):
            text = f"{key}={value}:{effect}" if value else f"{key}:{effect}"
            yield Note(
                N_("its taint %(taint)s keeps pods away: remove it, or tolerate it in the cluster's option “tolerations”"),
                {"taint": text[:120]},
            )  # fmt: skip


def _tolerates(toleration: Mapping[str, Any], key: str, value: str, effect: str) -> bool:
    """As in Kubernetes: no effect tolerates every effect; Exists without a key tolerates every taint."""
    if toleration.get("effect") not in (None, "", effect):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", key)
    return (toleration.get("key"), toleration.get("value", "")) == (key, value)

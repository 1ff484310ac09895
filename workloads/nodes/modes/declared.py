"""Declared nodes of an embedded cluster: a mode change changes the declaration, by the same labels and configurations.
What the device plugin and mig-manager do on a real node is done here at once, so nothing is ever pending.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import yaml

from portal.infra.locks import durable
from quotas.models import Cluster
from workloads import sharing
from workloads.nodes.modes.mig_layouts import layout_of
from workloads.nodes.modes.recipes import ACK, MIG_CONFIG, MIG_STATE, PLUGIN_CONFIG, named_layouts
from workloads.runtime.base import Refused
from workloads.sharing import SYSTEMS
from workloads.sharing.api import NONE
from workloads.sharing.mig import SINGLE, labelled_memory, slices, table_of
from workloads.sharing.timeslicing import SUFFIX

CONFIGS = "configurations"  # key of the cluster's options: {"plugin": {…}, "mig": {…}}
SHAPE = ("sharing", "unit", "units_per_card", "mig", "instances")
ORIGINAL = "original"  # key of a declaration: the Node object from which it was made
PRODUCT = "nvidia.com/gpu.product"
WRITTEN_BY_PLUGINS = (
    MIG_STATE, "nvidia.com/mig.strategy", "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas",
)  # fmt: skip
OF_MEMORY = {  # system → the label and value that select a node for its plugin
    "memory": ("gpushare", "true"), "hami": ("gpu", "on"), "ack": (ACK, "cgpu"), "ack-core": (ACK, "core_mem"),
}  # fmt: skip
STRATEGIES = {"timeSlicing": ("timeslicing", "time-slicing"), "mps": ("mps", "mps")}


class DeclaredKeeper:
    def __init__(self, cluster: int) -> None:
        self._cluster = cluster

    def labels(self, node: str) -> dict[str, str]:
        return dict(_find(self._options(), node)["labels"])

    def set_labels(self, node: str, labels: Mapping[str, str | None]) -> None:
        with durable():
            row = Cluster.objects.select_for_update(no_key=True, of=("self",)).get(pk=self._cluster)
            declared = _find(row.options, node)
            merged = {**declared["labels"], **labels}
            declared["labels"] = {name: value for name, value in merged.items() if value is not None}
            changed = redeclared(declared, row.options.get(CONFIGS, {}))
            row.options["nodes"] = [changed if name_of(each) == node else each for each in row.options["nodes"]]
            row.save(update_fields=["options"])

    def may_write(self, which: str) -> bool:
        return True

    def config(self, which: str) -> dict[str, str]:
        return dict(self._options().get(CONFIGS, {}).get(which, {}))

    def write_config(self, which: str, data: Mapping[str, str]) -> None:
        with durable():
            row = Cluster.objects.select_for_update(no_key=True, of=("self",)).get(pk=self._cluster)
            configs = row.options.setdefault(CONFIGS, {})
            configs[which] = {**configs.get(which, {}), **data}
            row.save(update_fields=["options"])

    def restarted(self, which: str, node: str, since: dt.datetime) -> bool:
        return True

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = Cluster.objects.values_list("options", flat=True).get(pk=self._cluster)
        return options


def name_of(declared: Mapping[str, Any]) -> str:
    """The name of a declared node, which is in its Node object if it is declared by one."""
    name: str = declared["object"]["metadata"]["name"] if "object" in declared else declared["name"]
    return name


def _find(options: dict[str, Any], node: str) -> dict[str, Any]:
    """The declaration of a node, always with `labels`. Raises Refused if there is none."""
    declared = next((each for each in options.get("nodes", ()) if name_of(each) == node), None)
    if declared is None:
        raise Refused(f"{node} is not declared: it is this machine, whose cards stay whole", code="unsupported")
    return _of_object(declared["object"]) if "object" in declared else {"labels": {}, **declared}


def _of_object(node: dict[str, Any]) -> dict[str, Any]:
    """The plain declaration for a node that was declared by a Node object. ORIGINAL keeps the object, so that the node can be
    changed back to it. Raises Refused."""
    info = sharing.discover(node)
    if info is None or not info.cards:
        raise Refused(f"{node['metadata']['name']} shows no card", code="unsupported")
    return {
        "name": info.name, "product": table_key(info.product), "cards": len(info.cards), "cpu_milli": info.cpu_milli,
        "memory_mib": info.memory_mib, "domain": info.domain, "labels": dict(info.labels), ORIGINAL: node,
    }  # fmt: skip


def table_key(product: str) -> str:
    """The product of a card, however it is shared now."""
    return product.partition(SINGLE)[0].removesuffix(SUFFIX)


def redeclared(node: dict[str, Any], configs: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The declaration that the node's labels select. Raises Refused if a configuration does not exist, or if memory is shared
    and no label has the memory of the cards."""
    labels: dict[str, str] = node["labels"]
    if (original := node.get(ORIGINAL)) and _chosen(labels) == _chosen(original["metadata"]["labels"]):
        return {"object": original}
    count = node["cards"] if isinstance(node["cards"], int) else len(node["cards"])
    plain = {key: value for key, value in node.items() if key not in SHAPE} | {"cards": count}
    for name in WRITTEN_BY_PLUGINS:
        labels.pop(name, None)
    if PRODUCT in labels:
        labels[PRODUCT] = table_key(labels[PRODUCT])
    if system := next((key for key, (label, value) in OF_MEMORY.items() if labels.get(label) == value), None):
        return plain | _memory(system, node["name"], labels, count)
    if key := labels.get(PLUGIN_CONFIG):
        return plain | _replicas(labels, key, configs.get("plugin", {}))
    if labels.get(MIG_CONFIG, "all-disabled") != "all-disabled":
        return plain | _instances(node["product"], labels, count, configs.get("mig", {}))
    return plain | {"sharing": "whole", "unit": "card", "units_per_card": 1}


def _chosen(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that were set to choose a mode, without those in which plugins report what they found."""
    return {name: value for name, value in labels.items() if name not in {*WRITTEN_BY_PLUGINS, PRODUCT}}


def _memory(system: str, name: str, labels: Mapping[str, str], count: int) -> dict[str, Any]:
    """Cards shared in MiB, in steps of the system's plugin; with compute if the system limits that too."""
    memory = labelled_memory(labels)
    about = SYSTEMS[system].ABOUT
    each = memory // about.step * about.step
    if not each:
        raise Refused(f"{name} has no label nvidia.com/gpu.memory that says how much to give out", code="no_memory")
    limited = about.cores != NONE
    cards = [{"units": each, "cores": 100}] * count if limited else count
    return {"sharing": system, "unit": "MiB", "units_per_card": each, "cards": cards}


def _replicas(labels: dict[str, str], key: str, configs: Mapping[str, str]) -> dict[str, Any]:
    sharing = (yaml.safe_load(configs.get(key, "")) or {}).get("sharing", {})
    strategy = next((name for name in STRATEGIES if name in sharing), None)
    if strategy is None:
        raise Refused(f"the device plugin has no configuration {key}", code="no_such_config")
    replicas = sharing[strategy]["resources"][0]["replicas"]
    system, label = STRATEGIES[strategy]
    labels |= {"nvidia.com/gpu.sharing-strategy": label, "nvidia.com/gpu.replicas": str(replicas)}
    return {"sharing": system, "unit": "replica", "units_per_card": replicas}


def _instances(product: str, labels: dict[str, str], count: int, configs: Mapping[str, str]) -> dict[str, Any]:
    table, config = table_of(product, labelled_memory(labels)), labels[MIG_CONFIG]
    if table is None:
        raise Refused(f"no MIG profiles are known of {product}", code="no_such_config")
    if config in (named := named_layouts(table)):
        totals = {profile: each * count for profile, each in named[config]}
    else:
        entries = (yaml.safe_load(configs.get("config.yaml", "")) or {}).get("mig-configs", {}).get(config)
        if entries is None:
            raise Refused(f"mig-manager has no configuration {config}", code="no_such_config")
        totals = {}
        for entry in entries:
            for profile, each in layout_of(entry.get("mig-devices") or {}):
                totals[profile] = totals.get(profile, 0) + each * len(entry["devices"])
    labels |= {MIG_STATE: "success", "nvidia.com/mig.strategy": "mixed"}
    return {"sharing": "mig", "unit": "slice", "units_per_card": slices(table), "mig": table, "instances": totals}

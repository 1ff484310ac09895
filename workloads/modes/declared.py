"""Declared nodes of an embedded cluster: changing one's mode changes its declaration, by the same labels and texts.

What device plugin and mig-manager do on a real node is done here at once, so nothing is ever pending.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import yaml

from portal.locks import durable
from quotas.engine.repartition import layout_of
from quotas.models import Cluster
from workloads.clusters.base import Refused
from workloads.modes.recipes import MIG_CONFIG, MIG_STATE, PLUGIN_CONFIG, named_layouts
from workloads.sharing.mig import TABLES, slices

CONFIGS = "configurations"  # key of the cluster's options: {"plugin": {…}, "mig": {…}}
SHAPE = ("sharing", "unit", "units_per_card", "mig", "instances")
STRATEGIES = {"timeSlicing": ("timeslicing", "time-slicing"), "mps": ("mps", "mps")}


class DeclaredKeeper:
    def __init__(self, cluster: int) -> None:
        self._cluster = cluster

    def labels(self, node: str) -> dict[str, str]:
        return dict(_find(self._options(), node).get("labels", {}))

    def set_labels(self, node: str, labels: Mapping[str, str | None]) -> None:
        with durable():
            row = Cluster.objects.select_for_update(no_key=True, of=("self",)).get(pk=self._cluster)
            declared = _find(row.options, node)
            merged = {**declared.get("labels", {}), **labels}
            declared["labels"] = {name: value for name, value in merged.items() if value is not None}
            changed = redeclared(declared, row.options.get(CONFIGS, {}))
            row.options["nodes"] = [changed if each["name"] == node else each for each in row.options["nodes"]]
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


def _find(options: dict[str, Any], node: str) -> dict[str, Any]:
    found = next((each for each in options.get("nodes", ()) if each["name"] == node), None)
    if found is None:
        raise Refused(f"{node} is not declared: it is this machine, whose cards stay whole", code="unsupported")
    return dict(found)


def redeclared(node: dict[str, Any], configs: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The declaration that its labels ask for. Raises Refused for a configuration that is not there."""
    labels: dict[str, str] = node["labels"]
    count = node["cards"] if isinstance(node["cards"], int) else len(node["cards"])
    plain = {key: value for key, value in node.items() if key not in SHAPE} | {"cards": count}
    for name in (MIG_STATE, "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas"):
        labels.pop(name, None)
    memory = int(labels.get("nvidia.com/gpu.memory", "0"))
    if labels.get("gpushare") == "true":
        return plain | {"sharing": "memory", "unit": "MiB", "units_per_card": memory // 1024 * 1024}
    if labels.get("gpu") == "on":
        cards = [{"units": memory, "cores": 100}] * count
        return plain | {"sharing": "hami", "unit": "MiB", "units_per_card": memory, "cards": cards}
    if key := labels.get(PLUGIN_CONFIG):
        return plain | _replicas(labels, key, configs.get("plugin", {}))
    if labels.get(MIG_CONFIG, "all-disabled") != "all-disabled":
        return plain | _instances(node["product"], labels, count, configs.get("mig", {}))
    return plain | {"sharing": "whole", "unit": "card", "units_per_card": 1}


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
    table, config = TABLES.get(product), labels[MIG_CONFIG]
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

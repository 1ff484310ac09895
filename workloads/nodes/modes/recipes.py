"""What to write so that a node shares its cards in another way, and how to recognize that it does. PURE.
| mode | written | sign of success |
|---|---|---|
| whole | mig.config all-disabled, no device-plugin.config, the other modes' labels undone | system `whole` |
| timeslicing, mps | a key of the device plugin's ConfigMap, its pod on the node restarted, | that system, with so many |
| | `nvidia.com/device-plugin.config` | replicas of each card |
| mig | `nvidia.com/mig.config`; where each card gets a layout of its own, | `mig.config.state` success, and |
| | a key in mig-manager's ConfigMap first | exactly the requested instances |
| memory, hami, ack, ack-core | the labels of its node, NVIDIA's device plugin off | that system |

A mode is the key of the system (workloads.sharing.SYSTEMS) that its nodes run.

Sources: NVIDIA/gpu-operator docs gpu-sharing.rst and gpu-operator-mig.rst, assets/state-mig-manager; NVIDIA/mig-parted
examples/config.yaml; AliyunContainerService gpushare install.md; Alibaba Cloud ACK docs; Project-HAMi README.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quotas.engine.mig_profiles import PRODUCTS
from workloads.nodes.modes.mig_layouts import Layout, instances_of, layout_of, uniform_layout

PLUGIN_CONFIG, PLUGIN = "nvidia.com/device-plugin.config", "nvidia.com/gpu.deploy.device-plugin"
MIG_CONFIG, MIG_STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
ACK = "ack.node.gpu.schedule"
# Labels that choose a mode: those that another mode set are reset. None: the label is removed.
PLAIN: dict[str, str | None] = {
    PLUGIN_CONFIG: None, PLUGIN: "true", MIG_CONFIG: "all-disabled", "gpushare": None, "gpu": None, ACK: None,
}  # fmt: skip
BALANCED: dict[str, dict[str, int]] = {  # gpu-operator's all-balanced
    "A30": {"1g.6gb": 2, "2g.12gb": 1},
    "A100-40GB": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
    "A100-80GB": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
    "H100-80GB": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
    "H200-141GB": {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1},
    "B200-180GB": {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1},
    "H100-94GB": {"1g.12gb": 2, "2g.24gb": 1, "3g.47gb": 1},
    "H100-96GB": {"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1},
    "GH200-144GB": {"1g.18gb": 2, "2g.36gb": 1, "3g.72gb": 1},
    "GB200-186GB": {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1},
    "B300-269GB": {"1g.34gb": 2, "2g.67gb": 1, "3g.135gb": 1},
    "RTX-PRO-6000-96GB": {"1g.24gb": 2, "2g.48gb": 1},
}


@dataclass(frozen=True, slots=True)
class Target:
    """The mode that an operator wants for a node. `mode`: one of MODES; the other fields are used where the mode has them."""

    mode: str
    replicas: int = 0
    rename: bool = True
    config: str = ""  # mig: a configuration that mig-manager has
    layouts: tuple[Layout, ...] = ()  # mig: one for each card
    mig: str = ""  # the product's key in the table of profiles

    @property
    def instances(self) -> dict[str, int]:
        """mig: the instances of the whole node."""
        return instances_of(self.layouts)

    def as_json(self) -> dict[str, Any]:
        return {
            "mode": self.mode, "replicas": self.replicas, "rename": self.rename, "config": self.config,
            "layouts": [dict(layout) for layout in self.layouts], "mig": self.mig,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Target:
        return cls(**{**data, "layouts": tuple(layout_of(each) for each in data.get("layouts", ()))})


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key of a ConfigMap. `which`: "plugin" or "mig"; the cluster's options name its ConfigMap."""

    which: str
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """Carried out in this order: write the entry, restart the pods that read it on this node, write the labels."""

    labels: Mapping[str, str | None] = field(default_factory=dict)
    entry: ConfigEntry | None = None


MODES = ("whole", "timeslicing", "mps", "mig", "memory", "hami", "ack", "ack-core")


def recipe(target: Target, present: Mapping[str, str]) -> Recipe:
    """What changes a node with the labels `present` to the target. Raises ValueError for an impossible target."""
    wanted = PLAIN | _labels(target)
    if not any(key.startswith("nvidia.com/mig.") for key in present) and target.mode != "mig":
        del wanted[MIG_CONFIG]  # mig-manager has never run on the node
    labels = {key: value for key, value in sorted(wanted.items()) if present.get(key) != value}
    if PLUGIN not in present and labels.get(PLUGIN) == "true":
        del labels[PLUGIN]
    return Recipe(labels, _entry(target))


def _labels(target: Target) -> dict[str, str | None]:
    match target.mode:
        case "whole":
            return {}
        case "timeslicing" | "mps":
            return {PLUGIN_CONFIG: plugin_key(target)}
        case "mig":
            return {MIG_CONFIG: target.config or mig_key(target)}
        case "memory":
            return {"gpushare": "true", PLUGIN: "false"}
        case "ack" | "ack-core":
            return {ACK: "cgpu" if target.mode == "ack" else "core_mem", PLUGIN: "false"}
        case "hami":
            return {"gpu": "on", PLUGIN: "false"}
    raise ValueError(f"there is no mode {target.mode}")


def _entry(target: Target) -> ConfigEntry | None:
    if target.mode in ("timeslicing", "mps"):
        return ConfigEntry("plugin", plugin_key(target), plugin_text(target))
    if target.mode == "mig" and not target.config:
        return ConfigEntry("mig", mig_key(target), mig_text(target))
    return None


def plugin_key(target: Target) -> str:
    """The key of the plugin's ConfigMap, the same for all nodes with the same sharing."""
    renamed = "-renamed" if target.rename else ""
    return f"{target.mode}-{target.replicas}{renamed}"


def plugin_text(target: Target) -> str:
    """The device plugin's configuration. A pod may request only one replica, because several would not be several cards."""
    if target.replicas < 2:
        raise ValueError("a card is shared by 2 or more")
    sharing = {"timeslicing": "timeSlicing", "mps": "mps"}[target.mode]
    return (
        "version: v1\n"
        "sharing:\n"
        f"  {sharing}:\n"
        f"    renameByDefault: {'true' if target.rename else 'false'}\n"
        "    failRequestsGreaterThanOne: true\n"
        "    resources:\n"
        "    - name: nvidia.com/gpu\n"
        f"      replicas: {target.replicas}\n"
    )


def mig_key(target: Target) -> str:
    """The name of mig-manager's entry, derived from its content, so that the same layouts share an entry."""
    return f"portal-{hashlib.sha256(repr(target.layouts).encode()).hexdigest()[:10]}"


def mig_text(target: Target) -> str:
    """The entry of mig-parted's configuration, with cards of the same layout together."""
    lines = [f"  {mig_key(target)}:"]
    for layout in dict.fromkeys(target.layouts):
        cards = ", ".join(str(i) for i, each in enumerate(target.layouts) if each == layout)
        lines.append(f"  - devices: [{cards}]")
        lines.append(f"    mig-enabled: {'true' if layout else 'false'}")
        if layout:
            lines.append("    mig-devices:")
            lines += [f'      "{profile}": {count}' for profile, count in layout]
    return "\n".join(lines) + "\n"


def with_entry(entry: ConfigEntry, data: Mapping[str, str]) -> dict[str, str]:
    """The ConfigMap's data with the entry added; the rest stays exactly as it is.
    Raises ValueError if an entry of that name has another content, because other nodes may be using it.
    """
    if entry.which == "plugin":
        if data.get(entry.key, entry.text) != entry.text:
            raise ValueError(f"{entry.key} is there already and says something else")
        return {**data, entry.key: entry.text}
    text = data.get("config.yaml", "version: v1\nmig-configs:\n")
    if entry.text in text:
        return dict(data)
    head, mark, rest = text.partition("mig-configs:\n")
    if not mark:
        raise ValueError("config.yaml has no mig-configs")
    return {**data, "config.yaml": head + mark + entry.text + rest}


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """A unified diff of the keys that differ."""
    lines: list[str] = []
    for key in sorted({*before, *after}):
        old, new = before.get(key, "").splitlines(), after.get(key, "").splitlines()
        lines += difflib.unified_diff(old, new, f"{key} (now)", f"{key} (after)", lineterm="")
    return lines


def named_layouts(product: str) -> dict[str, Layout]:
    """mig-manager's own configurations that give every card of a product the same layout."""
    named = {f"all-{name.replace('+', '.')}": uniform_layout(product, name) for name in PRODUCTS[product]}
    return named | {"all-balanced": layout_of(BALANCED[product])} if product in BALANCED else named


def is_as_wanted(
    target: Target, *, system: str, held_back: str, labels: Mapping[str, str], instances: Mapping[str, int],
    units_per_card: int,
) -> bool:  # fmt: skip
    """Whether a node, as the inventory found it, has the target mode and takes pods."""
    if system != target.mode or held_back:
        return False
    if target.mode == "mig":
        return labels.get(MIG_STATE) == "success" and dict(instances) == target.instances
    if target.mode in ("timeslicing", "mps"):
        return labels.get(PLUGIN_CONFIG) == plugin_key(target) and units_per_card == target.replicas
    return True

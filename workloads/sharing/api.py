"""What every module of this package speaks: nodes and pods are Kubernetes JSON as parsed, answers are these types.

A sharing system is a module with four functions:

    discover(node, settings) -> NodeInfo            which cards a node of this system offers, and their health
    validate(request, settings) -> tuple[Problem, …]    what such a request may not ask for; empty: fine
    manifest(request, settings) -> PodPatch         how a pod asks for it
    read_back(pod) -> tuple[str, …]                 which devices a running pod got, as far as the system tells
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from workloads.clusters.base import NodeInfo

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """What cannot be read from the cluster and its operator has to say."""

    gpu_mem_unit: str = "GiB"  # of aliyun.com/gpu-mem: the flag --memory-unit of gpushare's device plugin


@dataclass(frozen=True, slots=True)
class Request:
    """What one pod asks of a pool: `units` in the pool's native unit."""

    product: str
    units: int
    pods: int = 1
    profile: str | None = None
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cores: int | None = None  # percent of a card's compute, where the system limits that too


@dataclass(frozen=True, slots=True)
class Problem:
    """A request that cannot be; `field` is the one to change, `params` the numbers for a translated sentence."""

    field: str
    code: str
    detail: str
    params: Mapping[str, str | int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodPatch:
    """What a sharing system adds to a pod and to its one container."""

    limits: Mapping[str, str] = dataclasses.field(default_factory=dict)
    node_selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    scheduler: str = ""


class System(Protocol):
    """A module of this package."""

    def discover(self, node: Json, settings: Settings) -> NodeInfo: ...

    def validate(self, request: Request, settings: Settings) -> Sequence[Problem]: ...

    def manifest(self, request: Request, settings: Settings) -> PodPatch: ...

    def read_back(self, pod: Json) -> tuple[str, ...]: ...


# A container that sets these takes cards it was not given, or slips out of its limit.
RESERVED_ENV = frozenset({"NVIDIA_VISIBLE_DEVICES", "CUDA_DISABLE_CONTROL", "LD_PRELOAD"})


def reserved_env(request: Request) -> tuple[Problem, ...]:
    return tuple(
        Problem("env", "reserved_variable", f"{name} is set by the cluster and may not be chosen", {"name": name})
        for name in sorted(RESERVED_ENV & set(request.env))
    )


def labels_of(node: Json) -> dict[str, str]:
    return dict(node["metadata"].get("labels") or {})


def notes_of(node: Json) -> dict[str, str]:
    return dict(node["metadata"].get("annotations") or {})


def amount(node: Json, resource: str, of: str = "allocatable") -> int:
    """An extended resource of a node; absent and 0 mean the same (a plugin that stopped leaves either)."""
    return int((node.get("status", {}).get(of) or {}).get(resource, 0))


def quantity(text: str) -> float:
    """A Kubernetes quantity as a number: "250m" → 0.25, "64" → 64.0, "16Ki" → 16384.0."""
    suffixes = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
    binary = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
    for suffix, factor in (binary | suffixes).items():
        if text.endswith(suffix):
            return float(text[: -len(suffix)]) * factor
    return float(text)


def host(node: Json) -> dict[str, Any]:
    """The fields of NodeInfo that do not depend on the sharing system."""
    allocatable = node.get("status", {}).get("allocatable") or {}
    named = labels_of(node)
    return {
        "name": node["metadata"]["name"],
        "cpu_milli": int(quantity(allocatable.get("cpu", "0")) * 1000),
        "memory_mib": int(quantity(allocatable.get("memory", "0")) // 2**20),
        "domain": named.get("nvidia.com/gpu.clique") or named.get("topology.kubernetes.io/rack", ""),
        "held_back": not_ready(node),
        "labels": named,
    }


def not_ready(node: Json) -> str:
    """Why a node takes no new pods whatever its cards are; "" if it does."""
    if node.get("spec", {}).get("unschedulable"):
        return "cordoned"
    for condition in node.get("status", {}).get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] != "True":
            return f"not ready since {condition.get('lastTransitionTime', 'unknown')}: {condition.get('reason', '')}"
    return ""


def allocated_devices(pod: Json) -> tuple[str, ...]:
    """Device ids that the kubelet reports (ResourceHealthStatus, on since Kubernetes 1.36); () where it does not."""
    return tuple(
        device["resourceID"]
        for container in pod.get("status", {}).get("containerStatuses") or ()
        for resource in container.get("allocatedResourcesStatus") or ()
        for device in resource.get("resources") or ()
    )

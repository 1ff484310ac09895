"""What an operator may set for one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from workloads import sharing


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator may set for one cluster. The portal's name on it (`instance`) tells two portals' pods apart."""

    instance: str = "portal"
    namespace_prefix: str = "gqp-"
    volume: str = "pvc"  # pvc: one claim a workload, survives its attempts | emptyDir: lost with the pod
    storage_class: str = ""  # empty: the cluster's default
    volume_size: str = "50Gi"
    access_mode: str = "ReadWriteOnce"
    run_as: int = 1000  # uid and gid in the container
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    runtime_class: str = ""
    tolerations: tuple[Mapping[str, str], ...] = ()
    gpu_mem_unit: str = "GiB"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Options:
        """Raises ValueError that names the key: an operator typed this."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise ValueError(f"unknown option {unknown[0]}; known: {', '.join(sorted(known))}")
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
        }
        for f in fields(cls):
            if f.name in values and not isinstance(values[f.name], type(f.default)):
                raise ValueError(f"option {f.name} must be of type {type(f.default).__name__}")
        options = cls(**values)
        for key, allowed in (("volume", ("pvc", "emptyDir")), ("gpu_mem_unit", ("GiB", "MiB"))):
            if getattr(options, key) not in allowed:
                raise ValueError(f"option {key} must be one of {', '.join(allowed)}")
        return options

    @property
    def sharing(self) -> sharing.Settings:
        return sharing.Settings(gpu_mem_unit=self.gpu_mem_unit)

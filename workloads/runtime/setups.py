"""Settings that only some kinds of workloads have: the gang's template, the service's port. Pure; one value everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

MOST_PODS, MOST_RESTARTS = 512, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Stored as JSON with a workload, a preset and a request; fields with their default are not written.

    | field | kinds | meaning |
    |---|---|---|
    | `template` | distributed | which variables a rank gets about the others: a workloads.runtime.rank_environment.Template |
    | `parameter_servers` | distributed | how many of the pods are parameter servers (template tensorflow-ps) |
    | `same_domain` | distributed | all pods in one NVLink or rack domain |
    | `rdma` | job, distributed | units of the cluster's RDMA resource for each pod |
    | `max_restarts` | job, distributed | how often the whole workload is restarted after a failure of its own |
    | `shm_mib` | all | size of /dev/shm; None: half of the memory |
    | `port`, `ready_path` | service | where it listens; the path that answers 2xx or 3xx once it is ready ("": any connection) |
    | `department_volume` | all | mounts the volume that its whole department shares |
    | `user_volume` | all | mounts its author's own volume in this department |
    | `ipc_lock` | all | may lock memory (RDMA): runs as root with IPC_LOCK in the department's second namespace |
    | `extra` | all | further options of the pool's sharing system: names of its About.extra |
    """

    template: str = ""
    parameter_servers: int = 0
    same_domain: bool = False
    rdma: int = 0
    max_restarts: int = 0
    shm_mib: int | None = None
    port: int | None = None
    ready_path: str = ""
    department_volume: bool = False
    user_volume: bool = False
    ipc_lock: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Setup:
        """The setup from stored JSON. Keys that only a newer portal knows are left out."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})

    @classmethod
    def checked(cls, data: Any) -> Setup:
        """The setup from JSON that a person wrote. Raises ValueError that names the key."""
        types = {field.name: field.type for field in fields(cls)}
        if not isinstance(data, dict):
            raise ValueError("an object in braces, please")
        for key, value in data.items():
            if key not in types:
                raise ValueError(f"there is no {key}; there are {', '.join(types)}")
            wanted = str(types[key]).removesuffix(" | None")
            texts = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
            if not texts if wanted.startswith("Mapping") else type(value).__name__ != wanted:
                raise ValueError(f"{key} is of type {wanted}")
        return cls(**data)

    def as_json(self) -> dict[str, Any]:
        plain = asdict(Setup())
        return {name: value for name, value in asdict(self).items() if value != plain[name]}


NAMES = tuple(each.name for each in fields(Setup))

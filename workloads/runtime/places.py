"""What exists on a cluster beside runs: volumes, and a department's namespaces. A part of the contract in base.py."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VolumeRef:
    """Identifies a working directory on its cluster, with its owner. `nodes`: where its runs may be, as far as is known."""

    name: str
    namespace: str
    workload_id: str
    department: str
    user: str
    nodes: tuple[str, ...] = ()
    unrestricted: bool = False  # in the department's second namespace


DEPARTMENT_VOLUME, USER_VOLUME = "department", "user"
# The environment variable with the path of each in the container.
DIRECTORY_VARIABLE = {DEPARTMENT_VOLUME: "PORTAL_DEPARTMENT_DIR", USER_VOLUME: "PORTAL_USER_DIR"}


@dataclass(frozen=True, slots=True)
class SharedVolume:
    """A volume that outlives workloads; the portal never deletes it. `whose`: DEPARTMENT_VOLUME or USER_VOLUME."""

    name: str
    whose: str
    user: str = ""


@dataclass(frozen=True, slots=True)
class KeptVolume:
    """A working directory that exists."""

    volume: VolumeRef
    created_at: dt.datetime


@dataclass(frozen=True, slots=True)
class Home:
    """A department's namespace on a cluster. `hard`: resource, as a ResourceQuota names it → the most of it.
    `unrestricted`: the second namespace, for what the Pod Security Standard `restricted` forbids.
    """

    namespace: str
    department: str
    hard: Mapping[str, int]
    unrestricted: bool = False

"""What stands on a cluster beside runs: volumes, and a department's namespace. A part of the contract in base.py."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VolumeRef:
    """Names a working directory on its cluster, and whose it is. `nodes`: where its runs may be, as far as is known."""

    name: str
    namespace: str
    workload_id: str
    department: str
    user: str
    nodes: tuple[str, ...] = ()
    unrestricted: bool = False  # in the department's second namespace


DEPARTMENT_VOLUME, USER_VOLUME = "department", "user"
# Where a container finds each of them.
DIRECTORY_VARIABLE = {DEPARTMENT_VOLUME: "PORTAL_DEPARTMENT_DIR", USER_VOLUME: "PORTAL_USER_DIR"}


@dataclass(frozen=True, slots=True)
class SharedVolume:
    """A volume that outlives workloads. `whose`: the department's or its author's own; the portal never removes it."""

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
    """A department's place on a cluster. `hard`: resource, as a ResourceQuota names it → how many at most.

    `unrestricted`: the second one, for what the Pod Security Standard `restricted` forbids.
    """

    namespace: str
    department: str
    hard: Mapping[str, int]
    unrestricted: bool = False

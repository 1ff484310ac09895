"""A request for a workload. Its rules are in validation.py."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from portal import names
from portal.models import Department, User
from quotas.engine.mig_profiles import profile_of
from quotas.engine.units import beside_units
from quotas.models import Cluster, ClusterKind, Pool
from workloads import sharing
from workloads.kubernetes.manifests import Options
from workloads.models import Image, Preset, Workload
from workloads.runtime import expansion
from workloads.runtime.setups import Setup
from workloads.sharing import SYSTEMS

LONGEST = 30 * 24 * 3600  # s


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRequest:
    """A request for a workload. `units_per_pod` is in the pool's unit (0 with a `profile`, which has its own charge),
    `cores_per_pod` in percent of a card's compute where the sharing system limits compute, times are in seconds."""

    kind: str
    name: str
    pool: Pool
    image: Image
    command: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    secret_env: dict[str, str] = field(default_factory=dict, repr=False)
    pods: int = 1
    units_per_pod: int = 1
    cores_per_pod: int | None = None
    profile: str = ""
    cpu_milli: int = 1000
    memory_mib: int = 2048
    priority: int = 0
    max_runtime: int | None = None
    max_wait: int | None = None
    own_only: bool = False
    preemptible: bool = True
    setup: Setup = field(default_factory=Setup)
    preset: Preset | None = None
    rerun_of: Workload | None = None

    @property
    def charge(self) -> int:
        """Units charged for each pod: the largest of its shares of a card's GPU memory, of its compute, and of the CPU and
        host memory that come with a card, rounded up."""
        return max(self.card_charge, self.beside_charge)

    @property
    def beside_charge(self) -> int:
        """Units charged for a pod's CPU and host memory."""
        return beside_units((self.cpu_milli, self.memory_mib), self.pool.units_per_card, self.pool.with_a_card)

    @property
    def on_card(self) -> int:
        """Units that a pod occupies on its card, or on its cards together."""
        return self.card_charge if self.profile else self.units_per_pod or self.card_charge

    @property
    def card_charge(self) -> int:
        """Units charged for a pod's share of the card itself."""
        profile = profile_of(self.pool.mig or None, self.profile) if self.profile else None
        system = SYSTEMS.get(self.pool.sharing)
        if profile or system is None:
            return profile.size if profile else self.units_per_pod
        asked = sharing.Request(
            self.pool.product, self.units_per_pod, cores=self.cores_per_pod, units_per_card=self.pool.units_per_card,
            cores_per_card=self.pool.card_cores or 100,
        )  # fmt: skip
        return sharing.charge(asked, system.ABOUT)

    @property
    def own_words(self) -> frozenset[int]:
        """Positions of the words of the command that come from a preset, here or in the workload that this one repeats. In
        these, $(PORTAL_…) is replaced."""
        known = set(self.preset.command) if self.preset else set()
        if self.rerun_of is not None:
            before = self.rerun_of
            known |= {before.command[at] for at in before.own_words}
        words = enumerate(self.command)
        return frozenset(at for at, word in words if word in known and expansion.has_names(word))

    def workload(self, department: Department, author: User | None, *, now: dt.datetime) -> Workload:
        """The unsaved row of this request; the caller that saves it adds the secret variables."""
        return Workload(
            department=department,
            author=author,
            kind=self.kind,
            name=names.tidy(self.name),
            pool=self.pool,
            preset=self.preset,
            image=self.image,
            command=list(self.command),
            own_words=sorted(self.own_words),
            env=self.env,
            pods=self.pods,
            units_per_pod=self.charge,
            asked_per_pod=self.on_card,
            cores_per_pod=self.cores_per_pod,
            profile=self.profile,
            cpu_milli=self.cpu_milli,
            memory_mib=self.memory_mib,
            priority=self.priority,
            own_only=self.own_only,
            preemptible=self.preemptible,
            setup=self.setup.as_json(),
            max_runtime=self.max_runtime,
            max_wait=self.max_wait,
            rerun_of=self.rerun_of,
            submitted_at=now,
            state_since=now,
        )


def claim_fields(workload: Workload) -> dict[str, Any]:
    """Fields of the first attempt's claim."""
    return {
        "department": workload.department,
        "pool": workload.pool,
        "user": workload.author,
        "workload": workload.public_id,
        "kind": workload.kind,
        "name": workload.name,
        "pods": workload.pods,
        "units_per_pod": workload.units_per_pod,
        "cores_per_pod": workload.cores_per_pod,
        "asked_per_pod": None if workload.asked_per_pod == workload.units_per_pod else workload.asked_per_pod,
        "profile": workload.profile,
        "same_domain": workload.settings.same_domain,
        "cpu_milli": workload.cpu_milli,
        "memory_mib": workload.memory_mib,
        "devices": _devices(workload),
        "priority": workload.priority,
        "preemptible": workload.preemptible,
        "own_only": workload.own_only,
        "max_runtime": workload.max_runtime,
        "submitted_at": workload.submitted_at,
        "queued_at": workload.submitted_at,
    }


def _devices(workload: Workload) -> dict[str, int]:
    """Extended resources, other than cards, that each pod requests: name → count."""
    device, count = workload.pool.group.cluster.options.get("rdma_resource", ""), workload.settings.rdma
    return {device: count} if device and count else {}


def settings_of(cluster: Cluster) -> sharing.Settings:
    """The operator's settings of the cluster's sharing systems. The embedded cluster's cards are counted in MiB."""
    if cluster.kind == ClusterKind.EMBEDDED:
        return sharing.Settings(gpu_mem_unit="MiB")
    return Options.from_json(cluster.options).sharing

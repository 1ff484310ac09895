"""The amounts that a form offers as buttons: the usual ones of a pool, in increasing order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from portal.text.words import amount
from quotas.amounts import written
from quotas.engine.mig_profiles import profile_of
from quotas.models import Pool
from workloads.requests.gpu_amounts import about, instance_mib, profiles_present
from workloads.requests.request import WorkloadRequest
from workloads.requests.what_you_get import compute_share
from workloads.sharing.api import NONE

CARDS = (1, 2, 4, 8)
MOST = 5
"""Buttons in a row."""


@dataclass(frozen=True, slots=True)
class OfferedAmount:
    """Units of a pool, or a MIG profile."""

    pool: Pool
    units: int
    profile: str = ""

    @property
    def label(self) -> str:
        return self.profile or amount(self.units, self.pool)

    @property
    def written(self) -> str:
        """The text for the amount field; "" for a profile, which has its own field."""
        return "" if self.profile else written(self.units, self.pool)

    def is_of(self, request: WorkloadRequest) -> bool:
        if self.profile or request.profile:
            return self.profile == request.profile
        return self.units == request.units_per_pod

    def put_into(self, request: WorkloadRequest) -> WorkloadRequest:
        """The same request with this amount."""
        system = about(self.pool)
        cores = request.cores_per_pod
        if system is not None and system.cores == "must":
            cores = compute_share(self.pool, self.units)
        elif system is None or system.cores == NONE:
            cores = None
        return replace(request, units_per_pod=self.units, profile=self.profile, cores_per_pod=cores)


def offered_amounts(pool: Pool, asked: WorkloadRequest | None = None) -> list[OfferedAmount]:
    """The offered amounts in increasing order, including the one that `asked` requests."""
    if pool.mig:
        table = {name: profile_of(pool.mig, name) for name in profiles_present([pool])[pool.mig]}
        sizes = {name: profile.size for name, profile in table.items() if profile and not profile.media}
        if asked and asked.profile in table and (profile := table[asked.profile]):
            sizes[asked.profile] = profile.size
        names = sorted(sizes, key=lambda name: (sizes[name], instance_mib(pool.mig, name) or 0, name))
        most = [name for name in names if name in _spread(names) or (asked and name == asked.profile)]
        return [OfferedAmount(pool, 0, name) for name in most]
    units = set(_usual(pool)) | ({asked.units_per_pod} if asked and asked.units_per_pod else set())
    return [OfferedAmount(pool, each) for each in sorted(units)]


def _spread(names: list[str]) -> list[str]:
    """At most MOST of the names, evenly spread, including the first and the last."""
    if len(names) <= MOST:
        return names
    return [names[round(at * (len(names) - 1) / (MOST - 1))] for at in range(MOST)]


def _usual(pool: Pool) -> list[int]:
    card = pool.units_per_card
    if pool.unit == "card":
        return list(CARDS)
    if pool.unit == "replica":
        return [1]
    if pool.unit == "MiB":  # powers of two GiB, and a whole card
        halves = [1024 * 2**power for power in range(1, 9) if 1024 * 2**power < card]
        return [*halves[1 - MOST :], card]
    return sorted({max(1, card // part) for part in (4, 2, 1)})

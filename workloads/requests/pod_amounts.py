"""The amount that a pod written outside the portal requests from a pool, as the portal's own form would request it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from workloads.sharing import SYSTEMS, Request, Settings
from workloads.sharing.api import Json
from workloads.sharing.nodes import GPU_RESOURCE
from workloads.sharing.outside import Offered, asks_by_claim, of_system, requests

PIECES = frozenset({"whole", "vgpu", "volcano-number", "timeslicing", "mps"})  # cards or replicas, however many
BY_CLAIM = frozenset({"dra", "dra-mig"})  # the amount is in resource claims, which may not exist while the pod waits


@dataclass(frozen=True, slots=True)
class Amount:
    """The amount of one pod: units of the pool, `cores` in percent of each card's compute if the pod sets it, or one instance
    of a `profile`."""

    units: int
    cores: int | None = None
    profile: str = ""


def amount_of(pod: Json, offer: Offered, settings: Settings, product: str = "") -> Amount | None:
    """The pod's amount. None if cards of this kind cannot provide all that it requests, or are not requested this way."""
    if asks_by_claim(pod) or offer.sharing in BY_CLAIM or offer.sharing not in SYSTEMS:
        return None
    asked = requests(pod)
    parts = tuple(of_system(pod, asked, offer, (), settings, False))
    if not parts or sum(part.units for part in parts) <= 0:
        return None
    total = sum(part.units for part in parts)
    amount = Amount(total, parts[0].cores or None)
    if offer.sharing == "mig":
        if len(parts) > 1 or not parts[0].profile:
            return None
        amount = Amount(total, profile=parts[0].profile)
    elif offer.sharing in PIECES:
        amount = Amount(total)
    elif len(parts) > 1 and any(part.units != offer.units_per_card for part in parts):
        return None  # a part of each of several cards
    return amount if _covers(pod, amount, offer, settings, product) else None


def _covers(pod: Json, amount: Amount, offer: Offered, settings: Settings, product: str) -> bool:
    """Whether the sharing system's own manifest would use all of the pod's GPU resources: others would not be charged."""
    names = {name for name, value in requests(pod).items() if value > 0 and GPU_RESOURCE.match(name)}
    request = Request(
        product, amount.units, cores=amount.cores, units_per_card=offer.units_per_card, profile=amount.profile or None
    )
    renamed = replace(request, product=f"{product}-SHARED")  # replicas may be requested by either name
    manifest = SYSTEMS[offer.sharing].manifest
    own = {name for each in (request, renamed) for name in manifest(each, settings).limits}
    return {name.removesuffix("-percentage") for name in names} <= own

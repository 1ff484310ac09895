"""ResourceSlices and ResourceClaims of Kubernetes' dynamic resource allocation, for the systems that use them.

Source: Kubernetes API resource.k8s.io/v1; kubernetes-sigs/dra-driver-nvidia-gpu docs/reference/resourceslice-attributes.md.
Device names differ between versions of the driver and are never parsed: the attributes describe a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workloads.sharing.api import N_, Held, Json, PodPatch, Request
from workloads.sharing.nodes import LARGEST, Facts, listing, mapping, quantity

DRIVER = "gpu.nvidia.com"
KIND = "resource.k8s.io/v1"
REQUEST = "gpu"
SHARE = "share"


@dataclass(frozen=True, slots=True)
class Device:
    """One device of NVIDIA's driver on a node. `product`: as in the label nvidia.com/gpu.product."""

    name: str
    pool: str
    kind: str  # gpu | mig | vfio
    uuid: str
    parent: str
    product: str
    profile: str
    memory_mib: int | None
    healthy: bool
    on_demand: bool  # one of several partitions of a card; allocating one rules out others


def devices(node: Facts) -> tuple[Device, ...]:
    """The node's devices of the newest generation of each pool; missing ResourceSlices are noted as a fault."""
    own = [one for one in node.slices if one.get("driver") == DRIVER]
    newest: dict[str, int] = {}
    for one in own:
        pool = mapping(one.get("pool"))
        newest[str(pool.get("name"))] = max(_count(pool.get("generation")), newest.get(str(pool.get("name")), 0))
    devices: list[Device] = []
    for name, generation in sorted(newest.items()):
        parts = [one for one in own if _is(one, name, generation)]
        wanted = max(_count(mapping(one.get("pool")).get("resourceSliceCount")) for one in parts)
        if len(parts) < wanted:
            node.fault(N_("%(have)s of %(wanted)s ResourceSlices exist"), have=len(parts), wanted=wanted)
        devices += [_device(mapping(each), name) for one in parts for each in listing(one.get("devices"))]
    return tuple(devices)


def _is(one: Mapping[str, Any], name: str, generation: int) -> bool:
    pool = mapping(one.get("pool"))
    return str(pool.get("name")) == name and _count(pool.get("generation")) == generation


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _device(each: Mapping[str, Any], pool: str) -> Device:
    inside = mapping(each.get("basic")) or each  # v1beta1 has the attributes one level deeper
    attributes = mapping(inside.get("attributes"))

    def attribute_text(name: str) -> str:
        value = mapping(attributes.get(name) or attributes.get(f"{DRIVER}/{name}"))
        return str(value.get("string") or value.get("version") or "")[:100]

    memory = mapping(mapping(inside.get("capacity")).get("memory")).get("value")
    amount = quantity(memory) if memory is not None else None
    mib = int(amount / 2**20) if amount is not None and amount / 2**20 <= LARGEST else None
    taints = [mapping(taint).get("effect") for taint in listing(inside.get("taints"))]
    return Device(
        name=str(each.get("name", ""))[:100],
        pool=pool,
        kind=attribute_text("type"),
        uuid=attribute_text("uuid")[:80],
        parent=attribute_text("parentUUID"),
        product=attribute_text("productName").replace(" ", "-"),
        profile=attribute_text("profile"),
        memory_mib=mib,
        on_demand=bool(listing(inside.get("consumesCounters"))),
        healthy=not {"NoSchedule", "NoExecute"} & {str(effect) for effect in taints},
    )


# requesting


def attribute(name: str) -> str:
    return f"device.attributes['{DRIVER}'].{name}"


def patch(request: Request, device_class: str, count: int, conditions: list[str]) -> PodPatch:
    """A template that creates a claim for the pod alone; or, with `share`, one claim of the department that all pods with this
    name share: such a pod goes where the claim's device is, whatever node was planned."""
    exactly: dict[str, Any] = {
        "deviceClassName": device_class,
        "count": count,
        "selectors": [{"cel": {"expression": " && ".join(conditions)}}],
    }
    spec = {"devices": {"requests": [{"name": REQUEST, "exactly": exactly}]}}
    if shared := request.extra.get(SHARE):
        name = f"share-{shared}"
        claim = {"apiVersion": KIND, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}
        return PodPatch(claims=({"name": REQUEST, "resourceClaimName": name},), objects=(claim,), follows_claim=True)
    template = {
        "apiVersion": KIND,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": request.name},
        "spec": {"spec": spec},
    }
    return PodPatch(claims=({"name": REQUEST, "resourceClaimTemplateName": request.name},), objects=(template,))


# reading back


def held(pod: Json, *kinds: str) -> tuple[Held, ...]:
    """The devices of these kinds that are allocated to the pod's claims: their uuid, or `pool/name` if there are no
    ResourceSlices to show the kind. Devices that a claim only monitors (`adminAccess`) are left out."""
    known = {(d.pool, d.name): d for d in devices(Facts({"resourceSlices": pod.get("resourceSlices")}))}
    names = _claims_of(pod)
    held = []
    for result in _results(pod, names):
        pool, name = str(result.get("pool", "")), str(result.get("device", ""))
        device = known.get((pool, name))
        if device is None:
            held.append(Held(f"{pool}/{name}"))
        elif device.kind in kinds:
            held.append(Held(device.uuid or name, device.memory_mib, profile=device.profile))
    return tuple(held)


def _claims_of(pod: Json) -> set[str]:
    direct = [mapping(one).get("resourceClaimName") for one in listing(mapping(pod.get("spec")).get("resourceClaims"))]
    made = [
        mapping(one).get("resourceClaimName")
        for one in listing(mapping(pod.get("status")).get("resourceClaimStatuses"))
    ]
    return {str(name) for name in (*direct, *made) if name}


def _results(pod: Json, names: set[str]) -> Iterator[Mapping[str, Any]]:
    for claim in map(mapping, listing(pod.get("resourceClaims"))):
        if str(mapping(claim.get("metadata")).get("name")) in names:
            allocation = mapping(mapping(claim.get("status")).get("allocation"))
            for result in map(mapping, listing(mapping(allocation.get("devices")).get("results"))):
                if result.get("driver") == DRIVER and result.get("adminAccess") is not True:
                    yield result

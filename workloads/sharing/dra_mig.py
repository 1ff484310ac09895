"""MIG instances through dynamic resource allocation: one unit is one memory slice.

| | |
|---|---|
| recognised by | a ResourceSlice of the driver gpu.nvidia.com with devices of the type mig |
| asked for by | a ResourceClaimTemplate of the class mig.nvidia.com; profile and product chosen by CEL |
| unit | slice: a memory slice, 8 a card (A30: 4); a profile is charged the memory slices it covers |
| isolation | full: memory, compute, bandwidth and faults, by hardware |
| beside | whole cards of the same node stay whole cards (DRA) |
| errors | an unknown product or profile, or instances that no card can hold: the node is held back |
| limits | existing instances only: a card that is announced beside its own instances is cut, not whole. Devices |
| | that consume counters describe ways to cut a card on demand, which is not supported |
| read back | `status.allocation.devices.results` of the claim: the instance's UUID is found by the ResourceSlice |
| source | kubernetes-sigs/dra-driver-nvidia-gpu README, resourceslice-attributes.md, feature-gates.md |
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from quotas.engine.mig_profiles import PRODUCTS
from workloads.runtime.base import CardInfo, NodeInfo, Offer
from workloads.sharing import devices, dra, mig
from workloads.sharing.api import N_, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.nodes import MOST_CARDS, Facts, entry

ABOUT = replace(mig.ABOUT, key="dra-mig", order=55, title=N_("MIG instances (DRA)"), beside=frozenset({"dra"}))


def applies(node: Facts) -> Note | None:
    if any(device.kind == "mig" for device in devices.devices(node)):
        return Note(N_("listed in a ResourceSlice of %(driver)s"), {"driver": devices.DRIVER})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    listed = devices.devices(node)
    cut = [device for device in listed if device.kind == "mig"]
    parents = sorted({device.parent for device in cut})[:MOST_CARDS]
    # Some versions of the driver list a partitioned card beside its instances: it is not a whole card.
    whole = [device for device in listed if device.kind == "gpu" and (device.uuid not in parents or not device.uuid)]
    products = sorted({device.product.partition(mig.SINGLE)[0] for device in cut})
    product = products[0] if products else node.product
    instances = Counter(device.profile for device in cut if device.healthy)
    memory = next((d.memory_mib for d in listed if d.kind == "gpu" and d.uuid in parents and d.memory_mib), 0)
    profiles = sorted({device.profile for device in cut})
    table = mig.table_of(product, memory, profiles) or mig.guessed(memory, profiles)
    units = mig.slices(table) if table else 1
    cards = tuple(CardInfo(index=i, units=units, uuid=uuid[:80]) for i, uuid in enumerate(parents))
    beside: tuple[Offer, ...] = ()
    if whole:
        infos = dra.card_infos(node, whole)
        shifted = tuple(
            CardInfo(len(cards) + c.index, c.units, uuid=c.uuid, healthy=c.healthy, memory_mib=c.memory_mib)
            for c in infos
        )
        beside = (Offer(dra.ABOUT.key, whole[0].product, dra.ABOUT.unit, 1, shifted),)
    because = applies(node) or Note(N_("pinned by an operator"))
    return entry(
        node,
        ABOUT,
        product=product,
        units_per_card=units,
        cards=cards,
        instances=dict(sorted(instances.items())),
        mig=table,
        beside=beside,
        because=mig.and_derived(because, table, instances),
        held_back=_held(listed, products, parents, table, instances),
    )


def _held(
    listed: tuple[devices.Device, ...], products: list[str], parents: list[str], table: str | None,
    instances: Counter[str],
) -> Note | None:  # fmt: skip
    whole = sorted({device.product for device in listed if device.kind == "gpu" and device.uuid not in parents})
    if any(device.on_demand for device in listed):
        return Note(N_("its cards are partitioned on demand, which is not supported"))
    for several in (products, whole):
        if len(several) > 1:
            return Note(N_("it has cards of different products: %(products)s"), {"products": ", ".join(several)[:120]})
    if not parents:
        return Note(N_("its ResourceSlices name no MIG instance"))
    if "" in parents:
        return Note(N_("its ResourceSlices do not say which card a MIG instance belongs to"))
    if table is None:
        return Note(N_("the MIG profiles of %(product)s are not known"), {"product": (products or ["?"])[0]})
    return mig.misfit(table, instances, len(parents))


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return mig.validate(request, settings)


def manifest(request: Request, settings: Settings) -> PodPatch:
    table = PRODUCTS.get(request.table or mig.table_of(request.product) or "")
    profile = request.profile if table is not None and request.profile in table else ""
    conditions = [
        f"{devices.attribute('type')} == 'mig'",
        f"{devices.attribute('profile')} == '{profile}'",
        *dra.same_product(request.product),
    ]
    return devices.patch(request, "mig.nvidia.com", 1, conditions)


def read_back(pod: Json) -> tuple[Held, ...]:
    return devices.held(pod, "mig", "")

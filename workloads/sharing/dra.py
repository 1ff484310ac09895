"""Whole cards through dynamic resource allocation (NVIDIA's DRA driver): one unit is one card.

| | |
|---|---|
| recognised by | a ResourceSlice of the driver gpu.nvidia.com with devices of the type gpu |
| asked for by | a ResourceClaimTemplate of the class gpu.nvidia.com, the product chosen by CEL; with `share` one |
| | ResourceClaim of the department, referenced by every pod that shares the card |
| unit | card |
| isolation | full: one tenant a card; pods that share a claim are of one department, take turns and are charged in |
| | full |
| errors | missing ResourceSlices: the node is held back; a tainted device: it is quarantined. Never beside the device |
| | plugin on one node |
| limits | Kubernetes 1.34; no preemption by Kubernetes for such pods |
| read back | `status.allocation.devices.results` of the claim: the card's UUID is found by the ResourceSlice |
| source | kubernetes/enhancements 4381; kubernetes-sigs/dra-driver-nvidia-gpu README, resourceslice-attributes.md, |
| | feature-gates.md |
"""

from __future__ import annotations

import re
from dataclasses import replace

from workloads.runtime.base import CardInfo, NodeInfo
from workloads.sharing import devices, whole
from workloads.sharing.api import N_, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import MOST_CARDS, Facts, card_memory, entry

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")

ABOUT = replace(
    whole.ABOUT,
    key="dra",
    order=60,
    title=N_("Whole cards (DRA)"),
    isolation=N_("Full: the card is used by nobody else, except pods of your department that share your claim."),
    beside=frozenset({"dra-mig"}),
    extra={devices.SHARE: N_("Name of a card shared by pods of the department")},
)


def applies(node: Facts) -> Note | None:
    if any(device.kind == "gpu" for device in devices.devices(node)):
        return Note(N_("listed in a ResourceSlice of %(driver)s"), {"driver": devices.DRIVER})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    cards = [device for device in devices.devices(node) if device.kind == "gpu"]
    products = sorted({device.product or node.product for device in cards})
    held = None
    if len(products) > 1:
        held = Note(N_("it has cards of different products: %(products)s"), {"products": ", ".join(products)[:120]})
    elif not cards:
        held = Note(N_("its ResourceSlices name no card"))
    return entry(
        node,
        ABOUT,
        product=products[0] if products else node.product,
        cards=card_infos(node, cards),
        because=applies(node) or Note(N_("pinned by an operator")),
        held_back=held,
    )


def card_infos(node: Facts, cards: list[devices.Device]) -> tuple[CardInfo, ...]:
    if len(cards) > MOST_CARDS:
        node.fault(N_("it reports %(count)s cards"), count=len(cards))
        return ()
    return tuple(
        CardInfo(i, 1, uuid=card.uuid, healthy=card.healthy, memory_mib=card.memory_mib or card_memory(node))
        for i, card in enumerate(cards)
    )


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    problems = common(request, ABOUT)
    share = request.extra.get(devices.SHARE)
    if share is not None and not NAME.fullmatch(share):
        message = N_("Use 1 to 40 lowercase letters, digits and hyphens for the name.")
        problems.append(Problem("share", "bad_name", message, {"name": share[:60]}))
    if share is not None and request.pods > 1:
        message = N_("A shared card has one pod of each workload, not %(pods)s.")
        problems.append(Problem("pods", "no_peers", message, {"pods": request.pods}))
    if share is not None and request.units != 1:
        problems.append(Problem("units_per_pod", "one_card", N_("Only one card can be shared."), {"most": 1}))
    return tuple(problems)


def same_product(product: str) -> list[str]:
    """CEL for the product as the label spells it: NVML's name with hyphens for blanks. [] without a product."""
    quoted = product.replace("\\", "").replace("'", "")
    return [f"{devices.attribute('productName')}.replace(' ', '-') == '{quoted}'"] if quoted else []


def manifest(request: Request, settings: Settings) -> PodPatch:
    conditions = [f"{devices.attribute('type')} == 'gpu'", *same_product(request.product)]
    return devices.patch(request, devices.DRIVER, request.units, conditions)


def read_back(pod: Json) -> tuple[Held, ...]:
    return devices.held(pod, "gpu", "vfio", "")

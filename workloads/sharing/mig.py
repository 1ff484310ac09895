"""MIG: a card cut by hardware into instances of fixed profiles; one unit is one memory slice.

Strategy `mixed` offers nvidia.com/mig-<profile> (`+` becomes `.`); `single` offers every instance as nvidia.com/gpu
and puts the profile into the product label (`…-MIG-1g.5gb`). The geometry found on a node is fixed here: what
mig-manager left there is what may be asked for.
Source: NVIDIA/k8s-device-plugin internal/rm/rm.go and internal/lm/mig-strategy.go; NVIDIA/gpu-operator mig-manager.
"""

from __future__ import annotations

from quotas.engine.mig import PRODUCTS
from workloads.clusters.base import CardInfo, NodeInfo
from workloads.sharing import api
from workloads.sharing.api import Json, PodPatch, Problem, Request, Settings

PREFIX, SINGLE = "nvidia.com/mig-", "-MIG-"
# nvidia.com/gpu.product → the table of profiles; old drivers leave out the vendor
TABLES = {
    "NVIDIA-A30": "A30",
    "A100-SXM4-40GB": "A100-40GB",
    "NVIDIA-A100-SXM4-40GB": "A100-40GB",
    "NVIDIA-A100-PCIE-40GB": "A100-40GB",
    "NVIDIA-A100-SXM4-80GB": "A100-80GB",
    "NVIDIA-A100-80GB-PCIe": "A100-80GB",
    "NVIDIA-H100-80GB-HBM3": "H100-80GB",
    "NVIDIA-H100-PCIe": "H100-80GB",
    "NVIDIA-H200": "H200-141GB",
    "NVIDIA-H200-NVL": "H200-141GB",
    "NVIDIA-B200": "B200-180GB",
}


def slices(table: str) -> int:
    """Memory slices of a card: 8, of an A30 4."""
    return max(profile.size + max(profile.starts) for profile in PRODUCTS[table].values())


def discover(node: Json, settings: Settings) -> NodeInfo:
    labels, host = api.labels_of(node), api.host(node)
    product = labels.get("nvidia.com/gpu.product", "")
    base, _, single = product.partition(SINGLE)
    table = TABLES.get(base)
    instances = _instances(node, single)
    state = labels.get("nvidia.com/mig.config.state", "success")
    if state != "success":
        host["held_back"] = host["held_back"] or f"mig.config.state is {state}"
    elif single == "INVALID":
        host["held_back"] = host["held_back"] or f"its cards are cut unevenly: {product}"
    elif table is None:
        host["held_back"] = (
            host["held_back"] or f"no MIG profiles are known of {product or 'a card without a product label'}"
        )
    units = slices(table) if table else 1
    count = int(labels.get("nvidia.com/gpu.count", "0"))
    whole = 0
    if single and table and single in PRODUCTS[table]:
        count //= len(PRODUCTS[table][single].starts)  # here the label counts instances
    elif not single:
        whole = api.amount(node, "nvidia.com/gpu") if instances else 0
    beside = f"; {whole} whole cards beside are not offered" if whole else ""
    return NodeInfo(
        sharing="mig",
        product=product,
        unit="slice",
        units_per_card=units,
        cards=tuple(CardInfo(index=i, units=units, healthy=bool(instances)) for i in range(whole, count)),
        instances=instances,
        mig=table,
        because=(f"product {product}" if single else f"resources {PREFIX}*") + beside,
        **host,
    )


def _instances(node: Json, single: str) -> dict[str, int]:
    allocatable = node.get("status", {}).get("allocatable") or {}
    if single and single != "INVALID":
        count = api.amount(node, "nvidia.com/gpu")
        return {single: count} if count else {}
    found = {key.removeprefix(PREFIX): int(value) for key, value in allocatable.items() if key.startswith(PREFIX)}
    return {_profile(name): count for name, count in sorted(found.items()) if count}


def _profile(name: str) -> str:
    """The profile of a resource's name: 1g.10gb.me → 1g.10gb+me."""
    head, dot, tail = name.partition("gb.")
    return f"{head}gb+{tail}" if dot else name


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    problems = list(api.reserved_env(request))
    table = TABLES.get(request.product.partition(SINGLE)[0])
    if table is None:
        detail = f"no MIG profiles are known of {request.product}"
        problems.append(Problem("profile", "no_such_product", detail, {"product": request.product}))
    elif request.profile not in PRODUCTS[table]:
        names = ", ".join(PRODUCTS[table])
        detail = f"{table} has no profile {request.profile or '(none)'}; it has {names}"
        problems.append(Problem("profile", "no_such_profile", detail, {"profile": request.profile or "", "has": names}))
    elif request.units != PRODUCTS[table][request.profile].size:
        size = PRODUCTS[table][request.profile].size
        detail = f"one instance of {request.profile} takes {size} slices, not {request.units}"
        problems.append(Problem("units_per_pod", "wrong_size", detail, {"size": size}))
    if request.pods > 1:
        problems.append(Problem("pods", "no_peers", "MIG instances cannot talk to each other: one pod only"))
    return tuple(problems)


def manifest(request: Request, settings: Settings) -> PodPatch:
    """Exactly one instance: several would not be several GPUs to one process. The profile's name alone does not name
    the card (1g.10gb exists on three products), hence the selector."""
    selector = {"nvidia.com/gpu.product": request.product} if request.product else {}
    if SINGLE in request.product or request.profile is None:
        return PodPatch(limits={"nvidia.com/gpu": "1"}, node_selector=selector)
    return PodPatch(limits={PREFIX + request.profile.replace("+", "."): "1"}, node_selector=selector)


def read_back(pod: Json) -> tuple[str, ...]:
    return api.allocated_devices(pod)

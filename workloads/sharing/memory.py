"""Memory of a card, shared by Aliyun's open-source gpushare: aliyun.com/gpu-mem; one unit is one MiB.

The plugin counts floor(MiB of the first card / 1024) for each card and takes all cards to be alike; a pod's memory must
fit one card, and several cards cannot be asked for. gpushare only counts: it isolates nothing.
Source: AliyunContainerService/gpushare-scheduler-extender docs/{install,userguide}.md and pkg/utils;
gpushare-device-plugin. The extender is wired into the default scheduler, so no scheduler is named.
"""

from __future__ import annotations

from workloads.clusters.base import CardInfo, NodeInfo
from workloads.sharing import api
from workloads.sharing.api import Json, PodPatch, Problem, Request, Settings

RESOURCE, COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
MIB = {"MiB": 1, "GiB": 1024}
CARD_OF_POD = "ALIYUN_COM_GPU_MEM_IDX"


def discover(node: Json, settings: Settings) -> NodeInfo:
    host = api.host(node)
    count = api.amount(node, COUNT, "capacity") or api.amount(node, COUNT)
    total, usable = api.amount(node, RESOURCE, "capacity"), api.amount(node, RESOURCE)
    each = total // count if count else 0
    healthy = usable // each if each else 0
    if not count:
        host["held_back"] = host["held_back"] or f"{RESOURCE} without {COUNT}: the size of a card is unknown"
    elif not healthy:
        host["held_back"] = host["held_back"] or f"its device plugin offers none of {count} cards"
    units = each * MIB[settings.gpu_mem_unit]
    return NodeInfo(
        sharing="memory",
        product=api.labels_of(node).get("nvidia.com/gpu.product", ""),
        unit="MiB",
        units_per_card=max(units, 1),
        cards=tuple(CardInfo(index=i, units=units, healthy=i < healthy) for i in range(count)),
        because=f"{RESOURCE}: {total} {settings.gpu_mem_unit} on {count} cards",
        **host,
    )


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    problems = list(api.reserved_env(request))
    step = MIB[settings.gpu_mem_unit]
    if request.units % step:
        detail = f"this cluster shares memory in steps of {step} MiB; {request.units} is not a multiple"
        problems.append(Problem("units_per_pod", "not_a_multiple", detail, {"step": step, "asked": request.units}))
    if request.pods > 1:
        detail = "pods that share a card cannot talk to each other on it: distributed work needs whole cards"
        problems.append(Problem("pods", "no_peers", detail))
    return tuple(problems)


def manifest(request: Request, settings: Settings) -> PodPatch:
    selector = {"gpushare": "true"}
    if request.product:
        selector["nvidia.com/gpu.product"] = request.product
    return PodPatch(limits={RESOURCE: str(-(-request.units // MIB[settings.gpu_mem_unit]))}, node_selector=selector)


def read_back(pod: Json) -> tuple[str, ...]:
    index = (pod["metadata"].get("annotations") or {}).get(CARD_OF_POD, "")
    return (index,) if index.isdigit() else ()

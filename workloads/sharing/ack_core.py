"""ACK cGPU sharing memory and compute (mode core_mem); one unit is one MiB, beside it percent of a card's compute.

| | |
|---|---|
| recognised by | label `ack.node.gpu.schedule=core_mem`, or the resource `aliyun.com/gpu-core.percentage` |
| asked for by | `limits: {aliyun.com/gpu-mem: GiB, aliyun.com/gpu-core.percentage: N}`; several cards by the label that |
| | splits both amounts between them |
| unit | MiB in whole GiB, and percent of a card's compute (the capacity is assumed to be 100 a card) |
| isolation | memory and compute, by a kernel module; faults are not isolated |
| limits | 20 pods a card; no unified memory; no static CPU policy |
| errors | a node has one mode at a time: the resources of the other modes are 0 |
| read back | annotation `scheduler.framework.gpushare.allocation`: {container: {card: amount}} |
| source | Alibaba Cloud's documentation; kubeflow/arena pkg/apis/types/const.go, pkg/topnode/gpushare.go |
"""

from __future__ import annotations

from dataclasses import replace

from workloads.runtime.base import NodeInfo
from workloads.sharing import ack, memory
from workloads.sharing.api import FULL, N_, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import Facts

CORES = "aliyun.com/gpu-core.percentage"

ABOUT = replace(
    ack.ABOUT,
    key="ack-core",
    order=200,
    title=N_("Shared memory and compute (ACK cGPU)"),
    gives=N_("Part of a card's memory and a percentage of its compute, both limited by a kernel module."),
    isolation=N_("Memory and compute are isolated by a kernel module; faults are not."),
    compute=FULL,
    cores="must",
)


def applies(node: Facts) -> Note | None:
    if node.labels.get(ack.MODE) == "core_mem":
        return Note(N_("its %(label)s is %(value)s"), {"label": ack.MODE, "value": "core_mem"})
    if node.capacity(CORES):
        return Note(N_("it advertises %(resource)s"), {"resource": CORES})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    total, count = node.capacity(CORES), node.capacity(memory.COUNT)
    held = None
    if not total:
        held = Note(N_("%(resource)s is missing"), {"resource": CORES})
    elif total != 100 * count:
        numbers = {"amount": total, "resource": CORES, "cards": count}
        held = Note(N_("%(amount)s of %(resource)s is not 100 for each of %(cards)s cards"), numbers)
    return memory.of_memory(node, ABOUT, settings, cores=100, held_back=held)


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT, step=settings.gpu_mem_mib))


def manifest(request: Request, settings: Settings) -> PodPatch:
    labels = {ack.SPLIT: str(request.cards)} if request.cards > 1 else {}
    limits = memory.memory_limit(request, settings) | {CORES: str((request.cores or 0) * request.cards)}
    return PodPatch(limits=limits, labels=labels)


def read_back(pod: Json) -> tuple[Held, ...]:
    return ack.read_back(pod)

"""ACK cGPU sharing memory only: Alibaba Cloud's closed successor of gpushare; one unit is one MiB.

| | |
|---|---|
| recognised by | label `ack.node.gpu.schedule` = cgpu, share or mps (core_mem is a separate system; topology is not |
| | supported) |
| asked for by | `limits: {aliyun.com/gpu-mem: GiB}`; several cards by the pod's label `aliyun.com/gpu-count`, which |
| | splits the amount between them |
| unit | MiB, in whole GiB |
| isolation | memory: a hard limit by a kernel module; compute: slices of time; with `share` none |
| reserved | `CGPU_*`, with which a program could turn its isolation off, and the plugin's variables about its share |
| limits | 20 pods a card; no unified memory; no static CPU policy |
| errors | a node has one mode at a time: the resources of the other modes are 0 |
| read back | annotation `scheduler.framework.gpushare.allocation`: {container: {card: amount}} |
| source | Alibaba Cloud's documentation; kubeflow/arena pkg/apis/types/const.go, pkg/topnode/gpushare.go |
"""

from __future__ import annotations

import json

from workloads.runtime.base import NodeInfo
from workloads.sharing import memory
from workloads.sharing.api import FULL, N_, NONE, SOFT, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import ACK_MODE, Facts, entry, mapping, notes_of

MODE, SPLIT = ACK_MODE, "aliyun.com/gpu-count"
ALLOCATION = "scheduler.framework.gpushare.allocation"

ABOUT = About(
    key="ack",
    order=210,
    title=N_("Shared memory (ACK cGPU)"),
    unit="MiB",
    gives=N_("Part of a card's memory, limited by a kernel module; compute is time-sliced."),
    risks=N_("CUDA unified memory is not supported; at most 20 pods per card."),
    isolation=N_("Memory is isolated by a kernel module; compute is time-sliced; faults are not isolated."),
    memory=FULL,
    compute=SOFT,
    faults=NONE,
    step=1024,
    several=True,
    beside=frozenset({"memory"}),
    reserved=frozenset({"CGPU_*", "ALIYUN_COM_GPU_*", "CUDA_MPS_*"}),
)


def applies(node: Facts) -> Note | None:
    mode = node.labels.get(MODE, "")
    if mode in ("cgpu", "share", "mps", "topology"):
        return Note(N_("its %(label)s is %(value)s"), {"label": MODE, "value": mode})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    if node.labels.get(MODE) == "topology":
        note = Note(N_("its %(label)s is %(value)s"), {"label": MODE, "value": "topology"})
        held = Note(N_("ACK's topology-aware mode is not supported: set the node to another mode"))
        return entry(node, ABOUT, product=node.product, because=note, held_back=held)
    return memory.of_memory(node, ABOUT, settings)


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT, step=settings.gpu_mem_mib))


def manifest(request: Request, settings: Settings) -> PodPatch:
    labels = {SPLIT: str(request.cards)} if request.cards > 1 else {}
    return PodPatch(limits=memory.memory_limit(request, settings), labels=labels)


def read_back(pod: Json) -> tuple[Held, ...]:
    try:
        containers = mapping(json.loads(notes_of(pod).get(ALLOCATION, "{}")))
    except (ValueError, RecursionError):
        return ()
    return tuple(Held(str(card)) for cards in containers.values() for card in sorted(mapping(cards)))

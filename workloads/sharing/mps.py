"""MPS through NVIDIA's device plugin: every card is offered n times, each with 1/n of memory and threads.

| | |
|---|---|
| recognised by | label `nvidia.com/gpu.sharing-strategy=mps` |
| asked for by | as with time-slicing: `nvidia.com/gpu.shared: 1`, or `nvidia.com/gpu: 1` and the product label |
| | `…-SHARED` |
| unit | replica: 1/n of a card's memory and threads (n: label `gpu.replicas`); with 10 replicas of an 80 GB card |
| | 8155 MiB and 10 % |
| isolation | memory: a limit for each process (a pod with two processes gets twice as much); faults: none, a fatal |
| | fault may end all clients |
| limits | one replica a pod; whole cards only, not MIG; all cards of the node |
| errors | the daemon does not start, or limits are not applied (k8s-device-plugin issues 805, 569) |
| reserved | `CUDA_MPS_*`: a program that changes them is not limited |
| read back | `allocatedResourcesStatus` (Kubernetes 1.36): `<uuid>::<replica>` |
| source | NVIDIA/k8s-device-plugin README, api/config/v1/config.go, cmd/mps-control-daemon |
"""

from __future__ import annotations

from workloads.runtime.base import NodeInfo
from workloads.sharing import timeslicing, whole
from workloads.sharing.api import N_, NONE, SOFT, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import common
from workloads.sharing.nodes import Facts

ABOUT = About(
    key="mps",
    order=390,
    title=N_("MPS"),
    unit="replica",
    gives=N_("A fixed share of a card's memory and threads, used concurrently with other programs."),
    risks=N_("The memory limit applies per process, not per pod; a fatal fault of a neighbour also ends your program."),
    isolation=N_("Memory is limited per process, compute by a share of threads; faults are not isolated."),
    memory=SOFT,
    compute=SOFT,
    faults=NONE,
    most=1,
    beside=frozenset({"whole", "timeslicing"}),
    reserved=frozenset({"CUDA_MPS_*"}),
)


def applies(node: Facts) -> Note | None:
    if node.labels.get(whole.STRATEGY) == "mps":
        return Note(N_("its %(label)s is %(value)s"), {"label": whole.STRATEGY, "value": "mps"})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    return timeslicing.of_replicas(node, ABOUT, applies(node), settings)


def share(memory_mib: int, replicas: int) -> tuple[int, int]:
    """Memory in MiB and percent of threads of one replica, as the control daemon sets them: both rounded down."""
    return memory_mib // replicas, 100 // replicas


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    return tuple(common(request, ABOUT))


def manifest(request: Request, settings: Settings) -> PodPatch:
    return timeslicing.manifest(request, settings)


def read_back(pod: Json) -> tuple[Held, ...]:
    return timeslicing.read_back(pod)

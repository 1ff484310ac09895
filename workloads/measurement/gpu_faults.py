"""Faults of GPUs as the DCGM exporter reports them. Pure.

`DCGM_FI_DEV_XID_ERRORS` is the last XID error of a GPU, 0 if there was none since the exporter started: it stays until the GPU is
reset and DCGM restarted. `DCGM_EXP_GPU_HEALTH_STATUS`, where the exporter's list of metrics has it, is the present result of
DCGM's health watches, one series for each: 0 pass, 10 warning, 20 failure.
Sources: DCGM exporter's counters; NVIDIA, "XID Errors"; dcgm_structs.h.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from workloads.measurement.series import Sample, node_of
from workloads.runtime.base import Note
from workloads.sharing.api import N_

METRICS = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_GPU_HEALTH_STATUS")
FAILURE = 20  # of a health watch
SOURCE = "gpu"  # prefix of the names of these signs


@dataclass(slots=True)
class GpuFaults:
    """The result for one node. `faults`: sign → reason; `well`: signs that are known to be absent."""

    faults: dict[str, Note] = field(default_factory=dict)
    well: set[str] = field(default_factory=set)


def queries_of(selector: str) -> list[str]:
    return [f"{metric}{{{selector}}}" if selector else metric for metric in METRICS]


def faults_of(
    xid_samples: Iterable[Sample], health_samples: Iterable[Sample], xids: Collection[int]
) -> dict[str, GpuFaults]:
    """Node, as named by the series → its faults. A GPU with a fault in one series is faulty, whatever the other series have. If
    its last error was caused by a program, it is neither faulty nor well: an earlier fault may still be there."""
    nodes: dict[str, GpuFaults] = defaultdict(GpuFaults)
    for node, by_gpu in _by_gpu(xid_samples).items():
        for gpu, numbers in by_gpu.items():
            sign = f"{SOURCE}/xid/{gpu}"
            if faulty := sorted(numbers & set(xids)):
                nodes[node].faults[sign] = Note(N_("XID %(xid)s on GPU %(gpu)s"), {"xid": faulty[0], "gpu": gpu})
            elif numbers == {0}:
                nodes[node].well.add(sign)
    for node, by_gpu in _by_gpu(health_samples).items():
        for gpu, numbers in by_gpu.items():
            sign = f"{SOURCE}/health/{gpu}"
            if FAILURE in numbers:
                nodes[node].faults[sign] = Note(N_("DCGM's health check fails on GPU %(gpu)s"), {"gpu": gpu})
            else:
                nodes[node].well.add(sign)
    return nodes


def _by_gpu(samples: Iterable[Sample]) -> dict[str, dict[str, set[int]]]:
    """Node → GPU → the whole-number values of its series."""
    values: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for sample in samples:
        node, gpu = node_of(sample.labels), _gpu(sample.labels)
        if node and gpu and 0 <= sample.value < 10_000 and sample.value == int(sample.value):
            values[node][gpu].add(int(sample.value))
    return values


def _gpu(labels: Mapping[str, str]) -> str:
    """The GPU's UUID, else its number on the node; for a MIG instance, those of its card."""
    return (labels.get("UUID") or labels.get("uuid") or labels.get("gpu", ""))[:100]

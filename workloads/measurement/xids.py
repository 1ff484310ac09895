"""XID errors: what the NVIDIA driver last reported of each GPU, as the DCGM exporter gives it. Pure.

`DCGM_FI_DEV_XID_ERRORS` is the last XID error of a GPU, 0 if there was none since the exporter started: it stays until the GPU is
reset and DCGM restarted. Source: DCGM exporter's default counters; NVIDIA, "XID Errors".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from workloads.measurement.series import Sample, node_of
from workloads.runtime.base import Note
from workloads.sharing.api import N_

METRIC = "DCGM_FI_DEV_XID_ERRORS"
SOURCE = "xid"  # how the names of these signs begin


@dataclass(slots=True)
class LastErrors:
    """Of one node. `faults`: sign → reason, for GPUs whose last error is one of hardware; `well`: signs of GPUs without any."""

    faults: dict[str, Note] = field(default_factory=dict)
    well: set[str] = field(default_factory=set)


def query_of(selector: str) -> str:
    return f"{METRIC}{{{selector}}}" if selector else METRIC


def last_errors(samples: Iterable[Sample], xids: Collection[int]) -> dict[str, LastErrors]:
    """By the node that the series name. A GPU of which one series tells of a fault is not well, whatever others say; one
    whose last error is a program's is neither: that does not cure what came before."""
    values: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for sample in samples:
        node, gpu = node_of(sample.labels), _gpu(sample.labels)
        if node and gpu and 0 <= sample.value < 10_000 and sample.value == int(sample.value):
            values[node][gpu].add(int(sample.value))
    errors: dict[str, LastErrors] = {}
    for node, by_gpu in values.items():
        own = errors[node] = LastErrors()
        for gpu, numbers in by_gpu.items():
            if faulty := sorted(numbers & set(xids)):
                own.faults[f"{SOURCE}/{gpu}"] = Note(N_("XID %(xid)s on GPU %(gpu)s"), {"xid": faulty[0], "gpu": gpu})
            elif numbers == {0}:
                own.well.add(f"{SOURCE}/{gpu}")
    return errors


def _gpu(labels: Mapping[str, str]) -> str:
    """Its UUID, else its number on the node; of a MIG instance, the card's."""
    return (labels.get("UUID") or labels.get("uuid") or labels.get("gpu", ""))[:100]

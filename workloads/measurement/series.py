"""Prometheus queries, and the use of each rank from their answers. Pure.

| exporter | metrics | how a series names its pod |
|---|---|---|
| NVIDIA DCGM exporter | `DCGM_FI_…`, one a card or MIG instance | with its pod mapping: `pod`, `namespace`, or `exported_…` |
| HAMi's vGPU monitor | one a container and card, new and old names | `pod`, `namespace`; `podname`, `podnamespace` |
| cAdvisor (kubelet) | `container_…` | `pod`, `namespace` |

Every query covers all pods at once, so the number of queries does not depend on the number of pods. A pod is recognized by
its name, which contains the id of its workload, and must be in the namespace where the portal created it; all other series
are ignored. Sources: DCGM exporter's default counters and its `kubernetes` mapper; HAMi
cmd/vGPUmonitor/metrics.go; NVIDIA DCGM user guide, "Feature overview: Profiling" (activity of a MIG instance is relative
to that instance).
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Labels = Mapping[str, str]

EXPORTERS = ("dcgm", "hami", "cadvisor")
POD_LABELS = (
    ("exported_pod", "exported_namespace"),
    ("pod", "namespace"),
    ("podname", "podnamespace"),
    ("pod_name", "pod_namespace"),
)
NODE_LABELS = ("Hostname", "node", "kubernetes_node", "nodeid", "nodename", "exported_node", "instance")
POD_NAME = re.compile(r"(w-[0-9a-z]{26}-\d+)(?:-(.+))?")
MATCHER = r'[a-zA-Z_][a-zA-Z0-9_]*(?:=|!=|=~|!~)"(?:[^"\\\n]|\\.)*"'
SELECTOR = re.compile(rf"{MATCHER}(?:,\s*{MATCHER})*")
MIB = 2**20
LARGEST = 2**31 - 1  # what a column holds
OVER_ONE = 1.05  # activity above 1 and up to here is rounding; above that it is not a share of time
SHORTEST = 120  # s that a query covers at least: two scrapes of a minute each


class NotPrometheus(ValueError):
    """The answer is not one of Prometheus's query API."""


class QueryRefused(ValueError):
    """Prometheus understood the request and refused it; str() is its own message."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series and its value, which is a number and not NaN."""

    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Query:
    """`text` has the placeholders {over} (a duration), {own} (matchers of the portal's pods) and {match} (further label matchers
    that end in a comma, or nothing)."""

    key: str
    exporter: str
    metrics: tuple[str, ...]
    text: str

    def over(self, seconds: int, selector: str, namespaces: str) -> str:
        match = f"{selector.strip().rstrip(',')}," if selector.strip() else ""
        own = f'namespace=~"{namespaces}.*",pod=~"w-.+",'
        return self.text.replace("{over}", f"{max(seconds, SHORTEST)}s").replace("{own}", own).replace("{match}", match)


def _mean(*metrics: str) -> str:
    return " or ".join(f"avg_over_time({metric}{{{{match}}}}[{{over}}])" for metric in metrics)


def _pods(inner: str) -> str:
    """The sum of a pod's containers. A container that is scraped twice, or was restarted, counts once."""
    return f"sum by (namespace, pod) (max by (namespace, pod, container) ({inner}))"


HAMI_ACTIVITY = ("hami_container_device_utilization_ratio", "Device_utilization_desc_of_container")
HAMI_MEMORY = ("hami_vgpu_memory_used_bytes", "vGPU_device_memory_usage_in_bytes")
CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
CONTAINERS = '{{own}{match}container!="",container!="POD"}[{over}]'
QUERIES = (
    Query("activity", "dcgm", ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",), _mean("DCGM_FI_PROF_GR_ENGINE_ACTIVE")),
    Query("utilization", "dcgm", ("DCGM_FI_DEV_GPU_UTIL",), _mean("DCGM_FI_DEV_GPU_UTIL")),
    Query("gpu_memory", "dcgm", ("DCGM_FI_DEV_FB_USED",), _mean("DCGM_FI_DEV_FB_USED")),
    Query("power", "dcgm", ("DCGM_FI_DEV_POWER_USAGE",), _mean("DCGM_FI_DEV_POWER_USAGE")),
    Query("part_activity", "hami", HAMI_ACTIVITY, _mean(*HAMI_ACTIVITY)),
    Query("part_memory", "hami", HAMI_MEMORY, _mean(*HAMI_MEMORY)),
    Query("cpu", "cadvisor", (CPU,), _pods(f"rate({CPU}{CONTAINERS})")),
    Query("memory", "cadvisor", (MEMORY,), _pods(f"avg_over_time({MEMORY}{CONTAINERS})")),
)


def queries_of(exporters: Iterable[str]) -> tuple[Query, ...]:
    chosen = set(exporters)
    return tuple(query for query in QUERIES if query.exporter in chosen)


def parse(body: bytes) -> tuple[Sample, ...]:
    """The series of an instant query's answer, without those whose value is not a number.

    Raises NotPrometheus, QueryRefused.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NotPrometheus("the answer is not JSON") from error
    if isinstance(answer, dict) and answer.get("status") == "error":
        raise QueryRefused(str(answer.get("error") or answer.get("errorType") or "")[:300])
    data = answer.get("data") if isinstance(answer, dict) and answer.get("status") == "success" else None
    if not isinstance(data, dict) or data.get("resultType") != "vector" or not isinstance(data.get("result"), list):
        raise NotPrometheus("the answer has no vector of series")
    return tuple(sample for row in data["result"] if (sample := _sample(row)) is not None)


def _sample(row: Any) -> Sample | None:
    """A series; None if its value is NaN, infinite, or not a number. Raises NotPrometheus for any other shape."""
    labels = row.get("metric") if isinstance(row, dict) else None
    value = row.get("value") if isinstance(row, dict) else None
    if not isinstance(labels, dict) or not isinstance(value, list) or len(value) != 2:
        raise NotPrometheus("a series is without labels or value")
    try:
        number = float(value[1])
    except (TypeError, ValueError):
        return None
    return Sample({str(k): str(v) for k, v in labels.items()}, number) if math.isfinite(number) else None


@dataclass(frozen=True, slots=True)
class Run:
    """An attempt whose pods may be measured, from `began` until `ended` (None: it runs).
    `cards`: which device series belong to it: those of "whole" cards, of a MIG "instance", or only of a "part" of a card, for
    which DCGM does not report the pod's own use. `cores`: the share of a card's compute that it may use (1: all).
    """

    attempt: int
    namespace: str
    pods: int
    kind: str
    cards: str
    began: dt.datetime
    ended: dt.datetime | None = None
    cores: float = 1.0


@dataclass(slots=True)
class Use:
    """What one rank used. None: not measured. `gpu` is the share of time (0 to 1) in which its cards computed."""

    gpu: float | None = None
    gpu_mib: float | None = None
    watts: float | None = None
    cards: int = 0
    cpu_milli: float | None = None
    memory_mib: float | None = None

    @property
    def is_empty(self) -> bool:
        return all(value is None for value in (self.gpu, self.gpu_mib, self.watts, self.cpu_milli, self.memory_mib))


Place = tuple[int, int]
"""Attempt id and rank."""


@dataclass(slots=True)
class _Devices:
    """Key of a query → device → values, of one rank. A device that is scraped twice has several values: their mean counts."""

    values: dict[str, dict[tuple[str, ...], list[float]]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, key: str, device: tuple[str, ...], value: float) -> None:
        self.values[key].setdefault(device, []).append(value)

    def of(self, key: str) -> dict[tuple[str, ...], float]:
        return {device: sum(values) / len(values) for device, values in self.values.get(key, {}).items()}


def place_of(labels: Labels, runs: Mapping[str, Run]) -> tuple[Run, int] | None:
    """The run and rank of a series; None if its pod is not the portal's."""
    for pod_label, namespace_label in POD_LABELS:
        match = POD_NAME.fullmatch(labels.get(pod_label, ""))
        run = runs.get(match[1]) if match else None
        if match is None or run is None or labels.get(namespace_label) != run.namespace:
            continue
        rank = _rank(run, match[2])
        if rank is not None:
            return run, rank
    return None


def _rank(run: Run, rest: str | None) -> int | None:
    """The rank, from what follows the run's name in the pod's name: nothing, `<rank>-<random>` for a gang, `<hash>-<random>`
    for a service. None for any other name."""
    if run.kind == "distributed":
        number = (rest or "").partition("-")[0]
        return int(number) if re.fullmatch(r"[0-9]{1,5}", number) and int(number) < run.pods else None
    if run.kind == "service":
        return 0 if rest else None
    return 0 if rest is None else None


def attribute(answers: Mapping[str, Sequence[Sample]], runs: Mapping[str, Run]) -> dict[Place, Use]:
    """The use of every rank that has any series. `answers`: key of a query → its series; `runs`: by name."""
    uses: dict[Place, Use] = defaultdict(Use)
    devices: dict[Place, _Devices] = defaultdict(_Devices)
    host: dict[str, dict[Place, float]] = {"cpu": defaultdict(float), "memory": defaultdict(float)}
    run_of: dict[Place, Run] = {}
    for key, samples in answers.items():
        for sample in samples:
            match = place_of(sample.labels, runs) if sample.value >= 0 else None
            if match is None:
                continue
            run, rank = match
            place = run.attempt, rank
            run_of[place] = run
            if key in ("cpu", "memory"):
                host[key][place] += sample.value
            elif (device := _device(key, sample.labels, run)) is not None:
                devices[place].add(key, device, sample.value)
    for place, cores in host["cpu"].items():
        uses[place].cpu_milli = _fits(cores * 1000)
    for place, size in host["memory"].items():
        uses[place].memory_mib = _fits(size / MIB)
    for place, seen in devices.items():
        _add_devices(uses[place], seen, run_of[place])
    return {place: use for place, use in uses.items() if not use.is_empty}


def _device(key: str, labels: Labels, run: Run) -> tuple[str, ...] | None:
    """Labels that identify a device of the run; None if the series does not show the run's own use of the device."""
    instance = labels.get("GPU_I_ID", "")
    card = labels.get("UUID") or labels.get("device_uuid") or labels.get("deviceuuid") or ""
    if key in ("part_activity", "part_memory"):
        return card, labels.get("container") or labels.get("ctrname") or ""
    if run.cards == "whole":
        return None if instance else (card or labels.get("Hostname", ""), labels.get("gpu", ""))
    if run.cards == "instance":  # utilization and power are known for the whole card only
        known = instance and key in ("activity", "gpu_memory")
        return (card or labels.get("Hostname", ""), labels.get("gpu", ""), instance) if known else None
    return None


def _add_devices(use: Use, seen: _Devices, run: Run) -> None:
    shares = {device: value / 100 for device, value in seen.of("utilization").items()} | seen.of("activity")
    memory = seen.of("gpu_memory")
    if not shares:
        shares = {card: percent / 100 / run.cores for card, percent in _by_card(seen.of("part_activity")).items()}
        shares = {card: min(share, 1.0) for card, share in shares.items() if share * run.cores <= OVER_ONE}
    if not memory:
        memory = {card: value / MIB for card, value in _by_card(seen.of("part_memory")).items()}
    shares = {device: min(value, 1.0) for device, value in shares.items() if value <= OVER_ONE}
    if shares:
        use.gpu = sum(shares.values()) / len(shares)
    if memory:
        use.gpu_mib = _fits(sum(memory.values()))
    if watts := seen.of("power"):
        use.watts = _fits(sum(watts.values()))
    use.cards = min(max(len(shares), len(memory)), 2**15 - 1)


def _by_card(parts: Mapping[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """(card, container) → value, summed by card."""
    sums: dict[tuple[str, ...], float] = defaultdict(float)
    for (card, _container), value in parts.items():
        sums[card,] += value
    return sums


def _fits(value: float) -> float | None:
    return value if 0 <= value <= LARGEST else None


def node_of(labels: Labels) -> str:
    """The node that a series names, without a port; "" if it names none."""
    name = next((labels[label] for label in NODE_LABELS if labels.get(label)), "")
    return re.sub(r":\d+$", "", name)

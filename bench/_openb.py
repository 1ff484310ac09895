"""Nodes and requests like those of a real GPU cluster: Alibaba's cluster-trace-gpu-v2023 ("openb").

The 1,213 nodes are those of openb_node_list_gpu_node.csv, counted by kind; the shares of a card are the most common ones in its
pod lists. Requests for one or more whole cards are rarer than there, so that 10,000 pods fit on the 6,212 cards.
"""

from collections import Counter
from collections.abc import Iterable
from csv import DictReader

from quotas.engine.types import Card, Node
from workloads.replay.traces import Row

CARD = 1000
"""Units of a card: thousandths."""
TENANTS = 8
"""How many of the largest applications are separate tenants."""

NODES = (
    (549, 8, 96_000, 393_216), (387, 2, 104_000, 524_288), (107, 2, 16_000, 122_880), (39, 8, 128_000, 786_432),
    (28, 4, 32_000, 131_072), (22, 2, 64_000, 262_144), (21, 8, 96_000, 786_432), (19, 1, 8_000, 32_768),
    (17, 4, 96_000, 393_216), (9, 4, 48_000, 376_832), (7, 8, 64_000, 262_144), (3, 1, 8_000, 61_440),
    (2, 2, 8_000, 61_440), (2, 1, 128_000, 1_048_576), (1, 8, 82_000, 344_064),
)  # fmt: skip
"""(number of nodes, cards, CPU in millicores, memory in MiB)"""

SHARES = {1000: 22, 810: 11, 470: 25, 320: 11, 650: 8, 230: 15, 160: 7, 2000: 1}
"""Units that a pod requests → relative frequency."""


def nodes() -> tuple[Node, ...]:
    kinds = [kind for count, *kind in NODES for _ in range(count)]
    return tuple(
        Node(f"n{index:04}", (Card(CARD),) * cards, cpu_milli=cpu, memory_mib=memory)
        for index, (cards, cpu, memory) in enumerate(kinds)
    )


def machine_of(units: int) -> dict[str, int]:
    """The CPU and memory that a pod of this many units requests: eight cores and 24 GiB a card."""
    return {"cpu_milli": 8 * units, "memory_mib": 24 * units}


def read_pods(pods: Iterable[str]) -> list[Row]:
    """The pods of a list with times as jobs, in order of submission. A share of a card counts as a whole one; pods that never ran
    are left out.

    The list has no tenants, so they are derived: pods of the same class of service that request the same CPU count as one
    application; the TENANTS applications with the most card-seconds are tenants, and the rest of each class is one more.
    """
    ran = [pod for pod in DictReader(pods) if int(pod["num_gpu"]) and pod["scheduled_time"] and pod["deletion_time"]]
    use: Counter[tuple[str, str]] = Counter()
    for pod in ran:
        use[pod["qos"], pod["cpu_milli"]] += int(pod["num_gpu"]) * _runtime(pod)
    largest = {application for application, _ in use.most_common(TENANTS)}
    rows = [
        Row(
            int(pod["creation_time"]), max(1, _runtime(pod)), int(pod["num_gpu"]),
            f"{pod['qos']}-{pod['cpu_milli'] if (pod['qos'], pod['cpu_milli']) in largest else 'rest'}",
        )
        for pod in ran
    ]  # fmt: skip
    return sorted(rows, key=lambda row: row.submitted_at)


def _runtime(pod: dict[str, str]) -> int:
    return int(pod["deletion_time"]) - int(pod["scheduled_time"])

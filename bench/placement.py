"""How full the engine's placement packs a cluster, compared with random placement and best fit in the same run.

    python bench/placement.py TRACE.csv [--nodes NODES.csv --seeds 10]

TRACE is a pod list of Alibaba's cluster-trace-gpu-v2023 (columns cpu_milli, memory_mib, num_gpu, gpu_milli), NODES its
node list (sn, cpu_milli, memory_mib, gpu; default: openb_node_list_gpu_node.csv beside the trace). Protocol of "Beware
of Fragmentation" (USENIX ATC 2023): tasks arrive in random order until the requested GPU share is 130 % of the cluster;
each is placed at once or fails, and none ends. Prints the allocated GPU share when 100 % and 130 % have arrived.
"""

import argparse
import csv
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quotas.engine.placement import Room, Space, find_places
from quotas.engine.types import Card, Claim, ClaimId, ClaimState, DepartmentId, Node, Pool, PoolId

MILLI = 1000
FIRST_SEED = 42

Task = tuple[int, int, int]
"""(CPU in millicores, memory in MiB, GPU share in thousandths of a card)"""
Place = Callable[[Task], bool]


def tasks_of(trace: Path) -> list[Task]:
    with trace.open(encoding="utf-8") as lines:
        return [
            (
                int(row["cpu_milli"]),
                int(row["memory_mib"]),
                int(row["num_gpu"]) * (int(row["gpu_milli"]) if row["num_gpu"] == "1" else MILLI),
            )
            for row in csv.DictReader(lines)
        ]


def nodes_of(path: Path) -> tuple[Node, ...]:
    with path.open(encoding="utf-8") as lines:
        return tuple(
            Node(
                row["sn"],
                (Card(MILLI),) * int(row["gpu"]),
                cpu_milli=int(row["cpu_milli"]),
                memory_mib=int(row["memory_mib"]),
            )
            for row in csv.DictReader(lines)
        )


class Engine:
    """The portal's placement."""

    def __init__(self, nodes: tuple[Node, ...], _: random.Random) -> None:
        self.pool = Pool(PoolId("openb"), unit="milli", nodes=nodes)
        self.free = Room(Space((self.pool,)))

    def place(self, task: Task) -> bool:
        cpu, memory, share = task
        claim = Claim(
            ClaimId("task"),
            DepartmentId("d"),
            self.pool.id,
            share,
            ClaimState.PENDING,
            0,
            cpu_milli=cpu,
            memory_mib=memory,
        )
        places = find_places(claim, self.pool, self.free)
        if places is None:
            return False
        self.free.add(self.free.space.taken(claim, places), -1)
        return True


class Simple:
    """The baseline of random placement: a random node, and on it the fullest card that fits."""

    def __init__(self, nodes: tuple[Node, ...], chance: random.Random) -> None:
        self.chance = chance
        self.cpu = [node.cpu_milli or 0 for node in nodes]
        self.memory = [node.memory_mib or 0 for node in nodes]
        self.cards = [[card.units for card in node.cards] for node in nodes]
        self.most_cpu = max(self.cpu)

    def place(self, task: Task) -> bool:
        cpu, memory, share = task
        fitting = [
            n
            for n in range(len(self.cpu))
            if self.cpu[n] >= cpu and self.memory[n] >= memory and _has(self.cards[n], share)
        ]
        if not fitting:
            return False
        node = self.pick(fitting, task)
        self.cpu[node] -= cpu
        self.memory[node] -= memory
        _take(self.cards[node], share)
        return True

    def pick(self, fitting: list[int], task: Task) -> int:
        return self.chance.choice(fitting)


class BestFit(Simple):
    """The baseline of best fit: the node with the least CPU and GPU share left."""

    def pick(self, fitting: list[int], task: Task) -> int:
        return min(fitting, key=lambda n: self.cpu[n] / self.most_cpu + sum(self.cards[n]) / (8 * MILLI))


def _has(cards: list[int], share: int) -> bool:
    return max(cards) >= share if share <= MILLI else cards.count(MILLI) * MILLI >= share


def _take(cards: list[int], share: int) -> None:
    if share and share < MILLI:
        cards[cards.index(min(left for left in cards if left >= share))] -= share
    for _ in range(share // MILLI):
        cards[cards.index(MILLI)] = 0


def arrivals(tasks: list[Task], chance: random.Random) -> Iterator[Task]:
    """All tasks in random order, then randomly chosen ones without end."""
    first = tasks[:]
    chance.shuffle(first)
    yield from first
    while True:
        yield chance.choice(tasks)


def fill(place: Place, tasks: list[Task], chance: random.Random, capacity: int) -> tuple[float, float, list[float]]:
    """(percent allocated when 100 % have arrived, and when 130 % have, CPU seconds of each placement)."""
    arrived = allocated = 0
    at_100: float | None = None
    spent: list[float] = []
    for task in arrivals(tasks, chance):
        began = time.process_time()
        placed = place(task)
        spent.append(time.process_time() - began)
        arrived += task[2]
        allocated += task[2] if placed else 0
        if at_100 is None and arrived >= capacity:
            at_100 = 100 * allocated / capacity
        if arrived >= 1.3 * capacity:
            break
    return at_100 or 0.0, 100 * allocated / capacity, spent


def measure(
    name: str, kind: type[Engine] | type[Simple], tasks: list[Task], nodes: tuple[Node, ...], seeds: int
) -> None:
    capacity = sum(card.units for node in nodes for card in node.cards)
    runs = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        chance = random.Random(seed)
        runs.append(fill(kind(nodes, random.Random(seed + 1000)).place, tasks, chance, capacity))
    middle = median(seconds for run in runs for seconds in run[2]) * 1000
    early, late = mean(run[0] for run in runs), mean(run[1] for run in runs)
    print(
        f"{name:10} {early:6.2f} % at 100 %   {late:6.2f} % at 130 %   median {middle:6.2f} CPU ms a task", flush=True
    )


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, nargs="?")
    parser.add_argument("--nodes", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args(arguments)
    if given.trace is None:
        print("Skipped: name a pod list of cluster-trace-gpu-v2023 to measure placement.")
        return
    nodes = nodes_of(given.nodes or given.trace.with_name("openb_node_list_gpu_node.csv"))
    tasks = tasks_of(given.trace)
    print(f"{given.trace.name}: {len(tasks)} tasks, {len(nodes)} nodes, mean of {given.seeds} seeds")
    measure("random", Simple, tasks, nodes, given.seeds)
    measure("best fit", BestFit, tasks, nodes, given.seeds)
    measure("engine", Engine, tasks, nodes, given.seeds)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Thousands of pods at once, then churn: how long planning and reconciling take, and whether the memory of any process grows.

    python -m bench.churn --pods 5000 --nodes 625 --minutes 60 --rate 5 --out churn

Nodes are simulated (KWOK); API server, scheduler, PostgreSQL and Redis are real. Writes OUT.csv (a row every ten seconds) and
OUT.svg.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench._clients import THREADS, Portal, Requests
from bench._installation import Installation, installed, memory_mib, wait

EVERY = 10.0  # s between two samples
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e")
MERGE = "application/merge-patch+json"


class Fleet:
    """The pods that should run; `turn` ends some of them and submits as many."""

    def __init__(self, made: Installation, api: Requests, portal: Portal) -> None:
        self.made, self.api, self.portal, self.chance = made, api, portal, random.Random(1)
        self.threads = ThreadPoolExecutor(THREADS)
        self.running: list[tuple[str, str]] = []  # namespace, pod
        self.ended: set[tuple[str, str]] = set()  # being ended; the portal may not have noticed yet

    def fill(self, count: int) -> None:
        began = time.time()
        names = list(self.threads.map(lambda n: self.portal.submit("vision", f"pod-{n}"), range(count)))
        posted, there = time.time() - began, self.api.await_pods(names, 3600) - began
        print(f"{count} workloads accepted in {posted:.0f} s, their pods there after {there:.0f} s", flush=True)
        wait("all running", lambda: self.states().get("running", 0) >= count, 3600)
        print(f"all seen running after {time.time() - began:.0f} s", flush=True)
        self.look()

    def states(self) -> dict[str, int]:
        from django.db.models import Count

        from workloads.models import Workload

        return dict(Workload.objects.values_list("state").annotate(Count("pk")))

    def look(self) -> None:
        from workloads.models import Attempt

        rows = Attempt.objects.filter(finished_at=None, workload__state="running")
        self.running = [pod for pod in rows.values_list("namespace", "run_name") if pod not in self.ended]

    def turn(self, number: int, count: int) -> None:
        if len(self.running) < count:
            self.look()
        for _ in range(min(count, len(self.running))):
            namespace, pod = self.running.pop(self.chance.randrange(len(self.running)))
            self.ended.add((namespace, pod))
            path = f"{self.api.server}/api/v1/namespaces/{namespace}/pods/{pod}"
            body = b'{"metadata":{"annotations":{"sim/run-for":"0s"}}}'
            self.threads.submit(self.api.pool.request, "PATCH", path, body=body, headers={"Content-Type": MERGE})
            self.threads.submit(self.portal.submit, "vision", f"churn-{number}")


def passes() -> dict[str, float]:
    """Reconciles the whole cluster once and plans twice, in this process: seconds and CPU seconds of each."""
    from portal.errors import Busy
    from quotas.models import Cluster, PoolGroup
    from quotas.planning.run_pass import run_pass
    from workloads.reconciler.reconcile import reconcile_cluster

    found = {}

    def plan() -> None:
        with contextlib.suppress(Busy):  # the watcher has the lock: try again
            run_pass(group_id=group)
            return
        plan()

    group = PoolGroup.objects.get().pk
    for name, act in (
        ("reconcile", lambda: reconcile_cluster(Cluster.objects.get())),
        ("first plan", plan),
        ("plan", plan),
    ):
        began, cpu = time.perf_counter(), time.process_time()
        act()
        found[f"{name} s"], found[f"{name} CPU s"] = time.perf_counter() - began, time.process_time() - cpu
    return found


def show(figures: dict[str, float]) -> None:
    for name, value in figures.items():
        print(f"    {name:28} {value:8.2f}", flush=True)


def sample(made: Installation, fleet: Fleet, began: float) -> dict[str, Any]:
    from django.db import connection

    states = fleet.states()
    waiting = sum(states.get(name, 0) for name in ("queued", "admitted", "starting", "stopping", "recalled"))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database()) / 1048576")
        size = cursor.fetchone()[0]
    memory = {f"{name} MiB": round(memory_mib(pid)) for name, pid in made.pids().items()}
    base = {"seconds": round(time.time() - began), "running": states.get("running", 0), "under way": waiting}
    return base | memory | {"database MiB": int(size)}


def plot(rows: list[dict[str, Any]], out: Path) -> None:
    """Draws the memory of each process over time."""
    names = [name for name in rows[0] if name.endswith("MiB")]
    width, height, left = 900, 420, 60
    most, last = max(row[name] for row in rows for name in names) * 1.05, max(rows[-1]["seconds"], 1)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 240} {height + 50}" font-family="sans-serif"',
             ' font-size="12"><rect width="100%" height="100%" fill="white"/>']  # fmt: skip
    for part in range(5):
        y = height - height * part / 5
        parts.append(
            f'<path d="M{left} {y}H{width}" stroke="#ddd"/><text x="4" y="{y + 4}">{most * part / 5:.0f} MiB</text>'
        )
    for number, name in enumerate(names):
        points = " ".join(
            f"{left + (width - left) * row['seconds'] / last:.1f},{height - height * row[name] / most:.1f}"
            for row in rows
        )
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        text = f"{name.removesuffix(' MiB')}: {rows[0][name]} → {rows[-1][name]}"
        parts.append(f'<text x="{width + 8}" y="{20 + 18 * number}" fill="{colour}">{text}</text>')
    parts.append(f'<text x="{left}" y="{height + 30}">0 to {last / 60:.0f} minutes of churn</text></svg>')
    out.write_text("".join(parts))


def write(rows: list[dict[str, Any]], out: Path) -> None:
    with out.with_suffix(".csv").open("w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    plot(rows, out.with_suffix(".svg"))


def churn(made: Installation, fleet: Fleet, minutes: float, rate: int, out: Path) -> None:
    rows, began, number = [sample(made, fleet, time.time())], time.time(), 0
    while time.time() - began < minutes * 60:
        due = time.time() + EVERY
        while time.time() < due:
            second = time.time()
            fleet.turn(number, rate)
            number += 1
            time.sleep(max(0.0, second + 1 - time.time()))
        rows.append(sample(made, fleet, began))
        write(rows, out)  # each time, in case it is interrupted
    later = rows[len(rows) // 3 :] or rows  # the first third warms up
    for name in (name for name in rows[0] if name.endswith("MiB")):
        print(f"    {name:28} {later[0][name]:6} → {later[-1][name]:6}   most {max(row[name] for row in rows):6}")
    print(f"    {number * rate} pods ended and as many submitted; under way at the end: {rows[-1]['under way']}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench churn", description=__doc__)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--nodes", type=int, default=625)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=5, help="pods a second")
    parser.add_argument("--lease", type=int, default=300, help="s, of a simulated node; renewed four times as often")
    parser.add_argument("--out", type=Path, default=Path("churn"))
    arguments = parser.parse_args(
        None if __name__ == "__main__" else ["--pods", "500", "--nodes", "63", "--minutes", "1"]
    )
    with installed(arguments.nodes, 8, arguments.lease) as made:
        from quotas.models import Pool, Quota
        from tests import servers

        api, portal = Requests(made), Portal(made)
        Quota.objects.filter(department__slug="nlp").delete()
        Quota.objects.update(guaranteed=Pool.objects.get().nominal)
        import threading

        threading.Thread(target=api.watch, daemon=True).start()
        made.start("web", "watcher", "worker", "beat")
        servers.wait("web", lambda: servers.listening(int(os.environ["PORT"])), 180)
        fleet = Fleet(made, api, portal)
        fleet.fill(arguments.pods)
        with contextlib.suppress(KeyboardInterrupt):
            show(passes())
            churn(made, fleet, arguments.minutes, arguments.rate, arguments.out)
            show(passes())


if __name__ == "__main__":
    main()

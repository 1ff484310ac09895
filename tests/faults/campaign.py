"""`python -m tests.faults.campaign --runs 20 --seed 1` (or `--short`): injects faults, chosen by a seed, into a
whole working installation.

Each run submits, ends, stops and deletes work through the API while one fault, or two at once, come and go. Then the
installation must come to rest, with: no accepted workload lost, none ever seen with two pods, no pod without a live
attempt, no card allocated twice, every claim released once, `check_invariants` clean. A seed repeats the same choices,
but not the timing of the processes.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
import urllib3

from bench._installation import PROCESSES, ROOT, Installation, installed, wait
from tests import servers
from tests.faults import faults
from tests.faults.proxy import Proxy

NODES, CARDS = 3, 8
SHORT = (301, 302, 306, 307, 311, 312, 318, 321, 330, 331, 335, 347, 348, 351, 358, 385, 386, 402, 443, 490)
"""Seeds that cover every fault at least once, and those that once found an error."""
MERGE = "application/merge-patch+json"
OURS = "/api/v1/pods?labelSelector=app.kubernetes.io/managed-by%3Dgpu-quota-portal"


class Broken(Exception):
    """A condition that must never occur. The message describes it."""


class Machines(Installation):
    """`copies` of every process: web, web.2, …, each web process on its own port, without a proxy."""

    copies = 1

    def copies_of(self, kind: str) -> list[str]:
        return [kind, *(f"{kind}.{number}" for number in range(2, self.copies + 1))]

    def kill(self, name: str) -> None:
        process = self.running.pop(name, None)
        if process is None:
            return
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in (process.pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def start(self, *names: str) -> None:
        for name in names:
            if name not in self.running:
                self._run(name, PROCESSES[name.partition(".")[0]])

    def start_ahead(self, name: str, seconds: int) -> None:
        python, *program = PROCESSES[name.partition(".")[0]]
        self._run(name, [python, "-m", "tests.faults.ahead", str(seconds), *program])

    def _run(self, name: str, command: list[str]) -> None:
        environment = {**os.environ, "PORT": str(self.ports[name])} if name in self.ports else None
        with (self.log / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=environment)

    @cached_property
    def ports(self) -> dict[str, int]:
        first, *others = self.copies_of("web")
        return {first: int(os.environ["PORT"]), **{name: servers.free_port() for name in others}}

    @property
    def bases(self) -> list[str]:
        return [f"http://127.0.0.1:{port}/api/v1" for port in self.ports.values()]


def _commits_synchronously() -> bool:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        return connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


class World:
    """The installation, the accepted workloads, and a check of the pods every half second."""

    def __init__(self, machines: Machines, proxy: Proxy, rest: float) -> None:
        from quotas.models import Pool
        from tests import builders as make
        from tests.clients import token_of
        from workloads.models import Image

        self.machines, self.admin, self.proxy, self.rest, self.nodes = machines, machines.admin, proxy, rest, NODES
        Image.objects.create(name="python:3.11", title="Python")
        self.pool = Pool.objects.get()
        Pool.objects.update(notice=0, grace=0)
        with psycopg.connect(
            os.environ["DATABASE_URL"], autocommit=True
        ) as connection:  # committed data must survive a crash
            connection.execute("ALTER SYSTEM SET synchronous_commit = on")
            connection.execute("SELECT pg_reload_conf()")
        wait("a database that commits synchronously", _commits_synchronously)
        self.tokens = {}
        for name in ("vision", "nlp"):
            department = make.department(name)
            make.quota(department, self.pool, NODES * CARDS // 2)
            self.tokens[name] = token_of(make.member(department), department, ["read", "submit"])[1]
        self.http = urllib3.PoolManager(maxsize=16, retries=False, timeout=urllib3.Timeout(connect=2, read=20))
        self.accepted: dict[str, str] = {}  # id → department
        self.asked_to_end: set[str] = set()
        self.doubled: list[str] = []
        threading.Thread(target=self._watch_pods, daemon=True).start()

    def pods(self) -> list[dict[str, Any]]:
        return list(self.admin.call("GET", OURS).get("items") or ())

    def _watch_pods(self) -> None:
        while True:
            with contextlib.suppress(OSError, ValueError):
                alive = Counter(
                    pod["metadata"]["annotations"]["gpu-quota-portal/workload"]
                    for pod in self.pods()
                    if pod["status"].get("phase") in ("Pending", "Running") and pod["spec"].get("nodeName")
                )
                self.doubled += [name for name, count in alive.items() if count > 1]
            time.sleep(0.5)

    def ask(self, method: str, path: str, department: str, body: Any = None, key: str = "") -> Any:
        """Sends the request again with the same key until the portal answers, as a pipeline would."""
        headers = {"Authorization": f"Bearer {self.tokens[department]}"} | ({"Idempotency-Key": key} if key else {})
        end = time.monotonic() + 120
        for base in itertools.cycle(chance_order(self.machines.bases)):
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                response = self.http.request(method, f"{base}{path}", json=body, headers=headers)
                if response.status < 500 and response.status not in (409, 429):
                    return response
            if time.monotonic() > end:
                raise Broken(f"{method} {path} was not answered in 120 s")
            time.sleep(0.5)
        raise AssertionError

    def submit(self, chance: random.Random, key: str) -> None:
        department = chance.choice(("vision", "nlp"))
        body = {
            "name": key, "kind": "job", "image": "python:3.11", "command": ["python", "train.py"],
            "pool": self.pool.slug, "units_per_pod": chance.choice((1, 1, 2, 4)), "cpu": 1, "memory_mib": 512,
        }  # fmt: skip
        response = self.ask("POST", f"/departments/{department}/workloads/", department, body, key)
        if response.status != 202:
            raise Broken(f"{response.status}: {response.data[:300]!r}")
        self.accepted[response.json()["id"]] = department

    def end(self, chance: random.Random) -> None:
        """Ends one workload: its author stops it, or it ends by itself."""
        remaining = sorted(set(self.accepted) - self.asked_to_end)
        if not remaining:
            return
        name = chance.choice(remaining)
        self.asked_to_end.add(name)
        if chance.random() < 0.5:
            self.ask("DELETE", f"/workloads/{name}/", self.accepted[name])
            return
        if not self.finish({name}):
            self.asked_to_end.discard(name)  # it is waiting, or the API server cannot be reached

    def finish(self, names: set[str]) -> bool:
        """Lets the pods of these workloads end by themselves, with exit code 0. Repeated after a fault with another value,
        because a node that was gone in the meantime has missed the change."""
        found, at_once = False, {"metadata": {"annotations": {"sim/run-for": f"{time.monotonic_ns() % 1000}ms"}}}
        with contextlib.suppress(OSError, ValueError):
            for pod in self.pods():
                if pod["metadata"]["annotations"]["gpu-quota-portal/workload"] in names:
                    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
                    self.admin.call("PATCH", path, at_once, MERGE)
                    found = True
        return found

    def clear(self) -> None:
        """Stops everything, so that the next run begins with an empty cluster."""
        for name, department in self.accepted.items():
            self.ask("DELETE", f"/workloads/{name}/", department)
        self.asked_to_end = set(self.accepted)
        self.until_rest()
        self.accepted, self.asked_to_end = {}, set()

    def until_rest(self) -> float:
        """Waits until nothing is in progress any more; returns the seconds. Raises Broken with what still is."""
        began = time.monotonic()
        while remaining := self.under_way():
            if time.monotonic() - began > self.rest:
                raise Broken(f"not at rest after {self.rest:.0f} s: {remaining}")
            time.sleep(0.5)
        return time.monotonic() - began

    def under_way(self) -> str:
        from django.db import Error, close_old_connections

        from workloads.models import Attempt, Workload

        close_old_connections()
        try:
            if startable := self.startable_claims():
                return startable
            states = dict(Workload.objects.filter(public_id__in=self.accepted).values_list("public_id", "state"))
            live = Attempt.objects.filter(removed_at=None).exclude(workload__state="queued", finished_at=None)
            runs = set(live.values_list("run_name", flat=True))
            existing = {pod["metadata"]["name"] for pod in self.pods()}
        except (Error, OSError, ValueError) as error:
            return f"the state cannot be read: {error}"
        if lost := set(self.accepted) - set(states):
            raise Broken(f"accepted and not known: {lost}")
        moving = {
            name: state for name, state in states.items() if state in ("admitted", "starting", "stopping", "recalled")
        }
        unended = {name for name in self.asked_to_end if states[name] in ("queued", "running")}
        self.finish(unended)
        if moving or unended or runs != existing:
            return (
                f"moving {moving}, not ended {unended}, without pod {runs - existing}, pods too many {existing - runs}"
            )
        return ""

    def startable_claims(self) -> str:
        """Claims that wait although they could start, as text; "" if there are none."""
        from django.utils import timezone

        from quotas.engine import types as e
        from quotas.engine.planning_pass import decide
        from quotas.planning.snapshot import load_snapshot

        plan = decide(load_snapshot(self.pool.group, now=timezone.now()))
        startable = [d.claim for d in plan.decisions if d.decision is e.DecisionKind.ADMIT]
        return f"could start: {startable}" if startable else ""

    def check(self) -> None:
        from quotas.board import invariants as of_quotas
        from workloads import invariants as of_workloads

        found = [*map(str, of_quotas.violations()), *of_workloads.violations()]
        if self.doubled:
            found.append(f"two pods at once: {sorted(set(self.doubled))}")
        if found:
            raise Broken("; ".join(found))


def chance_order(bases: list[str]) -> list[str]:
    """The addresses in random order, as a load balancer would choose them."""
    return random.sample(bases, len(bases))


def names_of(seed: int, chance: random.Random | None = None) -> list[str]:
    chance = chance or random.Random(seed)
    return chance.sample(faults.NAMES, 1 if chance.random() < 0.6 else 2)


def run(world: World, seed: int) -> str:
    """One run; returns a description. Raises Broken."""
    chance = random.Random(seed)
    names = names_of(seed, chance)
    for number in range(chance.randint(3, 8)):
        world.submit(chance, f"{seed}-{number}")
    time.sleep(chance.uniform(0, 1.5))
    with contextlib.ExitStack() as active_faults:
        for name in sorted(names, key=faults.STOPPED.__contains__):  # last, and ended first: others need them
            active_faults.enter_context(faults.begin(name, world, chance))
        during = time.monotonic() + chance.uniform(2, 8)
        number = 100
        while time.monotonic() < during:
            act = chance.random()
            if act < 0.5 and "kill web" not in names:
                world.submit(chance, f"{seed}-{number}")
                number += 1
            elif "kill web" not in names:
                world.end(chance)
            time.sleep(chance.uniform(0.1, 1))
    took = world.until_rest()
    world.check()
    world.clear()
    world.check()
    return f"{' + '.join(names)}: {len(names)} faults, at rest after {took:.0f} s"


@contextlib.contextmanager
def world(rest: float, seed: int, copies: int) -> Iterator[World]:
    with installed(NODES, CARDS, WEB_WORKERS="1") as plain:
        machines = Machines(plain.admin, plain.info, plain.log)
        machines.copies = copies
        proxy = Proxy(machines.admin.server, machines.admin.tls, seed)
        route_through(machines, proxy)
        try:
            here = World(machines, proxy, rest)
            machines.start(*(name for kind in PROCESSES for name in machines.copies_of(kind)))
            wait("web", lambda: all(map(servers.listening, machines.ports.values())), 300)
            yield here
        finally:
            machines.stop(*machines.running)


def route_through(machines: Machines, proxy: Proxy) -> None:
    """Routes the portal's connection through the proxy, which authenticates to the cluster."""
    import yaml

    from portal.infra.crypt import decrypt, encrypt
    from quotas.models import Cluster

    row = Cluster.objects.get()
    config = yaml.safe_load(decrypt(row.connection))
    config["clusters"][0]["cluster"] = {"server": proxy.url}
    Cluster.objects.filter(pk=row.pk).update(connection=encrypt(yaml.safe_dump(config)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="*", help="only these; or:")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next ones follow")
    parser.add_argument("--short", action="store_true", help="those that CI runs: every fault at least once")
    parser.add_argument("--rest", type=float, default=60, help="seconds in which it must come to rest")
    parser.add_argument("--minutes", type=float, default=600, help="no run begins later")
    parser.add_argument("--copies", type=int, default=1, help="of web, worker, beat and watcher each")
    arguments = parser.parse_args()
    failed, done, end = [], 0, time.monotonic() + arguments.minutes * 60
    with world(arguments.rest, arguments.seed, arguments.copies) as here:
        several = SHORT if arguments.short else arguments.seeds
        for seed in several or range(arguments.seed, arguments.seed + arguments.runs):
            if time.monotonic() > end:
                break
            done += 1
            try:
                print(f"seed {seed:4} ok      {run(here, seed)}", flush=True)
            except Broken as error:
                failed.append(seed)
                print(f"seed {seed:4} BROKEN  {names_of(seed)}: {error}", flush=True)
                here.doubled.clear()
                with contextlib.suppress(Broken):
                    here.clear()
    print(f"{done} runs, {len(failed)} broken {failed or ''}")
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())

"""Faults: each begins and ends by itself, and only leaves behind what the portal has to repair."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import redis

if TYPE_CHECKING:
    from tests.faults.campaign import World

PROXY = ("slow", "deaf", "lost", "cut", "gone", "429", "500", "503", "409", "403")
PROCESSES = ("web", "worker", "beat", "watcher")
MANY = 100  # messages are duplicated up to this length of the queue
QUEUES = ("portal", "portal:hints")  # Celery's queue, and that of hints


def one_of(world: World, chance: random.Random, kind: str) -> str:
    copies = world.machines.copies_of(kind)
    return chance.choice(copies) if len(copies) > 1 else kind  # one: no draw, so that seeds stay valid


@contextlib.contextmanager
def killed(world: World, chance: random.Random, name: str) -> Iterator[None]:
    """Kills one copy of a process and its children with SIGKILL, and starts it again a little later, as a supervisor would."""
    name = one_of(world, chance, name)
    world.machines.kill(name)
    time.sleep(chance.uniform(0, 2))
    try:
        yield
    finally:
        world.machines.start(name)


@contextlib.contextmanager
def proxied(world: World, chance: random.Random, mode: str) -> Iterator[None]:
    world.proxy.share = chance.choice((0.3, 1.0))
    world.proxy.mode = mode
    try:
        yield
    finally:
        world.proxy.mode = ""


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stops a process, which exists but does nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def queue(world: World, chance: random.Random, what: str) -> Iterator[None]:
    """Drops or duplicates messages, or delays them by a second, repeatedly."""
    client: Any = redis.Redis.from_url(os.environ["REDIS_URL"])
    for _ in range(20):
        for name in QUEUES:
            if what == "dropped":
                client.delete(name)
            elif (items := client.lrange(name, 0, -1)) and len(items) < MANY:
                if what == "delayed":
                    client.delete(name)
                    time.sleep(1)
                client.rpush(name, *items)
        time.sleep(0.1)
    yield


@contextlib.contextmanager
def redis_flushed() -> Iterator[None]:
    redis.Redis.from_url(os.environ["REDIS_URL"]).flushall()
    yield


def session() -> psycopg.Connection[Any]:
    """A connection to the database, as soon as it accepts one: another fault may just have restarted it."""
    end = time.monotonic() + 60
    while True:
        try:
            return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


@contextlib.contextmanager
def connections_cut() -> Iterator[None]:
    """Ends all sessions of the database, whatever they are doing; three times."""
    for _ in range(3):
        with session() as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                               " AND backend_type = 'client backend'")  # fmt: skip
        time.sleep(0.3)
    yield


@contextlib.contextmanager
def postgres_restarted() -> Iterator[None]:
    """Kills a backend: the server ends all others, recovers from its log and restarts."""
    with session() as connection:
        found: Any = connection.execute("SELECT pg_backend_pid()").fetchone()
        os.kill(found[0], signal.SIGKILL)
    yield


@contextlib.contextmanager
def clock_ahead(world: World, chance: random.Random) -> Iterator[None]:
    """Runs one process as on a machine whose clock jumps an hour ahead, and back."""
    name = one_of(world, chance, chance.choice(("worker", "beat", "watcher")))
    world.machines.kill(name)
    world.machines.start_ahead(name, 3600)
    try:
        yield
    finally:
        world.machines.kill(name)
        world.machines.start(name)


@contextlib.contextmanager
def pods_deleted(world: World, chance: random.Random) -> Iterator[None]:
    """Deletes about every third pod of the portal, as by hand."""
    for pod in world.pods():
        if chance.random() < 0.34:
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
            world.admin.call("DELETE", f"{path}?gracePeriodSeconds=1")
    yield


@contextlib.contextmanager
def node_gone(world: World, chance: random.Random) -> Iterator[None]:
    """Removes a node with everything that runs on it; an equal one of the same name is added when the fault ends."""
    name = f"kwok-{chance.randrange(world.nodes)}"
    node = world.admin.call("GET", f"/api/v1/nodes/{name}")
    world.admin.call("DELETE", f"/api/v1/nodes/{name}")
    try:
        yield
    finally:
        kept = {"name": name, "labels": node["metadata"]["labels"], "annotations": {"kwok.x-k8s.io/node": "fake"}}
        amounts = {what: node["status"][what] for what in ("capacity", "allocatable")}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": kept, "status": amounts}
        world.admin.call("POST", "/api/v1/nodes", body)


@contextlib.contextmanager
def device_lost(world: World, chance: random.Random) -> Iterator[None]:
    path = f"/api/v1/nodes/kwok-{chance.randrange(world.nodes)}/status"
    merge = "application/merge-patch+json"
    world.admin.call("PATCH", path, {"status": {"allocatable": {"nvidia.com/gpu": "7"}}}, merge)
    try:
        yield
    finally:
        world.admin.call("PATCH", path, {"status": {"allocatable": {"nvidia.com/gpu": "8"}}}, merge)


NAMES = (
    *(f"kill {name}" for name in PROCESSES),
    *(f"api {mode}" for mode in PROXY),
    "api stopped", "redis stopped", "redis flushed", "messages dropped", "messages doubled", "messages delayed",
    "connections cut", "postgres restarted", "clock ahead", "pods deleted", "node gone", "device lost",
)  # fmt: skip
STOPPED = frozenset({"api stopped", "redis stopped"})


def begin(name: str, world: World, chance: random.Random) -> contextlib.AbstractContextManager[None]:
    kind, _, what = name.partition(" ")
    match kind, what:
        case "kill", _:
            return killed(world, chance, what)
        case "api", "stopped":
            return stopped(world.machines.info["pids"]["kube-apiserver"])
        case "api", _:
            return proxied(world, chance, what)
        case "redis", "stopped":
            info: Any = redis.Redis.from_url(os.environ["REDIS_URL"]).info("server")
            return stopped(info["process_id"])
        case "redis", _:
            return redis_flushed()
        case "messages", _:
            return queue(world, chance, what)
        case "connections", _:
            return connections_cut()
        case "postgres", _:
            return postgres_restarted()
        case "clock", _:
            return clock_ahead(world, chance)
        case "pods", _:
            return pods_deleted(world, chance)
        case "node", _:
            return node_gone(world, chance)
        case _:
            return device_lost(world, chance)

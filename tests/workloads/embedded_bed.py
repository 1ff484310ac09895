"""Test bed of the embedded cluster: real processes; tests wait for conditions, never for a fixed time."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from workloads.embedded.command import node_from
from workloads.embedded.driver import EmbeddedCluster
from workloads.runtime.base import Observed, Phase, PodPlacement, RunRef, RunSpec

T = TypeVar("T")
NODES = [
    node_from({"name": "n1", "sharing": "whole", "product": "A100", "unit": "card", "cards": 8}),
    node_from({"name": "n2", "sharing": "whole", "product": "A100", "unit": "card", "cards": 8}),
]
IMAGE = "python:3.11-demo"
FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(1)"
POLITE = "import signal, sys, time\nsignal.signal(15, lambda *_: (print('bye'), sys.exit(0)))\n" + FOREVER[12:]
STUBBORN = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\n" + FOREVER[12:]


def eventually(fact: Callable[[], T], within: float = 60.0) -> T:
    """Waits for a true value and returns it; fails with the last one."""
    end = time.monotonic() + within
    while not (found := fact()):
        assert time.monotonic() < end, f"still {found!r} after {within} s"
        time.sleep(0.02)
    return found


def cluster(root: Path, **changes: Any) -> EmbeddedCluster:
    options: dict[str, Any] = {"images": {IMAGE: sys.executable}, "debug": True, "bind_host": "127.0.0.1"} | changes
    return EmbeddedCluster("demo", root, NODES, **options)


def spec(code: str = "", name: str = "w-one-1", **changes: Any) -> RunSpec:
    options: dict[str, Any] = {
        "ref": RunRef(name, "", f"id-of-{name}"),
        "workload_id": "one",
        "attempt": 1,
        "kind": "job",
        "department": "vision",
        "user": "alice",
        "image": IMAGE,
        "command": ("python", "-c", code),
        "env": {},
        "pods": 1,
        "cpu_milli": 1000,
        "memory_mib": 512,
        "sharing": "whole",
        "product": "A100",
        "units_per_pod": 2,
        "profile": None,
        "placement": (PodPlacement(0, "n1", (4, 5)),),
        "grace": 5,
        "max_runtime": None,
        "volume": "w-one",
        "ready_url": "http://127.0.0.1:8000/api/v1/workloads/one/ready/",
        "ready_token": "ready-secret",
    }
    return RunSpec(**(options | changes))


def observed(driver: EmbeddedCluster, name: str = "w-one-1") -> Observed:
    return next(run for run in driver.observe() if run.ref.name == name)


def ended(driver: EmbeddedCluster, name: str = "w-one-1") -> Observed:
    over = {Phase.SUCCEEDED, Phase.FAILED, Phase.LOST}
    return eventually(lambda: run if (run := observed(driver, name)).phase in over else None)


def running(driver: EmbeddedCluster, name: str = "w-one-1") -> Observed:
    return eventually(lambda: run if (run := observed(driver, name)).phase is Phase.RUNNING else None)


def log(driver: EmbeddedCluster, name: str = "w-one-1", **part: Any) -> str:
    return driver.logs(RunRef(name, "", f"id-of-{name}"), **part).data.decode()


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def processes_of(driver: EmbeddedCluster) -> list[int]:
    """Ids of all processes of this cluster's directory: commands are found by their environment, supervisors by an argument."""
    mark = os.fsencode(driver.root)
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:
            continue
        if mark in text and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


def up(driver: EmbeddedCluster, name: str = "w-one-1") -> None:
    """Waits until the program has printed a whole line with "up": `print` writes it in parts if it is unbuffered."""
    eventually(lambda: re.search("(?m)^up.*\\n", log(driver, name)))


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """An embedded cluster that leaves no process behind."""
    created = cluster(tmp_path / "cluster")
    yield created
    created.shutdown(grace=0)
    eventually(lambda: processes_of(created) == [])

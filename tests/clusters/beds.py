"""Test beds of the driver contract: a bed has a driver, and specs for its runs.

Programs have names: drivers that execute them run the Python code, doubles in memory simulate the `Life` of the same name.
"""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tests.clusters.fakes import InMemoryCluster, Life
from workloads.embedded.command import node_from
from workloads.embedded.driver import EmbeddedCluster
from workloads.kubernetes.driver import Connection, KubernetesCluster
from workloads.runtime.base import ClusterDriver, Observed, Phase, PodPlacement, RunRef, RunSpec

T = TypeVar("T")

LINES = b"".join(b"line %d\n" % i for i in range(200))
FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.1)"
PROGRAMS: dict[str, tuple[str, Life]] = {
    "hello": ("print('hello')", Life(runs=0, log=b"hello\n")),
    "fails": ("import sys; print('no', file=sys.stderr); sys.exit(7)", Life(runs=0, code=7, log=b"no\n")),
    "prints": ("for i in range(200): print('line', i)", Life(runs=0, log=LINES)),
    "forever": (FOREVER, Life(log=b"up\n")),
    "polite": (
        "import signal, sys\ndef leave(*_):\n    print('saved', flush=True); sys.exit(3)\nsignal.signal(15, leave)\n" + FOREVER,
        Life(log=b"up\nsaved\n", stopped_code=3),
    ),
    "stubborn": (
        "import signal\nsignal.signal(15, signal.SIG_IGN)\n" + FOREVER,
        Life(log=b"up\n", farewell=3600),
    ),
    "remembers": (
        "import os, pathlib\np = pathlib.Path(os.environ['PORTAL_WORKDIR'], 'attempts')\n"
        "p.write_text(p.read_text() + '+' if p.exists() else '+')\nprint(p.read_text())",
        Life(),
    ),
    "listens": (
        "import http.server, os\n"
        "class Page(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers(); self.wfile.write(os.environ['PORTAL_TOKEN'].encode())\n"
        "http.server.HTTPServer(('', int(os.environ['PORTAL_PORT'])), Page).serve_forever()",
        Life(),
    ),
    "tells": ("import json, os; print(json.dumps(dict(os.environ)))", Life()),
    "waits_for_notice": (
        "import os, time\npath = os.environ['PORTAL_RECLAIM_AT_FILE']\nprint('up', flush=True)\n"
        "def deadline():\n    return open(path).read().strip() if os.path.exists(path) else ''\n"
        "while not deadline(): time.sleep(0.05)\nprint(deadline(), flush=True)\n"
        "while deadline(): time.sleep(0.05)\nprint('withdrawn', flush=True)",
        Life(),
    ),
}  # fmt: skip


class Bed(Protocol):
    driver: ClusterDriver

    def spec(self, program: str, **changes: Any) -> RunSpec: ...


@dataclass
class PlainBed:
    """`python` is the name of Python in commands of this cluster's image."""

    driver: ClusterDriver
    image: str
    python: str
    node: str
    namespace: str = "gpu-test"
    product: str = ""

    def spec(self, program: str, **changes: Any) -> RunSpec:
        """The spec of a unique run of one pod with one card; `changes` replace its fields."""
        unique = secrets.token_hex(6)
        options: dict[str, Any] = {
            "ref": RunRef(f"w-{unique}-1", self.namespace, f"s-{unique}"),
            "workload_id": unique,
            "attempt": 1,
            "kind": "job",
            "department": "vision",
            "user": "alice@example.org",
            "image": self.image,
            "command": (self.python, "-u", "-c", PROGRAMS[program][0]),
            "env": {"PROGRAM": program},
            "pods": 1,
            "cpu_milli": 50,
            "memory_mib": 128,
            "sharing": "whole",
            "product": self.product,
            "units_per_pod": 1,
            "profile": None,
            "placement": (PodPlacement(0, self.node, (0,)),),
            "grace": 2,
            "max_runtime": None,
            "volume": f"w-{unique}",
            "ready_url": "http://127.0.0.1:8000/ready/",
            "ready_token": "ready-secret",
        }
        return RunSpec(**(options | changes))


def in_memory(kind: type[InMemoryCluster] = InMemoryCluster, **options: Any) -> PlainBed:
    node = node_from({"name": "n1", "sharing": "whole", "product": "A100", "unit": "card", "cards": 8})
    driver = kind("memory", (node,), lambda spec: PROGRAMS[spec.env["PROGRAM"]][1], **options)
    return PlainBed(driver, "any", "python", "n1")


def embedded(root: Path) -> PlainBed:
    node = node_from({"name": "n1", "sharing": "whole", "product": "A100", "unit": "card", "cards": 8})
    image = "python:3.11-demo"
    driver = EmbeddedCluster("demo", root, [node], images={image: sys.executable}, debug=True, bind_host="127.0.0.1")
    return PlainBed(driver, image, "python", "n1")


def kubernetes(kubeconfig: str, name: str) -> PlainBed:
    """Every bed is a separate portal on the shared cluster: its instance and its namespace are unique."""
    options = {"storage_class": "local", "image_pull_policy": "Never", "files_image": "test.local/python:3"}
    driver = KubernetesCluster(name, Connection(kubeconfig, options))
    return PlainBed(
        driver, "test.local/python:3", "python3", "real-0", namespace=f"{name}-vision", product="Pretended-GPU"
    )


def eventually(fact: Callable[[], T], within: float = 90.0, last: Callable[[], object] | None = None) -> T:
    """The first true value of `fact`; fails with the last value, or with that of `last`.

    The limit is long, because only the outcome matters, and a busy disk has made a node wait for half a minute.
    """
    end = time.monotonic() + within
    while not (found := fact()):
        assert time.monotonic() < end, f"still {last() if last else found!r} after {within} s"
        time.sleep(0.05)
    return found


def find_run(driver: ClusterDriver, ref: RunRef) -> Observed | None:
    found = [run for run in driver.observe() if run.ref.name == ref.name]
    assert len(found) <= 1, found
    return found[0] if found else None


def in_phase(driver: ClusterDriver, ref: RunRef, *phases: Phase) -> Observed:
    def find() -> Observed | None:
        run = find_run(driver, ref)
        return run if run is not None and run.phase in phases else None

    return eventually(find, last=lambda: find_run(driver, ref))


def ended(driver: ClusterDriver, ref: RunRef) -> Observed:
    return in_phase(driver, ref, Phase.SUCCEEDED, Phase.FAILED, Phase.LOST)


def log(driver: ClusterDriver, ref: RunRef, **part: Any) -> str:
    return driver.logs(ref, **part).data.decode()


def up(driver: ClusterDriver, ref: RunRef) -> None:
    """Waits until the program has started and installed its signal handlers."""
    eventually(lambda: re.search("(?m)^up.*\\n", log(driver, ref)))

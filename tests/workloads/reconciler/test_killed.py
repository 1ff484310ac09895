"""kill -9 of the demo's process while workloads run: nothing is lost, nothing runs twice, logs continue."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.portal.server.web_server import free_port
from tests.workloads.embedded_bed import cluster, is_alive

WORKLOADS = 6
SEED = """
import django; django.setup()
from portal.access import Actor
from quotas.models import Pool
from tests import builders as make
from workloads import actions
from workloads.nodes import inventory
from workloads.models import Image
from workloads.requests.request import WorkloadRequest
node = {"name": "n1", "sharing": "whole", "product": "NVIDIA-A100-SXM4-80GB", "unit": "card", "cards": 8,
        "cpu_milli": 64000, "memory_mib": 500000}
inventory.refresh(make.cluster("here", options={"nodes": [node]}))
pool, vision = Pool.objects.get(), make.department("vision")
make.quota(vision, pool, 8)
alice, image = make.member(vision), Image.objects.create(name="python", title="Python", interpreter="python")
program = '''
import os, time
open("started", "a").write(os.environ["PORTAL_ATTEMPT"] + " " + str(os.getpid()) + "\\\\n")
n = 0
while True:
    print(n, flush=True)
    n += 1
    time.sleep(.05)
'''
for n in range(%d):
    request = WorkloadRequest(kind="job", name=f"job-{n}", pool=pool, image=image, command=("python", "-c", program))
    actions.submit(actor=Actor(alice), department=vision, request=request)
"""
PORTAL = "import django; django.setup(); from portal.server import serve; serve.one_process(lambda: print('up', flush=True), int)"


@pytest.fixture
def home(tmp_path: Path, migrated: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    shutil.copy(migrated, tmp_path)
    environment = {
        **os.environ, "EMBEDDED": "true", "DEBUG": "true", "DATA_DIR": str(tmp_path), "REDIS_URL": "",
        "DATABASE_URL": f"sqlite:///{tmp_path}/portal.sqlite3", "LOG_LEVEL": "ERROR",
    }  # fmt: skip
    yield tmp_path, environment
    cluster(tmp_path / "cluster" / "here").shutdown(0)


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(f"file:{folder}/portal.sqlite3?mode=ro", uri=True, timeout=20) as database:
        return database.execute(query).fetchall()


def eventually(condition: Callable[[], bool], explain: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, explain()
        time.sleep(0.1)


@pytest.mark.timeout(300)
def test_five_kills_at_random_moments_neither_lose_nor_duplicate_runs(home: tuple[Path, dict[str, str]]) -> None:
    folder, environment = home
    subprocess.run([sys.executable, "-c", SEED % WORKLOADS], env=environment, check=True)
    moments = random.Random(os.getpid())
    states = "SELECT state, attempts_made FROM workloads_workload"
    for kill in range(6):
        environment |= {"PORT": str(free_port()), "NOTEBOOK_PORT": str(free_port())}
        with subprocess.Popen([sys.executable, "-c", PORTAL], env=environment, stdout=subprocess.PIPE) as portal:
            assert portal.stdout is not None
            assert portal.stdout.readline() == b"up\n"
            if kill < 5:  # the first ones hit while workloads are planned and started
                time.sleep(moments.uniform(0.05, 2.5))
            else:
                eventually(lambda: rows(folder, states) == [("running", 1)] * WORKLOADS, lambda: rows(folder, states))
            portal.send_signal(signal.SIGKILL)
    start_lines = [path.read_text().splitlines() for path in folder.glob("cluster/here/volumes/*/started")]
    assert len(start_lines) == WORKLOADS
    assert [len(starts) for starts in start_lines] == [1] * WORKLOADS  # each command was started once
    assert all(is_alive(int(start.split()[1])) for [start] in start_lines)
    runs = cluster(folder / "cluster" / "here").observe()
    assert [run.phase for run in runs] == ["running"] * WORKLOADS
    for run in runs:
        lines = (folder / "cluster" / "here" / "runs" / run.ref.name / "log").read_text().splitlines()
        assert [int(line) for line in lines[:-1]] == list(range(len(lines) - 1))
        assert json.loads((folder / "cluster" / "here" / "runs" / run.ref.name / "state.json").read_text())[
            "started_at"
        ]

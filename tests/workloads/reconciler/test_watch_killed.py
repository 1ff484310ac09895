"""Two watchers, and kill -9 of the one that holds the lease: the other takes the lease over and acts on changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection

from portal.models import Heartbeat
from tests import builders as make
from tests.clusters import beds
from tests.workloads.embedded_bed import cluster
from workloads.reconciler.watch import BEAT, EXPIRES

pytestmark = [
    pytest.mark.timeout(200),
    pytest.mark.skipif(
        not os.environ["DATABASE_URL"].startswith("postgres") or not os.environ["TEST_REDIS_URL"],
        reason="needs PostgreSQL and Redis",
    ),
]


@pytest.fixture
def watchers(transactional_db: None, tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    server, _slash, _name = os.environ["DATABASE_URL"].rpartition("/")
    environment = os.environ | {
        "DATABASE_URL": f"{server}/{connection.settings_dict['NAME']}",
        "REDIS_URL": os.environ["TEST_REDIS_URL"].rpartition("/")[0] + "/5",
        "DATA_DIR": str(tmp_path),
    }
    node = {"name": "n1", "sharing": "whole", "product": "A100", "unit": "card", "cards": 8}
    make.cluster("here", options={"nodes": [node]})
    command = [sys.executable, "manage.py", "watch"]
    running = [subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[3]) for _ in range(2)]
    yield running
    for process in running:
        process.kill()
        process.wait()
    cluster(tmp_path / "cluster" / "here").shutdown(0)


def holder() -> int:
    """The ID of the process that holds the lease; 0 if none does."""
    beat = Heartbeat.objects.filter(name="watch:here").first()
    return int(beat.data["holder"].split(":")[1]) if beat and beat.data.get("holder") else 0


def until(condition: Callable[[], bool], seconds: float) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, f"not in {seconds} s; the lease is {holder()}'s"
        time.sleep(0.1)
    return time.monotonic() - began


def test_second_watcher_takes_over_the_lease_and_acts(watchers: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    pids = {process.pid for process in watchers}
    until(lambda: holder() in pids, 90)
    time.sleep(2 * BEAT)  # the second watcher is running too, and waits
    first = holder()
    os.kill(first, signal.SIGKILL)
    took = until(lambda: holder() not in (0, first), 60)
    assert took < EXPIRES.total_seconds() + 2 * BEAT, took
    assert {holder()} == pids - {first}
    bed = beds.embedded(tmp_path / "cluster" / "here")
    orphan = bed.spec("forever")
    bed.driver.ensure(orphan)  # nothing notifies the portal, and neither a worker nor the beat runs
    until(lambda: beds.find_run(bed.driver, orphan.ref) is None, 60)


def test_cluster_added_later_is_watched_too(watchers: list[subprocess.Popen[bytes]]) -> None:
    until(lambda: holder() != 0, 90)
    make.cluster("there")
    until(lambda: Heartbeat.objects.filter(name="watch:there", data__holder__isnull=False).exists(), 30)

"""The embedded cluster when the portal, a supervisor or everything is killed at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.workloads.embedded_bed import (
    FOREVER,
    POLITE,
    STUBBORN,
    cluster,
    ended,
    eventually,
    log,
    observed,
    processes_of,
    running,
    spec,
    up,
)
from workloads.embedded.driver import EmbeddedCluster
from workloads.embedded.run_directory import Record
from workloads.runtime.base import Phase, PodPlacement, Unreachable


def test_concurrent_ensures_start_one_run(driver: EmbeddedCluster) -> None:
    job = spec(f"print('started', flush=True)\n{FOREVER}")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(driver.ensure, [job] * 16))
    up(driver)
    assert len(driver.observe()) == 1
    assert log(driver).count("started") == 1
    assert eventually(lambda: len(processes_of(driver)) == 2)  # the supervisor and its command


def test_new_portal_on_the_same_root_finds_reads_and_stops_the_run(driver: EmbeddedCluster) -> None:
    driver.ensure(spec(POLITE))
    before = running(driver)
    up(driver)
    again = cluster(driver.root)
    assert observed(again) == before
    again.ensure(spec(POLITE))
    again.stop(spec().ref, grace=20)
    assert ended(again).exit_code == 0
    assert log(again) == "up\nbye\n"


def test_run_and_its_log_continue_after_kill_9_of_the_portal(driver: EmbeddedCluster) -> None:
    code = "import time\nfor n in range(100000): print(n, flush=True); time.sleep(.05)"
    portal = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import pathlib, sys, time\nfrom tests.workloads.embedded_bed import cluster, spec\n"
            f"cluster(pathlib.Path(sys.argv[1])).ensure(spec({code!r})); print('ensured', flush=True)\n"
            "time.sleep(600)",
            str(driver.root),
        ],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert portal.stdout is not None
    assert portal.stdout.readline() == b"ensured\n"
    os.killpg(portal.pid, signal.SIGKILL)
    portal.wait()
    portal.stdout.close()
    before = len(log(driver))
    assert running(driver).phase is Phase.RUNNING
    eventually(lambda: len(log(driver)) > before + 10)
    driver.ensure(spec(code))
    numbers = [int(line) for line in log(driver).splitlines()[:-1]]
    assert numbers == list(range(len(numbers)))  # one writer, nothing doubled, nothing missing


def test_a_run_that_was_claimed_but_never_started_is_started_later(driver: EmbeddedCluster) -> None:
    start, Record.start = Record.start, lambda self: None  # type: ignore[method-assign]
    try:
        driver.ensure(spec("print('late')"))
    finally:
        Record.start = start  # type: ignore[method-assign]
    claimed = driver.root / "runs" / "w-one-1" / "spec.json"
    assert observed(driver).phase is Phase.PENDING
    assert not (claimed.parent / "lock").exists()
    os.utime(claimed, (0, 0))
    assert ended(driver).phase is Phase.SUCCEEDED


def test_run_that_was_stopped_before_its_start_never_runs(driver: EmbeddedCluster) -> None:
    start, Record.start = Record.start, lambda self: None  # type: ignore[method-assign]
    try:
        driver.ensure(spec("print('never')"))
    finally:
        Record.start = start  # type: ignore[method-assign]
    driver.stop(spec().ref, grace=5)
    driver.ensure(spec("print('never')"))
    run = ended(driver)
    assert (run.phase, run.exit_code, run.reason, run.started_at) == (Phase.FAILED, 143, "Stopped", None)
    assert log(driver) == ""


def test_run_whose_supervisor_is_killed_is_lost_and_never_restarted(
    driver: EmbeddedCluster,
) -> None:
    driver.ensure(
        spec(
            "import subprocess, sys\n"
            "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
            + FOREVER
        )
    )
    up(driver)
    state = json.loads((driver.root / "runs" / "w-one-1" / "state.json").read_text())
    os.kill(state["supervisor"], signal.SIGKILL)
    run = ended(driver)
    assert (run.phase, run.reason, run.exit_code) == (Phase.LOST, "NodeLost", None)
    eventually(lambda: processes_of(driver) == [])
    driver.ensure(spec(FOREVER))
    assert observed(driver) == run
    assert log(driver) == "up\n"


def test_shutdown_stops_all_runs_as_lost_so_that_they_are_queued_again(driver: EmbeddedCluster) -> None:
    driver.ensure(spec(POLITE))
    elsewhere = (PodPlacement(0, "n1", (0, 1)),)
    driver.ensure(spec(STUBBORN, name="w-two-1", workload_id="two", volume="w-two", placement=elsewhere))
    elsewhere = (PodPlacement(0, "n1", (2, 3)),)
    driver.ensure(spec("print('done')", name="w-three-1", workload_id="three", volume="w-three", placement=elsewhere))
    ended(driver, "w-three-1")
    up(driver)
    up(driver, "w-two-1")
    assert driver.shutdown(grace=0.5) == 2
    again = cluster(driver.root)
    assert [(run.ref.name, run.phase, run.reason) for run in again.observe()] == [
        ("w-one-1", Phase.LOST, "ClusterStopped"),
        ("w-three-1", Phase.SUCCEEDED, "Completed"),
        ("w-two-1", Phase.LOST, "ClusterStopped"),
    ]


def test_cluster_that_was_shut_down_starts_nothing_more(driver: EmbeddedCluster) -> None:
    driver.shutdown(grace=0)
    with pytest.raises(Unreachable, match="was shut down"):
        driver.ensure(spec(FOREVER))
    assert driver.observe() == ()
    cluster(driver.root).ensure(spec(FOREVER))  # a new cluster does


def test_run_that_was_already_being_stopped_is_not_lost_by_a_shutdown(driver: EmbeddedCluster) -> None:
    driver.ensure(spec(STUBBORN))
    up(driver)
    driver.stop(spec().ref, grace=60)
    eventually(lambda: observed(driver).stopping)
    driver.shutdown(grace=0)
    assert (ended(driver).phase, ended(driver).reason) == (Phase.FAILED, "Stopped")


def test_unfinished_run_directories_are_removed_only_once_they_are_old(driver: EmbeddedCluster) -> None:
    old, young = driver.root / "runs" / ".w-one-1.abcd", driver.root / "runs" / ".w-two-1.abcd"
    for draft in (old, young):
        draft.mkdir()
    os.utime(old, (0, 0))
    assert cluster(driver.root).observe() == ()
    assert (old.exists(), young.exists()) == (False, True)

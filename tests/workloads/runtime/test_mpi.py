"""mpirun starts ranks in other pods through the directory they share, without ssh or any listening server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workloads.runtime import mpi
from workloads.runtime.rank_environment import Gang, Template, environment, hostfile

HOSTS = ("127.0.0.1", "127.0.0.2")  # Open MPI treats the second as another machine
# What every implementation of mpirun does: it calls the replacement of ssh with options, a host and a command.
GREET = 'echo "$GREETING, rank $PORTAL_RANK"; exit 3'
FAKE_MPIRUN = f"""for host in {{hosts}}; do "$OMPI_MCA_plm_rsh_agent" -x $host '{GREET}'; echo $?; done"""


class Ranks:
    """The processes of a gang, each with its own environment, in one working directory."""

    def __init__(self, folder: Path, script: str = mpi.SCRIPT) -> None:
        self.gang = Gang(Template.MPI, HOSTS, (1, 2), hostfile=str(folder / "hostfile"))
        (folder / "hostfile").write_text(hostfile(self.gang))
        self.script = folder / "mpi"
        self.script.write_text(script)
        self.script.chmod(0o755)
        self.folder, self.running = folder, list[subprocess.Popen[str]]()

    def start(self, rank: int, *command: str, **changes: str) -> subprocess.Popen[str]:
        own = environment(self.gang, rank) | {"PORTAL_WORKDIR": str(self.folder), "PORTAL_ATTEMPT": "1", **changes}
        variables = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "GREETING": f"from process {rank}"} | own
        process = subprocess.Popen(
            [self.script, *command], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=self.folder,
        )  # fmt: skip
        self.running.append(process)
        return process


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path)
    yield ranks
    for process in ranks.running:
        process.kill()
        process.communicate()


def test_command_runs_in_the_other_ranks_environment_and_returns_its_exit_code(ranks: Ranks) -> None:
    worker = ranks.start(1, "sh", "-c", "echo never")
    launcher = ranks.start(0, "sh", "-c", FAKE_MPIRUN.format(hosts="127.0.0.2 127.0.0.2"))
    assert launcher.communicate(timeout=60)[0] == "3\n3\n", "the worker is ready again for a second mpirun"
    worker.terminate()
    assert worker.communicate(timeout=60)[0] == "from process 1, rank 1\n" * 2
    assert worker.returncode == 143


def test_launcher_gets_an_error_after_a_timeout_if_the_directory_is_not_shared(ranks: Ranks, tmp_path: Path) -> None:
    ranks.script.write_text(mpi.SCRIPT.replace(str(mpi.TAKEN_WITHIN * 5), "2"))
    ranks.start(1, "true", PORTAL_WORKDIR=str(tmp_path / "elsewhere"))
    launcher = ranks.start(0, "sh", "-c", FAKE_MPIRUN.format(hosts="127.0.0.2"))
    output, errors = launcher.communicate(timeout=60)
    assert output == "1\n"
    assert "is it the same directory for all ranks?" in errors


def test_launcher_waits_until_its_own_host_name_resolves(ranks: Ranks) -> None:
    """Otherwise mpirun treats its own host as another machine and waits for a rank that is itself."""
    getent = ranks.folder / "getent"
    getent.write_text('#!/bin/sh\n[ "$*" = "hosts 127.0.0.1" ] && echo . >> asked && [ $(wc -l < asked) -ge 3 ]')
    getent.chmod(0o755)
    launcher = ranks.start(0, "cat", "asked", PATH=f"{ranks.folder}:{os.environ['PATH']}")
    assert launcher.communicate(timeout=60)[0] == ".\n" * 3


@pytest.mark.skipif(not shutil.which("mpirun.openmpi") and not os.environ.get("CI"), reason="needs Open MPI")
def test_open_mpi_starts_its_second_rank_in_the_other_process(ranks: Ranks) -> None:
    program = 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE $GREETING"'
    command: tuple[Any, ...] = ("mpirun.openmpi", "-np", "2", "--map-by", "node", "sh", "-c", program)
    ranks.start(1, *command)
    output, errors = ranks.start(0, *command).communicate(timeout=90)
    assert sorted(output.splitlines()) == ["0 of 2 from process 0", "1 of 2 from process 1"], errors

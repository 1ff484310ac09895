"""mpirun starts ranks in other pods through the directory they share: no ssh, and nobody who listens."""

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

HOSTS = ("127.0.0.1", "127.0.0.2")  # Open MPI takes the second for another machine
# What every mpirun does, whatever its make: it calls what stands in place of ssh, with options, a host and a command.
SAYS = 'echo "$GREETING, rank $PORTAL_RANK"; exit 3'
STAND_IN = f"""for host in {{hosts}}; do "$OMPI_MCA_plm_rsh_agent" -x $host '{SAYS}'; echo $?; done"""


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
        told = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "GREETING": f"from process {rank}"} | own
        made = subprocess.Popen(
            [self.script, *command], env=told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=self.folder,
        )  # fmt: skip
        self.running.append(made)
        return made


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(tmp_path)
    yield made
    for process in made.running:
        process.kill()
        process.communicate()


def test_a_command_runs_in_the_other_ranks_environment_and_its_exit_code_comes_back(ranks: Ranks) -> None:
    worker = ranks.start(1, "sh", "-c", "echo never")
    launcher = ranks.start(0, "sh", "-c", STAND_IN.format(hosts="127.0.0.2 127.0.0.2"))
    assert launcher.communicate(timeout=60)[0] == "3\n3\n", "a second mpirun finds it ready again"
    worker.terminate()
    assert worker.communicate(timeout=60)[0] == "from process 1, rank 1\n" * 2
    assert worker.returncode == 143


def test_where_the_directory_is_not_shared_the_launcher_is_told_after_a_while(ranks: Ranks, tmp_path: Path) -> None:
    ranks.script.write_text(mpi.SCRIPT.replace(str(mpi.TAKEN_WITHIN * 5), "2"))
    ranks.start(1, "true", PORTAL_WORKDIR=str(tmp_path / "elsewhere"))
    launcher = ranks.start(0, "sh", "-c", STAND_IN.format(hosts="127.0.0.2"))
    output, complaint = launcher.communicate(timeout=60)
    assert output == "1\n"
    assert "is it the same directory for all ranks?" in complaint


def test_the_launcher_waits_until_its_own_name_is_known(ranks: Ranks) -> None:
    """Else mpirun takes its own host for another machine, and would wait for a rank that is itself."""
    knows = ranks.folder / "getent"
    knows.write_text('#!/bin/sh\n[ "$*" = "hosts 127.0.0.1" ] && echo . >> asked && [ $(wc -l < asked) -ge 3 ]')
    knows.chmod(0o755)
    launcher = ranks.start(0, "cat", "asked", PATH=f"{ranks.folder}:{os.environ['PATH']}")
    assert launcher.communicate(timeout=60)[0] == ".\n" * 3


@pytest.mark.skipif(not shutil.which("mpirun.openmpi") and not os.environ.get("CI"), reason="needs Open MPI")
def test_a_real_mpirun_starts_its_second_rank_in_the_other_process(ranks: Ranks) -> None:
    program = 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE $GREETING"'
    command: tuple[Any, ...] = ("mpirun.openmpi", "-np", "2", "--map-by", "node", "sh", "-c", program)
    ranks.start(1, *command)
    output, complaint = ranks.start(0, *command).communicate(timeout=90)
    assert sorted(output.splitlines()) == ["0 of 2 from process 0", "1 of 2 from process 1"], complaint

"""A stopped shell script gives its programs their grace: they get SIGTERM and are waited for, on every executing cluster."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from tests.clusters.beds import Bed, ended, eventually, find_run, log
from workloads.runtime.base import NoSuchRun, Phase, PodPlacement, RunSpec
from workloads.runtime.setups import Setup

SAVES = """\
import signal, sys, time
def leave(*_):
    print("saving", flush=True)
    print(("x" * 99 + "\\n") * {lines}, end="")
    time.sleep({seconds}); print("saved", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("up", flush=True)
while True: time.sleep(0.1)
"""
# Dies of SIGTERM, leaving a child.
DIES = "import subprocess, sys\nsubprocess.Popen([sys.executable, 'saves.py']).wait()"
FOUR_LINES = "set -u\necho begin\n{python} saves.py\necho after"
MOVES = "import os, sys; os.setsid(); os.execv(sys.executable, [sys.executable, 'saves.py'])"
SCRIPTS = {
    "four lines": (FOUR_LINES, 143),
    "a shell in a shell": ("sh -c '{python} saves.py; echo after'\necho after", 143),
    "piped output": ("{python} saves.py | cat\necho after", 143),
    "piped output and errors": ("{python} saves.py 2>&1 | cat | cat\necho after", 143),
    "in the background": ("{python} saves.py &\nwait\necho after", 143),
    "in parentheses": ("( {python} saves.py; echo after ) | cat\necho after", 143),
    "with a trap": ("trap 'echo trapped; exit 9' TERM\n{python} saves.py\necho after", 9),
    "with a trap, ignoring SIGQUIT": (
        "trap '' QUIT\ntrap 'echo trapped; exit 9' TERM\n{python} saves.py\necho after",
        9,
    ),
    "with a trap that ends the program": (
        "trap 'kill $p; wait $p; echo trapped; exit 5' TERM\n{python} saves.py &\np=$!\nwait $p\necho after",
        5,
    ),
    "an orphaned child": ('{python} -c "$DIES"\necho after', 143),
    "with exec as last command": ("echo begin; exec {python} saves.py", 0),
    "output read by a loop": (
        "{python} saves.py 2>&1 | while read line; do echo $line; done\necho after",
        143,
    ),
    "output through two loops": (
        "{python} saves.py | while read line; do echo $line; done | while read line; do echo $line; done\necho after",
        143,
    ),
    "more than a pipe holds, read by a loop": (
        "{python} saves.py | (while read line; do case $line in *xxx*) ;; *) echo $line ;; esac; done)\necho after",
        143,
    ),
    "in its own session": ('{python} -c "$MOVES"\necho after', 143),
    "with its input from a file": ("{python} - < saves.py\necho after", 143),
    "a pipeline of background jobs": ("{python} saves.py | cat &\nwait\necho after", 143),
    "in an endless loop": ("while true; do {python} saves.py; echo after; done", 143),
    "with a time limit": ("timeout 600 {python} saves.py\necho after", 143),
}


def script(bed: Any, text: str, seconds: float, **changes: Any) -> Any:
    """A run of `sh -ec` that first saves the program to a file."""
    text = "cd $(mktemp -d)\nprintf '%s' \"$SAVES\" > saves.py\n" + text.replace("{python}", bed.python)
    lines = "2000" if "xxx" in text else "0"
    saves = SAVES.replace("{seconds}", str(seconds)).replace("{lines}", lines)
    env = {"SAVES": saves, "DIES": DIES, "MOVES": MOVES, "PYTHONUNBUFFERED": "1"}
    return bed.spec("hello", **{"command": ("sh", "-ec", text), "env": env, "grace": 20} | changes)


@pytest.mark.parametrize("name", SCRIPTS)
def test_stopped_script_ends_after_its_programs_have_saved(executing_bed: Bed, name: str) -> None:
    text, code = SCRIPTS[name]
    spec = script(executing_bed, text, seconds=4 if name == "four lines" else 1)
    executing_bed.driver.ensure(spec)
    eventually(lambda: "up" in log(executing_bed.driver, spec.ref))
    executing_bed.driver.stop(spec.ref, spec.grace)
    run = ended(executing_bed.driver, spec.ref)
    output = log(executing_bed.driver, spec.ref).split()
    assert output.count("saved") == 1, output
    # timeout(1) signals its child and their group.
    assert output.count("saving") <= (2 if "timeout" in text else 1), output
    assert "after" not in output
    assert ("trapped" in output) == ("trap" in name)
    assert (run.exit_code, run.reason) == (code, "Stopped")


def test_scripts_of_a_gang_give_their_programs_the_grace_too(executing_bed: Bed) -> None:
    node = executing_bed.spec("hello").placement[0].node
    spec = script(
        executing_bed, FOUR_LINES, seconds=1, kind="distributed", pods=2,
        setup=Setup(template="torch"), placement=(PodPlacement(0, node, (0,)), PodPlacement(1, node, (1,))),
    )  # fmt: skip
    spec = replace(spec, ref=replace(spec.ref, kind="distributed"))
    executing_bed.driver.ensure(spec)

    def are_up() -> bool:
        run = find_run(executing_bed.driver, spec.ref)
        if run is not None and run.gated:
            executing_bed.driver.ensure(spec)
        return all("up" in output_of(executing_bed, spec, rank) for rank in (0, 1))

    eventually(are_up)
    executing_bed.driver.stop(spec.ref, spec.grace)
    run = ended(executing_bed.driver, spec.ref)
    for rank in run.ranks:
        output = output_of(executing_bed, spec, rank.rank).split()
        assert output.count("saved") == 1, output
        assert "after" not in output
        assert (rank.stop_requested, rank.exit_code) == (True, 143)


def output_of(bed: Bed, spec: RunSpec, rank: int) -> str:
    with contextlib.suppress(NoSuchRun):
        return log(bed.driver, spec.ref, rank=rank)
    return ""


def test_program_that_does_not_exit_is_killed_after_its_grace(executing_bed: Bed) -> None:
    spec = script(executing_bed, FOUR_LINES, seconds=3600, grace=2)
    executing_bed.driver.ensure(spec)
    eventually(lambda: "up" in log(executing_bed.driver, spec.ref))
    executing_bed.driver.stop(spec.ref, spec.grace)
    run = ended(executing_bed.driver, spec.ref)
    assert run.phase is Phase.FAILED
    assert run.exit_code in (137, 143)
    output = log(executing_bed.driver, spec.ref).split()
    assert "saving" in output
    assert "saved" not in output
    assert "after" not in output

"""A script keeps the grace of what it runs: its programs are told to end and waited for, on every cluster that executes."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from tests.clusters.beds import Bed, ended, eventually, log, seen
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
DIES = "import subprocess, sys\nsubprocess.Popen([sys.executable, 'saves.py']).wait()"  # of SIGTERM, and leaves a child
FOUR_LINES = "set -u\necho begin\n{python} saves.py\necho after"
MOVES = "import os, sys; os.setsid(); os.execv(sys.executable, [sys.executable, 'saves.py'])"
SCRIPTS = {
    "four lines": (FOUR_LINES, 143),
    "a shell in a shell": ("sh -c '{python} saves.py; echo after'\necho after", 143),
    "its output is written down": ("{python} saves.py | cat\necho after", 143),
    "its errors too": ("{python} saves.py 2>&1 | cat | cat\necho after", 143),
    "in the background": ("{python} saves.py &\nwait\necho after", 143),
    "in parentheses": ("( {python} saves.py; echo after ) | cat\necho after", 143),
    "with a trap": ("trap 'echo trapped; exit 9' TERM\n{python} saves.py\necho after", 9),
    "with a trap, deaf to SIGQUIT": (
        "trap '' QUIT\ntrap 'echo trapped; exit 9' TERM\n{python} saves.py\necho after",
        9,
    ),
    "by its own trap": (
        "trap 'kill $p; wait $p; echo trapped; exit 5' TERM\n{python} saves.py &\np=$!\nwait $p\necho after",
        5,
    ),
    "what it leaves behind": ('{python} -c "$DIES"\necho after', 143),
    "as the last word": ("echo begin; exec {python} saves.py", 0),
    "each line is written down by a loop": (
        "{python} saves.py 2>&1 | while read line; do echo $line; done\necho after",
        143,
    ),
    "a loop feeds a loop": (
        "{python} saves.py | while read line; do echo $line; done | while read line; do echo $line; done\necho after",
        143,
    ),
    "more than a pipe holds, read by a loop": (
        "{python} saves.py | (while read line; do case $line in *xxx*) ;; *) echo $line ;; esac; done)\necho after",
        143,
    ),
    "in a session of its own": ('{python} -c "$MOVES"\necho after', 143),
    "with its input from a file": ("{python} - < saves.py\necho after", 143),
    "a pipeline of background jobs": ("{python} saves.py | cat &\nwait\necho after", 143),
    "for good, in a loop": ("while true; do {python} saves.py; echo after; done", 143),
    "with a time limit": ("timeout 600 {python} saves.py\necho after", 143),
}


def script(bed: Any, text: str, seconds: float, **changes: Any) -> Any:
    """A run of `sh -ec`, its program saved beside it first."""
    text = "cd $(mktemp -d)\nprintf '%s' \"$SAVES\" > saves.py\n" + text.replace("{python}", bed.python)
    lines = "2000" if "xxx" in text else "0"
    saves = SAVES.replace("{seconds}", str(seconds)).replace("{lines}", lines)
    env = {"SAVES": saves, "DIES": DIES, "MOVES": MOVES, "PYTHONUNBUFFERED": "1"}
    return bed.spec("hello", **{"command": ("sh", "-ec", text), "env": env, "grace": 20} | changes)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_ends_when_what_it_runs_has_saved(executing_bed: Bed, name: str) -> None:
    text, code = SCRIPTS[name]
    spec = script(executing_bed, text, seconds=4 if name == "four lines" else 1)
    executing_bed.driver.ensure(spec)
    eventually(lambda: "up" in log(executing_bed.driver, spec.ref))
    executing_bed.driver.stop(spec.ref, spec.grace)
    run = ended(executing_bed.driver, spec.ref)
    said = log(executing_bed.driver, spec.ref).split()
    assert said.count("saved") == 1, said
    assert said.count("saving") <= (2 if "timeout" in text else 1), said  # timeout(1) tells its child and their group
    assert "after" not in said
    assert ("trapped" in said) == ("trap" in name)
    assert (run.exit_code, run.reason) == (code, "Stopped")


def test_the_scripts_of_a_gang_keep_their_grace_too(executing_bed: Bed) -> None:
    node = executing_bed.spec("hello").placement[0].node
    spec = script(
        executing_bed, FOUR_LINES, seconds=1, kind="distributed", pods=2,
        setup=Setup(template="torch"), placement=(PodPlacement(0, node, (0,)), PodPlacement(1, node, (1,))),
    )  # fmt: skip
    spec = replace(spec, ref=replace(spec.ref, kind="distributed"))
    executing_bed.driver.ensure(spec)

    def are_up() -> bool:
        run = seen(executing_bed.driver, spec.ref)
        if run is not None and run.gated:
            executing_bed.driver.ensure(spec)
        return all("up" in said_by(executing_bed, spec, rank) for rank in (0, 1))

    eventually(are_up)
    executing_bed.driver.stop(spec.ref, spec.grace)
    run = ended(executing_bed.driver, spec.ref)
    for rank in run.ranks:
        said = said_by(executing_bed, spec, rank.rank).split()
        assert said.count("saved") == 1, said
        assert "after" not in said
        assert (rank.stop_requested, rank.exit_code) == (True, 143)


def said_by(bed: Bed, spec: RunSpec, rank: int) -> str:
    with contextlib.suppress(NoSuchRun):
        return log(bed.driver, spec.ref, rank=rank)
    return ""


def test_a_program_that_does_not_go_is_killed_when_its_grace_is_over(executing_bed: Bed) -> None:
    spec = script(executing_bed, FOUR_LINES, seconds=3600, grace=2)
    executing_bed.driver.ensure(spec)
    eventually(lambda: "up" in log(executing_bed.driver, spec.ref))
    executing_bed.driver.stop(spec.ref, spec.grace)
    run = ended(executing_bed.driver, spec.ref)
    assert run.phase is Phase.FAILED
    assert run.exit_code in (137, 143)
    said = log(executing_bed.driver, spec.ref).split()
    assert "saving" in said
    assert "saved" not in said
    assert "after" not in said

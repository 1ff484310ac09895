"""A run directory (supervisor.py lists its files): the state of the run, its log, and orders to its supervisor."""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from workloads.embedded import supervisor
from workloads.embedded.supervisor import read_json, write_atomically
from workloads.runtime.base import LogChunk, Observed, Phase, Rank, RunRef, last_lines

START_AGAIN_AFTER = 3.0  # seconds a claimed run may be without a supervisor before another one is started


def moment(seconds: float | None) -> dt.datetime | None:
    return None if seconds is None else dt.datetime.fromtimestamp(seconds, dt.UTC)


@dataclass(frozen=True)
class Record:
    directory: Path

    def read(self, name: str) -> dict[str, Any] | None:
        return read_json(self.directory / f"{name}.json")

    def claim(self, plan: dict[str, Any]) -> bool:
        """Create the directory, complete or not at all. True for exactly one caller."""
        draft = self.directory.with_name(f".{self.directory.name}.{token_hex(4)}")
        draft.mkdir(mode=0o700)
        (draft / "spec.json").write_text(json.dumps(plan))
        try:
            draft.rename(self.directory)  # fails unless the target is empty or absent
        except OSError:
            shutil.rmtree(draft)
            if not self.directory.exists():
                raise
            return False
        return True

    def start(self) -> None:
        """Start a supervisor. Harmless if one runs: a second one finds the lock held or the state written, and exits."""
        subprocess.run(  # noqa: S603 the program is ours
            [sys.executable, "-I", "-S", supervisor.__file__, str(self.directory)],
            check=True,
            timeout=30,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            start_new_session=True,  # neither Ctrl-C nor a closed terminal reaches it
        )

    def is_supervised(self) -> bool:
        try:
            with (self.directory / "lock").open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def look(self) -> Observed | None:
        """The run's state; None if the run does not exist or no longer exists."""
        spec = self.read("spec")
        if spec is None:
            return None
        state = self.read("state")
        ending = self.read("exit") or (self.settle_if_lost() if state else None)
        if state is None and ending is None:
            self.start_if_forgotten()
        phase = phase_of(state, ending)
        return Observed(
            ref=RunRef(spec["name"], spec["namespace"], spec["submission_id"]),
            workload_id=spec["workload_id"],
            attempt=spec["attempt"],
            phase=phase,
            stopping=ending is None and (self.directory / "stop.json").exists(),
            exit_code=ending["exit_code"] if ending else None,
            reason=ending["reason"] if ending else "",
            message=ending["message"] if ending else "",
            node=spec["node"],
            cards=tuple(spec["cards"]),
            ready=(self.directory / "ready").exists(),
            started_at=moment(state["started_at"]) if state else None,
            finished_at=moment(ending["finished_at"]) if ending else None,
            checkpointed_at=moment(newest_checkpoint(Path(spec["workdir"]))),
            ranks=ranks_of(spec, state, ending),
        )

    def start_if_forgotten(self) -> None:
        """Start the supervisor if the process that claimed the run was killed before it could start it."""
        with contextlib.suppress(FileNotFoundError):
            age = time.time() - (self.directory / "spec.json").stat().st_mtime
            if age > START_AGAIN_AFTER and not self.is_supervised():
                self.start()

    def settle_if_lost(self) -> dict[str, Any] | None:
        """Record the run as lost if its supervisor is gone without a final state (killed, or the machine went down). Returns the
        content of exit.json, None while the supervisor lives."""
        if self.is_supervised():
            return None
        if (ending := self.read("exit")) is not None:  # it ended between the two checks
            return ending
        kill_by_environment(f"PORTAL_READY_FILE={self.directory / 'ready'}")
        ending = {
            "exit_code": None,
            "reason": "NodeLost",
            "message": "its supervisor was killed or the machine restarted",
            "lost": True,
            "finished_at": time.time(),
        }
        with contextlib.suppress(FileNotFoundError):
            write_atomically(self.directory / "exit.json", json.dumps(ending))
        return ending

    def order_stop(self, grace: float, *, cluster_stops: bool = False) -> None:
        """Order a stop. Later orders can only shorten the grace; the reason is that of the first one."""
        if self.read("spec") is None or self.read("exit") is not None:
            return
        order = {"kill_at": time.time() + grace, "cluster_stops": cluster_stops}
        if (before := self.read("stop")) is not None:
            order = {**before, "kill_at": min(order["kill_at"], before["kill_at"])}
        write_atomically(self.directory / "stop.json", json.dumps(order))
        self.wake()

    def wake(self) -> None:
        """Make the supervisor read the files now; otherwise it reads them within a second."""
        state = self.read("state")
        if state is not None and self.is_supervised():  # the held lock proves that the pid is still the supervisor's
            with contextlib.suppress(ProcessLookupError):
                os.kill(state["supervisor"], signal.SIGUSR1)

    def endpoint(self) -> tuple[str, int] | None:
        state, spec = self.read("state"), self.read("spec")
        if not state or not spec or not state["listening"] or self.read("exit") is not None:
            return None
        return "127.0.0.1", spec["port"]

    def log(self, rank: int, offset: int, tail: int | None, limit: int) -> LogChunk:
        """The last `tail` lines within the last `limit` bytes; without `tail`, `limit` bytes from `offset`."""
        over = self.read("exit") is not None  # read first: the log is complete by then
        try:
            with (self.directory / (f"log.{rank}" if rank else "log")).open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                start = max(0, size - limit) if tail is not None else min(offset, size)
                log.seek(start)
                data = log.read(limit)
        except FileNotFoundError:
            return LogChunk(b"", 0, over)
        end = over and start + len(data) >= size
        if tail is not None:
            tail_data = last_lines(data, tail)
            start, data = start + len(data) - len(tail_data), tail_data
        return LogChunk(data, start, end)


def phase_of(state: dict[str, Any] | None, ending: dict[str, Any] | None) -> Phase:
    if ending is None:
        return Phase.RUNNING if state and state["started_at"] else Phase.PENDING
    if ending["lost"]:
        return Phase.LOST
    good = ending["exit_code"] == 0 and ending["reason"] != "DeadlineExceeded"
    return Phase.SUCCEEDED if good else Phase.FAILED


def ranks_of(spec: dict[str, Any], state: dict[str, Any] | None, ending: dict[str, Any] | None) -> tuple[Rank, ...]:
    """The ranks of a gang or a service; () for other runs."""
    if len(spec["ranks"]) < 2 and not spec["restarts"]:
        return ()
    lives = state["ranks"] if state else [{}] * len(spec["ranks"])
    return tuple(
        Rank(
            rank,
            rank_phase(life, ending),
            stop_requested=life.get("stop_requested", False),
            node=wanted["node"],
            cards=tuple(wanted["cards"]),
            exit_code=life.get("code"),
            reason=""
            if life.get("code") is None
            else "Stopped"
            if life["stop_requested"]
            else "Error"
            if life["code"]
            else "Completed",
            started_at=moment(life.get("started_at")),
            finished_at=moment(life.get("finished_at")),
            ready=bool(state and state["listening"]) and ending is None if spec["restarts"] else None,
            restarts=life.get("restarts", 0),
        )
        for rank, (wanted, life) in enumerate(zip(spec["ranks"], lives, strict=True))
    )


def rank_phase(life: dict[str, Any], ending: dict[str, Any] | None) -> Phase:
    if life.get("code") is not None:
        return Phase.FAILED if life["code"] else Phase.SUCCEEDED
    if ending is not None:
        return Phase.LOST
    return Phase.RUNNING if life.get("started_at") else Phase.PENDING


def newest_checkpoint(workdir: Path) -> float | None:
    """The newest modification time of anything named `checkpoint*` in the working directory."""
    with contextlib.suppress(OSError):
        return max((path.stat().st_mtime for path in workdir.glob("checkpoint*")), default=None)
    return None


def kill_by_environment(entry: str) -> None:
    """Kill every process that was started with this entry in its environment (Linux)."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry.encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)

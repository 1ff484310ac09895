"""Starting, awaiting and ending the cluster's processes, and the state directory in which they are recorded."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PORTS = range(10_000, 20_000)  # below those of outgoing connections, which could take a port first
_kept: list[socket.socket] = []
_children: list[subprocess.Popen[bytes]] = []  # they outlive the process that starts them, and are ended by their ids


def free_port() -> int:
    """A free port. Other kits do not choose it until this process ends; by then its server has bound it."""
    for port in random.sample(PORTS, len(PORTS)):
        mark = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            mark.bind(f"\0gpu-quota-portal-port-{port}")
            _kept.append(mark)
            return port
        mark.close()
    raise SystemExit(f"no port between {PORTS.start} and {PORTS.stop} is free")


def sh(*cmd: object) -> None:
    done = subprocess.run([str(c) for c in cmd], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, cmd))}: {done.stderr.strip()[-2000:]}")


def wait(what: str, ready: Callable[[], object], timeout: float = 60) -> float:
    start = time.monotonic()
    while time.monotonic() - start < timeout:
        try:
            if ready():
                return round(time.monotonic() - start, 2)
        except (Exception, SystemExit):
            pass
        time.sleep(0.05)
    raise SystemExit(f"{what} was not ready in {timeout} s")


class Processes:
    """The processes of one cluster. Each runs in the state directory, by which a reused process id is recognised."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.file = state / "pids.json"
        self.pids: dict[str, int] = json.loads(self.file.read_text()) if self.file.exists() else {}

    def spawn(self, name: str, *cmd: object, environment: dict[str, str] | None = None) -> None:
        with (self.state / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(c) for c in cmd],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self.state,
                env=os.environ | (environment or {}),
            )
        _children.append(process)
        self.pids[name] = process.pid
        self.file.write_text(json.dumps(self.pids))

    def alive(self, name: str) -> bool:
        pid = self.pids.get(name, 0)
        try:
            return bool(pid) and Path(os.readlink(f"/proc/{pid}/cwd")) == self.state and _state(pid) != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    def kill(self, name: str) -> None:
        if not self.alive(name):
            return
        os.kill(self.pids[name], signal.SIGKILL)
        while self.alive(name):
            time.sleep(0.02)

    def kill_all(self) -> None:
        """Kills clients first and etcd last; none of them needs a graceful end."""
        for name in reversed(list(self.pids)):
            self.kill(name)

    def forget(self) -> None:
        with open("/proc/mounts") as mounts:
            points = [line.split()[1] for line in mounts]
        for point in reversed(points):
            if point.startswith(f"{self.state}/"):
                subprocess.run(["umount", "-l", point], capture_output=True)
        shutil.rmtree(self.state, ignore_errors=True)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]

"""The supervisor of one embedded run: a small detached process that outlives the portal.

    python -I -S supervisor.py RUN_DIRECTORY

It needs the standard library only. It communicates with the portal through files in the run directory, so either may be
killed at any moment and nothing is lost, doubled or forgotten:
| file | written by | content |
|---|---|---|
| `spec.json` | driver, before the directory appears under its name | what to run |
| `lock` | supervisor | held (flock) as long as the supervisor lives, because a pid alone proves nothing |
| `state.json` | supervisor, before the first process starts, and at changes | its pid, started_at, listening, each rank's life |
| `usage.json` | driver | readings of what its processes used (usage.py) |
| `hostfile`, `mpi` | supervisor, of a gang | its hosts, as mpirun reads them; the program that starts ranks without ssh |
| `log`, `log.1`, … | the processes | stdout and stderr of rank 0, 1, … |
| `reclaim-at`, `ready` | driver, command | the reclaim time; "checkpoint written, may be stopped" |
| `stop.json` | driver | stop now, kill at `kill_at`; `cluster_stops`: the whole cluster stops |
| `max_runtime` | driver | replaces the limit of spec.json, when it was extended |
| `exit.json` | supervisor, last | how it ended |

`state.json` without a held lock and without `exit.json` means that it is unknown how the run ended: it is lost, and never
started again.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

TICK = 0.5  # seconds between reads of the files when no signal comes
FAREWELL = 0.1  # seconds between rounds while processes have still to get SIGTERM
SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
LONGEST_PAUSE = 30.0  # seconds before a service that keeps exiting is restarted
LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return content


def write_atomically(path: Path, text: str) -> None:
    """Write the file so that readers see the old text or the new one, also after a power cut."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)


def prctl(option: int, value: int) -> None:
    """Call prctl, on Linux only. Elsewhere, processes that moved to another session or lost their supervisor survive."""
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def default_signals() -> None:
    """Restore default signal handling for the command, as in a container: the portal may have been started with some signals
    ignored (`nohup`, or `&` in a script), and Python ignores SIGPIPE and SIGXFSZ."""
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has ended, without reaping it: as long as a leader is a zombie, its group's id is not
    reused."""
    if LINUX:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def start_of(pid: int) -> str:
    """The first word of the process's command line, without the path."""
    with contextlib.suppress(OSError):
        return os.path.basename(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0", 1)[0].decode(errors="replace"))
    return ""


def parents_of_rank(leader: int, others: Collection[int]) -> dict[int, int]:
    """Living processes of a rank, each with its parent: those in its leader's session, orphans adopted by this process that are
    not in the session of one of `others`, and all their descendants, in whatever session."""
    parents, sessions = dict[int, int](), dict[int, int]()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent, _group, session = path.joinpath("stat").read_text().rpartition(") ")[2].split()[:4]
            if state not in "ZX":
                parents[int(path.name)], sessions[int(path.name)] = int(parent), int(session)
    strangers, left = {os.getpid(), *others}, os.getpid()

    def is_of_rank(pid: int) -> bool:
        while pid in parents and pid not in strangers:
            if sessions[pid] == leader or (parents[pid] == left and sessions[pid] not in others):
                return True
            pid = parents[pid]
        return False

    return {pid: parent for pid, parent in parents.items() if is_of_rank(pid)}


def is_below(pid: int, above: int, parents: Mapping[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == above:
            return True
    return False


def signals_of(pid: int, which: str) -> int:
    """The mask of signals that a process catches ("SigCgt") or ignores ("SigIgn")."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(f"{which}:")).split()[1], 16)
    return 0


def has(mask: int, number: signal.Signals) -> bool:
    return bool(mask >> (number - 1) & 1)


def writes_to(writer: int, reader: int) -> bool:
    """Whether an output of the first process is the pipe that the second one reads."""
    with contextlib.suppress(OSError):
        pipe = os.readlink(f"/proc/{reader}/fd/0")
        return pipe.startswith("pipe:") and pipe in (os.readlink(f"/proc/{writer}/fd/{fd}") for fd in (1, 2))
    return False


class Farewell:
    """Ends the processes of one rank by the rules of workloads/kubernetes/manifests/pre_stop.py; `go_on` does one round."""

    def __init__(self, leader: int, others: Collection[int] = ()) -> None:
        self.leader, self.others = leader, others
        self.held: set[int] = set()
        self.left: set[int] = set()  # shells left to their own trap
        self.readers: set[int] = set()  # shells that read another program's output
        self.signalled: set[int] = set()
        self.fed: set[int] = set()
        self.done = False

    def go_on(self) -> None:
        if not LINUX and not self.done:
            self.done = True
            send(os.killpg, self.leader, signal.SIGTERM)
        if self.done:
            return
        programs = self.hold()
        fed = {pid for pid in programs if any(writes_to(each, pid) for each in programs if each != pid)}
        for pid, parent in programs.items():
            if self.is_top(parent) and pid not in self.left and pid not in self.signalled | self.fed | fed:
                send(os.kill, pid, signal.SIGTERM)
                self.signalled.add(pid)
        self.fed = fed
        if not programs:
            self.done = True
            for number in (signal.SIGTERM, signal.SIGCONT):
                for pid in self.held:
                    send(os.kill, pid, number)

    def hold(self) -> dict[int, int]:
        """Hold every shell all of whose ancestors are shells; returns the other processes, each with its parent."""
        while True:
            everyone = parents_of_rank(self.leader, self.others)
            programs = {pid: parent for pid, parent in everyone.items() if pid not in self.held}
            tops = [pid for pid, parent in programs.items() if self.is_top(parent)]
            shells = [pid for pid in tops if pid not in self.left | self.readers and start_of(pid) in SHELLS]
            reading = {pid for pid in shells if self.is_reader(pid, everyone)}
            self.readers |= reading
            new = [pid for pid in shells if pid not in reading]
            if not new:
                return programs
            for pid in new:
                send(os.kill, pid, signal.SIGSTOP)
                if self.handles_it(pid, [each for each, parent in programs.items() if parent == pid]):
                    self.left.add(pid)
                    send(os.kill, pid, signal.SIGTERM)
                    send(os.kill, pid, signal.SIGCONT)
                else:
                    self.held.add(pid)

    def is_reader(self, shell: int, everyone: Mapping[int, int]) -> bool:
        return any(writes_to(each, shell) and not is_below(each, shell, everyone) for each in everyone if each != shell)

    def handles_it(self, shell: int, children: list[int]) -> bool:
        """Whether the shell has a trap for SIGTERM and only background children, which a shell makes ignore SIGQUIT. If the shell
        ignores SIGQUIT itself, its children show nothing. With a trap for its exit bash catches every fatal signal, and dies of
        SIGTERM all the same."""
        caught = signals_of(shell, "SigCgt")
        own = has(caught, signal.SIGTERM) and not has(caught, signal.SIGVTALRM)
        if not own or not children or has(signals_of(shell, "SigIgn"), signal.SIGQUIT):
            return False
        return all(has(signals_of(child, "SigIgn"), signal.SIGQUIT) for child in children)

    def is_top(self, parent: int) -> bool:
        return parent in self.held or parent in (1, os.getpid())


def send(kill: Callable[[int, int], None], pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        kill(pid, number)


class Supervisor:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.spec = read_json(directory / "spec.json") or {}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}  # rank → process, while it lives
        self.codes: dict[int, int] = {}  # rank → exit code
        lives: list[dict[str, Any]] = [
            {"started_at": None, "finished_at": None, "code": None, "stop_requested": False, "restarts": 0}
            for _ in self.spec.get("ranks", ())
        ]
        self.state: dict[str, Any] = {
            "supervisor": os.getpid(), "started_at": None, "listening": False, "ranks": lives,
        }  # fmt: skip
        self.pauses = 0
        self.farewells: dict[int, Farewell] = {}  # rank → its shutdown in progress
        self.again_at: dict[int, float] = {}  # rank of a service → when it is restarted
        self.kill_at: float | None = None
        self.reason = self.message = ""
        self.lost = False

    def run(self) -> None:
        with (self.directory / "lock").open("w") as lock:
            if not self.claim(lock.fileno()):
                return
            self.save()
            wake = self.catch_signals()
            self.read_stop()
            if self.kill_at is None:
                self.start()
            while self.processes or self.again_at:
                select.select([wake], [], [], self.patience())
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 4096)
                self.tick()
            self.sweep()
            self.finish()

    def claim(self, lock: int) -> bool:
        """Ensure that a run has one supervisor and that its command is started at most once; False if this process must exit."""
        for _ in range(20):  # the driver may hold the lock for a moment to probe it
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return not (self.directory / "state.json").exists()
            time.sleep(0.05)
        return False

    def catch_signals(self) -> int:
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.interrupt())
        return read

    def interrupt(self) -> None:
        """The machine shuts down: the run counts as lost and is queued again."""
        self.lost = self.lost or self.kill_at is None
        self.end("ClusterStopped", time.time() + self.spec["grace"])

    def start(self) -> None:
        self.state["started_at"] = time.time()
        if self.spec["hostfile"]:
            (self.directory / "hostfile").write_text(self.spec["hostfile"])
        if self.spec["starter"]:
            starter = self.directory / "mpi"
            starter.write_text(self.spec["starter"])
            starter.chmod(0o755)
        for rank in range(len(self.spec["ranks"])):
            if not self.start_rank(rank):
                break
        self.save()

    def start_rank(self, rank: int) -> bool:
        wanted, life = self.spec["ranks"][rank], self.state["ranks"][rank]
        life["started_at"] = time.time()
        with (self.directory / (f"log.{rank}" if rank else "log")).open("ab") as output:
            try:
                self.processes[rank] = subprocess.Popen(  # noqa: S603 running what was submitted is the purpose
                    wanted["argv"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self.spec["workdir"],
                    env=wanted["env"],
                    start_new_session=True,
                    preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
                )
                life["pid"] = self.processes[rank].pid  # for measuring (usage.py); no signal is sent to it
            except OSError as error:
                self.message = f"{wanted['argv'][0]}: {error.strerror}"
                output.write(f"{self.message}\n".encode())
                self.note_end(rank, 127 if isinstance(error, FileNotFoundError) else 126)
                self.end("StartError", time.time() + self.spec["grace"])
                return False
        return True

    def note_end(self, rank: int, code: int) -> None:
        self.codes[rank] = code
        was_stopped = self.kill_at is not None
        self.state["ranks"][rank] |= {"finished_at": time.time(), "code": code, "stop_requested": was_stopped}

    def patience(self) -> float:
        moments = [moment for moment in (self.kill_at, self.limit(), *self.again_at.values()) if moment]
        tick = (
            FAREWELL if any(not self.farewells[rank].done for rank in self.farewells.keys() & self.processes) else TICK
        )
        return max(0.01, min([tick, *(moment - time.time() for moment in moments if moment > time.time())]))

    def limit(self) -> float | None:
        seconds = self.spec["max_runtime"]
        with contextlib.suppress(FileNotFoundError, ValueError):
            seconds = int((self.directory / "max_runtime").read_text())
        return self.state["started_at"] + seconds if seconds and self.state["started_at"] else None

    def tick(self) -> None:
        self.reap()
        self.read_stop()
        now, limit = time.time(), self.limit()
        if self.kill_at is None and limit is not None and now >= limit:
            self.message = f"ran longer than {int(limit - self.state['started_at'])} s"
            self.end("DeadlineExceeded", now + self.spec["grace"])
        led = self.spec["leader_decides"] and 0 in self.codes
        if self.kill_at is None and (led or any(self.codes.values())):  # no rank continues without the others
            self.end("", now + self.spec["grace"])
        if self.kill_at is not None and now >= self.kill_at:
            for process in self.processes.values():
                send(os.killpg, process.pid, signal.SIGKILL)
        for rank in self.farewells.keys() & self.processes:
            self.farewells[rank].go_on()
        self.begin_again(now)
        self.look_whether_listening()

    def begin_again(self, now: float) -> None:
        """Restart a service's process after its pause."""
        for rank in [rank for rank, at in self.again_at.items() if now >= at or self.kill_at is not None]:
            del self.again_at[rank]
            if self.kill_at is None and self.start_rank(rank):
                self.save()

    def reap(self) -> None:
        for rank, process in list(self.processes.items()):
            if not has_ended(process):
                continue
            send(os.killpg, process.pid, signal.SIGKILL)
            code = process.wait()
            del self.processes[rank]
            if self.spec["restarts"] and self.kill_at is None:
                self.pause(rank, code)
            else:
                self.note_end(rank, code if code >= 0 else 128 - code)
            self.save()
        self.reap_orphans()

    def pause(self, rank: int, code: int) -> None:
        """Set the pause before a service is restarted; it doubles while the service keeps ending early."""
        life, now = self.state["ranks"][rank], time.time()
        stayed = now - life["started_at"] > 10 * LONGEST_PAUSE
        life["restarts"] += 1
        self.pauses = 1 if stayed else self.pauses + 1
        wait = min(LONGEST_PAUSE, 0.5 * 2**self.pauses)
        with (self.directory / "log").open("ab") as output:
            output.write(f"exited with {code}; it begins again in {wait:.0f} s\n".encode())
        self.again_at[rank] = now + wait

    def reap_orphans(self) -> None:
        """Reap orphaned processes of the command, which become children of this process where it is the sub-reaper."""
        ranks = {process.pid for process in self.processes.values()}
        with contextlib.suppress(ChildProcessError):
            while LINUX and (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid in ranks:  # ended just now: the next round reaps it
                    break
                os.waitpid(ended.si_pid, 0)

    def read_stop(self) -> None:
        stop = read_json(self.directory / "stop.json")
        if stop is None:
            return
        if self.kill_at is None:
            self.lost = stop["cluster_stops"]
            self.end("ClusterStopped" if self.lost else "Stopped", stop["kill_at"])
        self.kill_at = min(self.kill_at or stop["kill_at"], stop["kill_at"])  # a later order never extends the grace

    def end(self, reason: str, kill_at: float) -> None:
        if self.kill_at is None:
            self.reason, self.kill_at = reason, kill_at
            for rank, process in self.processes.items():
                self.farewells[rank] = Farewell(
                    process.pid, [each.pid for each in self.processes.values() if each is not process]
                )
                self.farewells[rank].go_on()

    def look_whether_listening(self) -> None:
        """Check whether the port answers: for a notebook until the first answer, for a service in every round."""
        port, asked_again = self.spec["port"], self.spec["restarts"]
        if port and (asked_again or not self.state["listening"]) and self.answers(port) != self.state["listening"]:
            self.state["listening"] = not self.state["listening"]
            self.save()

    def answers(self, port: int) -> bool:
        connection = HTTPConnection("127.0.0.1", port, timeout=1)
        with contextlib.suppress(OSError, HTTPException), contextlib.closing(connection):
            if not (path := self.spec["ready_path"]):
                connection.connect()
                return True
            connection.request("GET", path)
            answer = connection.getresponse()
            with contextlib.suppress(OSError, HTTPException):
                answer.read1(10_000)  # closing before reading it might cause an error in the service's log
            return 200 <= answer.status < 400
        return False

    def sweep(self) -> None:
        """Kill processes that left their process group; as sub-reaper this process is their parent."""
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        while children.exists() and (pids := children.read_text().split()):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(int(pid), 0)

    def save(self) -> None:
        write_atomically(self.directory / "state.json", json.dumps(self.state))

    def finish(self) -> None:
        lives = [self.state["ranks"][rank] for rank in sorted(self.codes)]
        bad = [life for life in lives if life["code"]]
        # Ranks that were stopped because another one failed, or because the leader is done, must not hide its exit code.
        own = sorted((life for life in bad if not life["stop_requested"]), key=lambda life: float(life["finished_at"]))
        led = self.spec["leader_decides"] and lives and lives[0]["code"] == 0 and not self.reason
        first = next(iter(own or bad), None)
        code = 0 if first is None or (led and not own) else first["code"]
        if not self.codes:
            code = 143  # stopped before it started
        ending = {
            "exit_code": code,
            "reason": self.reason or ("Completed" if code == 0 else "Error"),
            "message": self.message,
            "lost": self.lost,
            "finished_at": time.time(),
        }
        write_atomically(self.directory / "exit.json", json.dumps(ending))


def main() -> None:
    directory = Path(sys.argv[1])
    if os.fork():  # the portal waits for this first process only, so it keeps no zombie
        os._exit(0)
    os.setsid()
    os.umask(0o077)
    default_signals()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    Supervisor(directory).run()


if __name__ == "__main__":
    main()

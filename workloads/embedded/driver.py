"""The embedded cluster: declared nodes and this machine's own NVIDIA cards, commands as real processes of this machine.
For demo and tests.

There is no isolation: everybody who may submit runs commands as the portal's own user. So it works only in a debug
portal on a loopback address. Each run is a directory and a detached supervisor (supervisor.py), so the portal may
be killed and restarted at any moment: the runs go on, and the next portal continues with the same files.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import ipaddress
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any

from workloads.embedded import nvml, usage
from workloads.embedded.command import plan
from workloads.embedded.files import LocalFiles
from workloads.embedded.run_directory import Record
from workloads.embedded.supervisor import write_atomically
from workloads.runtime.base import (
    Home,
    KeptVolume,
    LogChunk,
    NodeInfo,
    NoSuchRun,
    Observed,
    Phase,
    Refused,
    RunRef,
    RunSpec,
    Unreachable,
    VolumeRef,
)

WORKDIRS = "w-"  # prefix of their names; the names of shared volumes begin with a namespace
SAFE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


@contextlib.contextmanager
def unreachable() -> Iterator[None]:
    """Turn a full disk or a supervisor that does not start into Unreachable, because the fault may pass."""
    try:
        yield
    except (OSError, subprocess.SubprocessError) as error:
        raise Unreachable(f"the embedded cluster's directory or processes failed: {error}") from error


def is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


@dataclass
class EmbeddedCluster:
    """`root` belongs to this cluster alone; `images` maps an image to an interpreter: a path, or a name in the directory of the
    portal's own interpreter."""

    name: str
    root: Path
    declared: Sequence[NodeInfo]
    images: Mapping[str, str]
    debug: bool
    bind_host: str
    is_down: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if not self.debug:
            raise Refused(
                "The embedded cluster runs commands as processes of this machine, without isolation: "
                "it starts only where DEBUG=true. Add a Kubernetes cluster instead.",
                "embedded_needs_debug",
            )
        if not is_loopback(self.bind_host):
            raise Refused(
                "The embedded cluster runs on this machine whatever is submitted, so nobody else may reach the portal: "
                f"BIND_HOST is {self.bind_host!r} and has to be 127.0.0.1, ::1 or localhost.",
                "embedded_needs_loopback",
            )
        with unreachable():
            for directory in (self.root, self.root / "runs", self.root / "volumes"):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Left by a process that was killed while it claimed or removed a run.
            for draft in (self.root / "runs").glob(".*"):
                with contextlib.suppress(FileNotFoundError):
                    if draft.stat().st_mtime < time.time() - 60:
                        shutil.rmtree(draft)

    def ensure(self, spec: RunSpec) -> None:
        """Claim the name by one rename, then start the supervisor; a changed `max_runtime` replaces the first one."""
        record = self.record(spec.ref)
        with unreachable():
            claimed = record.read("spec")
            if claimed is None:
                planned = plan(spec, record.directory, self.directory, self.nodes(), self.images).as_json()
                claimed = planned if self.claim(record, planned) else record.read("spec") or {}
            if claimed.get("submission_id") != spec.ref.submission_id:
                raise Refused(f"{spec.ref.name} belongs to another submission", "name_taken")
            if spec.max_runtime != claimed["max_runtime"]:
                write_atomically(record.directory / "max_runtime", str(spec.max_runtime or 0))
            if record.read("state") is None:
                record.start()

    def claim(self, record: Record, planned: dict[str, Any]) -> bool:
        """Claim the run and its whole cards; False if the run was claimed already. Raises Unreachable while another run has one
        of the cards."""
        with self.locked():
            if self.is_down:
                raise Unreachable(f"{self.name} was shut down")
            wanted = {tuple(card) for card in planned["alone_on"]}
            for other in self.records() if wanted else ():
                other_spec = other.read("spec") or {}
                taken = sorted(wanted & {tuple(card) for card in other_spec.get("alone_on", ())})
                if taken and other.directory != record.directory and other.read("exit") is None:
                    node, card = taken[0]
                    raise Unreachable(f"card {card} of {node} still belongs to {other_spec['name']}")
            return record.claim(planned)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        with (self.root / "cards.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def announce(self, ref: RunRef, reclaim_at: dt.datetime | None) -> None:
        with unreachable():
            file = self.own(ref).directory / "reclaim-at"
            if reclaim_at is None or not file.parent.exists():
                for each in (file, file.with_name("ready")):  # or it would count as ready for the next notice
                    each.unlink(missing_ok=True)
            else:
                text = reclaim_at.astimezone(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
                write_atomically(file, text)

    def stop(self, ref: RunRef, grace: int) -> None:
        with unreachable():
            self.own(ref).order_stop(grace)

    def remove(self, ref: RunRef) -> None:
        with unreachable():
            record = self.own(ref)
            seen = record.look()
            if seen is None or seen.phase in {Phase.PENDING, Phase.RUNNING}:
                return
            trash = record.directory.with_name(f".{ref.name}.{token_hex(4)}")
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                record.directory.rename(trash)
                shutil.rmtree(trash)

    def observe(self) -> tuple[Observed, ...]:
        with unreachable():
            return tuple(seen for record in self.records() if (seen := record.look()) is not None)

    def logs(
        self, ref: RunRef, *, offset: int = 0, tail: int | None = None, rank: int = 0, limit: int = 1 << 20,
        previous: bool = False,
    ) -> LogChunk:  # fmt: skip
        with unreachable():
            record = self.own(ref)
            if record.read("spec") is None:
                raise NoSuchRun(f"{ref.name} has left no log here")
            if previous:  # one log goes on through all starts
                return LogChunk(b"", offset, end=True)
            return record.log(rank, offset, tail, limit)

    def nodes(self) -> tuple[NodeInfo, ...]:
        return (*self.declared, *self.machine)

    @cached_property
    def machine(self) -> tuple[NodeInfo, ...]:
        """This machine's cards, detected once: the driver is created again when the portal starts."""
        return nvml.machine()

    def take_readings(self, now: dt.datetime) -> None:
        """Store a reading of every run: what its processes have used until now, and the use of its cards."""
        with unreachable():
            usage.take(self.records(), now.timestamp(), machine={node.name for node in self.machine})

    def usage(self, begin: dt.datetime, end: dt.datetime) -> dict[tuple[str, int], dict[str, Any]]:
        """(name of the run, rank) → fields of measurement.series.Use for that time, from the stored readings."""
        with unreachable():
            return usage.between(self.records(), begin.timestamp(), end.timestamp())

    def endpoint(self, ref: RunRef) -> tuple[str, int] | None:
        with unreachable():
            return self.own(ref).endpoint()

    def files(self, volume: VolumeRef) -> LocalFiles:
        return LocalFiles(self.directory(volume.name))

    def directory(self, volume: str) -> Path:
        directory = self.root / "volumes" / safe(volume)
        with unreachable():
            directory.mkdir(mode=0o700, exist_ok=True)
        return directory

    def keep_home(self, home: Home, *, fresh: bool = False) -> None:
        """Does nothing: the embedded cluster has no namespaces."""

    def volumes(self) -> tuple[KeptVolume, ...]:
        """All working directories. Their departments and authors are unknown here: a directory only has a name."""
        volumes = []
        with unreachable():
            for folder in (self.root / "volumes").glob(f"{WORKDIRS}*"):
                made = dt.datetime.fromtimestamp(folder.stat().st_mtime, dt.UTC)
                volumes.append(KeptVolume(VolumeRef(folder.name, "", folder.name.removeprefix(WORKDIRS), "", ""), made))
        return tuple(volumes)

    def discard(self, volume: VolumeRef) -> None:
        with unreachable(), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.root / "volumes" / safe(volume.name))

    def shutdown(self, grace: float = 5.0) -> int:
        """Stop every run so that it is observed as lost and queued again; returns how many.

        Runs that ignore SIGTERM are killed after `grace` seconds. The driver starts no further runs.
        """
        with self.locked():
            self.is_down = True
        live = [record for record in self.records() if record.read("exit") is None]
        for record in live:
            record.order_stop(grace, cluster_stops=True)
        patience = time.monotonic() + grace + 2
        while any(record.read("exit") is None for record in live) and time.monotonic() < patience:
            time.sleep(0.05)
        return len(live)

    def record(self, ref: RunRef) -> Record:
        return Record(self.root / "runs" / safe(ref.name))

    def own(self, ref: RunRef) -> Record:
        """The record of this submission; one that does not exist on disk if the name belongs to another submission."""
        record = self.record(ref)
        claimed = record.read("spec")
        is_others = claimed is not None and claimed.get("submission_id") != ref.submission_id
        return Record(self.root / "runs" / ".none") if is_others else record

    def records(self) -> list[Record]:
        return [Record(path) for path in sorted((self.root / "runs").iterdir()) if not path.name.startswith(".")]


def safe(name: str) -> str:
    """The name, checked not to lead out of its directory. Raises Refused."""
    if not SAFE_NAME.fullmatch(name):
        raise Refused(f"{name!r} is not a name for a run or volume", "bad_name")
    return name

"""What the processes of embedded runs use: readings from /proc and NVML, kept in each run's directory.

CPU time only grows, so the use in a period is the difference of two readings. They are kept as long as a bucket may
be requested again (`usage.json`: a list of {"at", "ranks"}); a restarted portal continues with them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.embedded import nvml
from workloads.embedded.run_directory import Record
from workloads.embedded.supervisor import write_atomically

KEPT = 20 * 60.0  # seconds of readings
BEFORE = 90.0  # a reading at most this long before a period counts as its start: there is one a minute
MIB = 2**20
Reading = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    session: int
    cpu: float  # s, its own and that of children it has waited for
    memory: int  # bytes, resident


def processes(proc: Path = Path("/proc")) -> list[Process]:
    """All processes of this machine; [] without /proc. Fields as in proc(5)."""
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    living = []
    for path in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (path / "stat").read_text().rpartition(") ")[2].split()
            if fields[0] in "ZX":
                continue
            cpu = sum(map(int, fields[11:15])) / tick
            living.append(Process(int(path.name), int(fields[1]), int(fields[3]), cpu, int(fields[21]) * page))
    return living


def by_leader(living: Sequence[Process], leaders: Iterable[int]) -> dict[int, tuple[float, int]]:
    """Leader → (CPU seconds, bytes) of its session and all its descendants, in whatever session."""
    children = defaultdict(list)
    of_session = defaultdict(list)
    by_pid = {process.pid: process for process in living}
    for process in living:
        children[process.parent].append(process.pid)
        of_session[process.session].append(process.pid)
    sums = {}
    for leader in leaders:
        members, left = set(), [leader, *of_session[leader]]
        while left:
            pid = left.pop()
            if pid in by_pid and pid not in members:
                members.add(pid)
                left += children[pid]
        if members:
            own = [by_pid[pid] for pid in members]
            sums[leader] = sum(process.cpu for process in own), sum(process.memory for process in own)
    return sums


def take(records: Iterable[Record], now: float, *, machine: set[str]) -> None:
    """Add a reading to every live run. `machine`: names of the nodes whose cards are real."""
    live = []
    for record in records:
        spec, state = record.read("spec"), record.read("state")
        if spec and state and record.read("exit") is None:
            live.append((record, spec, state))
    living = processes() if live else []
    parents = {process.pid: process.parent for process in living}
    leaders = {record.directory: _leaders(state, parents) for record, _spec, state in live}
    sums = by_leader(living, [pid for of_run in leaders.values() for pid in of_run.values()])
    real = any(rank["node"] in machine for _r, spec, _s in live for rank in spec["ranks"])
    cards = nvml.usage() if real else {}
    for record, spec, state in live:
        ranks: dict[str, Any] = {}
        for rank, leader in leaders[record.directory].items():
            if leader in sums:
                cpu, memory = sums[leader]
                life = state["ranks"][rank]
                ranks[str(rank)] = {"since": life["started_at"], "cpu": cpu, "memory_mib": memory / MIB}
                ranks[str(rank)] |= _cards(spec, rank, machine, cards)
        if ranks:
            recent = [reading for reading in _readings(record) if now - KEPT <= reading["at"] < now]
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                write_atomically(record.directory / "usage.json", json.dumps([*recent, {"at": now, "ranks": ranks}]))


def _leaders(state: Mapping[str, Any], parents: Mapping[int, int]) -> dict[int, int]:
    """Rank → pid of its first process, which is a child of the run's supervisor: any other process has that pid by chance."""
    pids = {rank: life["pid"] for rank, life in enumerate(state["ranks"]) if life.get("pid") and life["code"] is None}
    return {rank: pid for rank, pid in pids.items() if parents.get(pid) == state["supervisor"]}


def _cards(
    spec: Mapping[str, Any], rank: int, machine: set[str], cards: Mapping[int, nvml.CardUse]
) -> dict[str, float | int]:
    """The use of a rank's whole cards. That of a shared card cannot be attributed to one of its users."""
    wanted = spec["ranks"][rank]
    if wanted["node"] not in machine or not spec["alone_on"]:
        return {}
    own = [cards[int(card)] for card in wanted["cards"] if str(card).isdigit() and int(card) in cards]
    values: dict[str, float | int] = {"cards": len(own)}
    busy = [use.gpu for use in own if use.gpu is not None]
    used = [use.used_mib for use in own if use.used_mib is not None]
    power = [use.watts for use in own if use.watts is not None]
    values |= {"gpu": sum(busy) / len(busy)} if busy else {}
    values |= {"gpu_mib": sum(used)} if used else {}
    return values | ({"watts": sum(power)} if power else {})


def _readings(record: Record) -> list[Reading]:
    try:
        stored = json.loads((record.directory / "usage.json").read_bytes())
    except (OSError, ValueError):
        return []
    return stored if isinstance(stored, list) else []


def between(records: Iterable[Record], begin: float, end: float) -> dict[tuple[str, int], dict[str, Any]]:
    """(name of the run, rank) → fields of measurement.series.Use, from the readings in that time."""
    uses: dict[tuple[str, int], dict[str, Any]] = {}
    for record in records:
        readings = [reading for reading in _readings(record) if begin - BEFORE <= reading["at"] <= end]
        for rank in {rank for reading in readings for rank in reading["ranks"]}:
            own = [(reading["at"], reading["ranks"][rank]) for reading in readings if rank in reading["ranks"]]
            use = _use(own, begin)
            if use:
                uses[record.directory.name, int(rank)] = use
    return uses


def _use(own: Sequence[tuple[float, Mapping[str, Any]]], begin: float) -> dict[str, Any]:
    inside = [values for at, values in own if at >= begin]
    if not inside:
        return {}
    use: dict[str, Any] = {"cards": max(values.get("cards", 0) for values in inside)}
    for name in ("gpu", "gpu_mib", "watts", "memory_mib"):
        series = [values[name] for values in inside if name in values]
        if series:
            use[name] = sum(series) / len(series)
    last_at, last = own[-1]
    life = [(at, values["cpu"]) for at, values in own if values["since"] == last["since"]]  # of this process
    if last["since"] > begin - BEFORE:
        life.insert(0, (last["since"], 0.0))  # it had used nothing when it started
    first_at, first_cpu = life[0]
    if last_at > first_at and last["cpu"] >= first_cpu:
        use["cpu_milli"] = (last["cpu"] - first_cpu) / (last_at - first_at) * 1000
    return use

"""Traces: demand as a CSV file, and pools and guaranteed quotas for it."""

import datetime as dt
from collections.abc import Iterable, Mapping
from csv import DictReader
from dataclasses import dataclass
from math import gcd

from quotas.engine.types import (
    Card,
    Claim,
    ClaimId,
    ClaimState,
    Department,
    DepartmentId,
    Node,
    Pool,
    PoolId,
    Quota,
    Settings,
    Snapshot,
)
from workloads.replay.demand import Demand, Job

GPU = PoolId("gpu")
"""The pool of a trace: traces have one kind of cards."""
HEADINGS = {
    "submitted_at": ("submitted_at", "submit_time", "timestamp"),
    "runtime": ("runtime", "duration"),
    "units": ("units", "num_gpus", "gpus"),
    "department": ("department", "tenant", "cluster"),
    "priority": ("priority",),
    "max_runtime": ("max_runtime",),
    "checkpoint_every": ("checkpoint_every",),
}
"""Field of a job → the names that its column may have."""
REQUIRED = ("submitted_at", "runtime", "units", "department")


class TraceError(ValueError):
    """A trace that cannot be read; names the line and the column."""

    def __init__(self, line: int, column: str, problem: str) -> None:
        super().__init__(f"line {line}, {column}: {problem}")


@dataclass(frozen=True, slots=True)
class Row:
    """One job of a trace. Times are in seconds since 1970, durations in seconds."""

    submitted_at: int
    runtime: int
    units: int
    department: str
    priority: int = 0
    max_runtime: int | None = None
    checkpoint_every: int | None = None


def read_trace(lines: Iterable[str]) -> list[Row]:
    """The jobs of a CSV file with a line of headings (HEADINGS), in order of submission. Raises TraceError."""
    reader = DictReader(lines)
    headings = [heading.strip() for heading in reader.fieldnames or ()]
    columns = {field: next((n for n in names if n in headings), "") for field, names in HEADINGS.items()}
    for field in REQUIRED:
        if not columns[field]:
            raise TraceError(1, field, f"no such column; expected {' or '.join(HEADINGS[field])}")
    rows = [_row(columns, cells, reader.line_num) for cells in reader]
    return sorted(rows, key=lambda row: row.submitted_at)


def _row(columns: Mapping[str, str], cells: Mapping[str, str | None], line: int) -> Row:
    def cell(field: str) -> str:
        return (cells.get(columns[field]) or "").strip() if columns[field] else ""

    def number(field: str, least: int) -> int:
        try:
            value = round(float(cell(field)))
        except (ValueError, OverflowError):
            raise TraceError(line, columns[field], f"expected a number, not {cell(field)!r}") from None
        if value < least:
            raise TraceError(line, columns[field], f"expected at least {least}, not {cell(field)}")
        return value

    def optional(field: str) -> int | None:
        return number(field, 0) if cell(field) else None

    if not cell("department"):
        raise TraceError(line, columns["department"], "is empty")
    return Row(
        submitted_at=_moment(cell("submitted_at"), line, columns["submitted_at"]),
        runtime=max(1, number("runtime", 0)),
        units=number("units", 1),
        department=cell("department"),
        priority=number("priority", -(10**6)) if cell("priority") else 0,
        max_runtime=optional("max_runtime"),
        checkpoint_every=optional("checkpoint_every"),
    )


def _moment(text: str, line: int, column: str) -> int:
    """Seconds since 1970 from a text that has these, or a time in ISO 8601 (UTC if it has no offset)."""
    if text.isdecimal():
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise TraceError(line, column, f"expected a time such as 2017-10-02 13:05:00, not {text!r}") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp())


def demand_of(rows: Iterable[Row], begin: int, end: int, on_a_node: int = 0) -> Demand:
    """The jobs that would run between `begin` and `end` if each started at once. A job that needs more than the cards `on_a_node`
    (0: there are no nodes) is split into equal pods."""
    jobs = [_job(number, row, begin, on_a_node) for number, row in enumerate(rows)
            if row.submitted_at < end and row.submitted_at + row.runtime > begin]  # fmt: skip
    return Demand(begin, end, tuple(sorted(jobs, key=lambda job: (job.request.submitted_at, job.request.id))))


def _job(number: int, row: Row, begin: int, on_a_node: int) -> Job:
    a_pod = gcd(row.units, on_a_node) if on_a_node and row.units > on_a_node else row.units
    at = max(begin, row.submitted_at)
    claim = Claim(
        ClaimId(f"j{number:07}"), DepartmentId(row.department), GPU, a_pod, ClaimState.PENDING, at, pods=row.units // a_pod,
        priority=row.priority, max_runtime=row.max_runtime,
    )  # fmt: skip
    return Job(claim, row.submitted_at + row.runtime - at, row.checkpoint_every)


# Pools and guarantees -------------------------------------------------------------------------------------------------------


def pool_of(cards: int, on_a_node: int) -> Pool:
    """A pool of `cards` cards on nodes with `on_a_node` cards each; 0: without nodes."""
    if not on_a_node:
        return Pool(GPU, capacity=cards)
    sizes = [min(on_a_node, cards - first) for first in range(0, cards, on_a_node)]
    return Pool(GPU, nodes=tuple(Node(f"n{n}", (Card(),) * size) for n, size in enumerate(sizes, start=1)))


def departments_of(guaranteed: Mapping[DepartmentId, int]) -> tuple[Department, ...]:
    return tuple(Department(id, quotas={GPU: Quota(units)}) for id, units in sorted(guaranteed.items()))


def read_guarantees(lines: Iterable[str]) -> dict[DepartmentId, int]:
    """Guaranteed cards by department from a CSV file with these two columns. Raises TraceError."""
    reader = DictReader(lines)
    for column in ("department", "guaranteed"):
        if column not in (reader.fieldnames or ()):
            raise TraceError(1, column, "no such column")
    guaranteed: dict[DepartmentId, int] = {}
    for cells in reader:
        id, units = DepartmentId((cells["department"] or "").strip()), (cells["guaranteed"] or "").strip()
        if not id or id in guaranteed:
            raise TraceError(reader.line_num, "department", f"{id} stands here twice" if id else "is empty")
        if not units.isdecimal():
            raise TraceError(reader.line_num, "guaranteed", f"expected a number of cards, not {units!r}")
        guaranteed[id] = int(units)
    return guaranteed


def in_proportion(weights: Mapping[DepartmentId, float], cards: int) -> dict[DepartmentId, int]:
    """Distributes all cards in proportion to the weights, in whole cards, by the largest remainders."""
    total = sum(weights.values())
    exact = {id: cards * weight / total for id, weight in weights.items()}
    shares = {id: int(share) for id, share in exact.items()}
    by_remainder = sorted(exact, key=lambda id: (shares[id] - exact[id], id))
    for id in by_remainder[: cards - sum(shares.values())]:
        shares[id] += 1
    return shares


def rules_of(guaranteed: Mapping[DepartmentId, int], on_a_node: int, settings: Settings) -> Snapshot:
    """A snapshot without claims: the departments, and a pool with as many cards as are guaranteed to them."""
    pool = pool_of(sum(guaranteed.values()), on_a_node)
    return Snapshot("replay", 0, (pool,), departments_of(guaranteed), (), settings)

"""The logs of attempts: from the cluster while it knows the run, from the kept end of the log afterwards."""

from __future__ import annotations

import zlib

from workloads.clusters.base import ClusterDriver, LogChunk, NoSuchRun, RunRef, last_lines
from workloads.drivers import driver_for
from workloads.models import Attempt, AttemptLog, Kind
from workloads.specs import ref_of

KEPT = 4 * 2**20  # bytes of each rank's log that outlive the run


def keep_logs(attempt: Attempt, driver: ClusterDriver, ref: RunRef) -> None:
    """Copies the end of each rank's log into the database. Raises Unreachable; a second call changes nothing.

    A service is copied before it is stopped, because its pod goes with its log, and again afterwards where more is there.
    """
    service = attempt.workload.kind == Kind.SERVICE
    have = set() if service else set(attempt.kept_logs.values_list("rank", flat=True))
    for rank in set(range(attempt.workload.pods)) - have:
        try:
            end = driver.logs(ref, tail=KEPT, rank=rank, limit=KEPT)  # no line is shorter than a byte
        except NoSuchRun:
            end = LogChunk(b"", 0, end=True)
        kept = {"start": end.offset, "data": zlib.compress(end.data)}
        keep = AttemptLog.objects.update_or_create if service and end.data else AttemptLog.objects.get_or_create
        keep(attempt=attempt, rank=rank, defaults=kept)


def read_log(
    attempt: Attempt, *, offset: int = 0, tail: int | None = None, rank: int = 0, limit: int = 1 << 20,
    previous: bool = False,
) -> LogChunk:  # fmt: skip
    """From `offset`, or the last `tail` lines; `previous`: of a service before its last start, while the cluster has it.
    A chunk that starts later than asked says that the start is lost.

    Raises Unreachable, NoSuchRun (nothing was ever written, or the rank does not exist).
    """
    kept = AttemptLog.objects.filter(attempt=attempt, rank=rank).first()
    if kept is None:
        if attempt.created_at is None:
            return LogChunk(b"", 0, end=attempt.finished_at is not None)
        driver = driver_for(attempt.cluster)
        return driver.logs(ref_of(attempt), offset=offset, tail=tail, rank=rank, limit=limit, previous=previous)
    if previous:
        return LogChunk(b"", offset, end=True)
    data = zlib.decompress(kept.data)
    if tail is not None:
        start = len(data) - len(last_lines(data, tail))
    else:
        start = max(0, offset - kept.start)
    piece = data[start : start + limit]
    return LogChunk(piece, kept.start + start, end=start + len(piece) >= len(data))

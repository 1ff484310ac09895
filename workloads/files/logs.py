"""Logs of attempts: from the cluster while it has the run, afterwards from the stored end of the log."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from django.conf import settings

from portal.infra.locks import durable, lend_connection
from workloads.clusters.drivers import driver_for
from workloads.clusters.run_spec import ref_of
from workloads.models import Attempt, AttemptLog, Kind, LogPart
from workloads.runtime.base import ClusterDriver, LogChunk, NoSuchRun, RunRef, last_lines

PART = 1 << 20  # bytes
LEAST = 1 << 20  # bytes of each rank, however many there are


def bytes_kept(pods: int) -> int:
    """How many bytes of each rank's log are stored, for a workload with so many pods."""
    return max(LEAST, settings.LOG_KEPT // pods)


def keep_logs(attempt: Attempt, driver: ClusterDriver, ref: RunRef) -> None:
    """Store the end of each rank's log. Raises Unreachable; a second call changes nothing.

    A service's log is stored before it is stopped, because it is deleted with the pod, and again afterwards if there
    is more.
    """
    service = attempt.workload.kind == Kind.SERVICE
    have = set() if service else set(attempt.kept_logs.values_list("rank", flat=True))
    most = bytes_kept(attempt.workload.pods)
    for rank in set(range(attempt.workload.pods)) - have:
        lend_connection()
        try:
            end = driver.logs(ref, tail=most, rank=rank, limit=most)  # no line is shorter than a byte
        except NoSuchRun:
            end = LogChunk(b"", 0, end=True)
        packed = [(at, zlib.compress(end.data[at : at + PART])) for at in range(0, len(end.data), PART)]
        with durable():
            log, made = AttemptLog.objects.select_for_update(no_key=True).get_or_create(
                attempt=attempt, rank=rank, defaults={"start": end.offset}
            )
            if not made:
                if not service or not end.data:
                    continue
                log.parts.all().delete()
                AttemptLog.objects.filter(pk=log.pk).update(start=end.offset, data=b"")
            LogPart.objects.bulk_create(
                LogPart(log=log, start=end.offset + at, end=end.offset + min(at + PART, len(end.data)), data=data)
                for at, data in packed
            )


def read_log(
    attempt: Attempt, *, offset: int = 0, tail: int | None = None, rank: int = 0, limit: int = 1 << 20,
    previous: bool = False,
) -> LogChunk:  # fmt: skip
    """The log from `offset`, or its last `tail` lines, at most `limit` bytes. `previous`: the log of a service before its last
    start, while the cluster has it. If a chunk starts later than requested, the bytes before it are lost.

    Raises Unreachable, NoSuchRun (nothing was ever written, or the rank does not exist).
    """
    stored = AttemptLog.objects.filter(attempt=attempt, rank=rank).first()
    if stored is None:
        if attempt.created_at is None:
            return LogChunk(b"", 0, end=attempt.finished_at is not None)
        try:
            driver = driver_for(attempt.cluster)
            return driver.logs(ref_of(attempt), offset=offset, tail=tail, rank=rank, limit=limit, previous=previous)
        except NoSuchRun:  # removed from the cluster since the query above: it is stored now
            stored = AttemptLog.objects.filter(attempt=attempt, rank=rank).first()
            if stored is None:
                raise
    if previous:
        return LogChunk(b"", offset, end=True)
    return last_of(stored, tail, limit) if tail is not None else piece_of(stored, offset, limit)


def piece_of(stored: AttemptLog, offset: int, limit: int) -> LogChunk:
    """`limit` bytes from `offset`, or from the first stored one."""
    start, data = max(offset, stored.start), b""
    for begin, part in parts_from(stored, start):
        data += part[max(0, start - begin) :]
        if len(data) > limit:
            break
    return LogChunk(data[:limit], start, end=len(data) <= limit, first=stored.start)


def last_of(stored: AttemptLog, lines: int, limit: int) -> LogChunk:
    end, data = stored.start, b""
    for begin, part in parts_back(stored):
        end = end if data else begin + len(part)
        data = part + data
        if len(data) >= limit or data.count(b"\n") > lines:
            break
    data = last_lines(data[-limit:] if limit else b"", lines)
    return LogChunk(data, end - len(data), end=True, first=stored.start)


def parts_from(stored: AttemptLog, offset: int) -> Iterator[tuple[int, bytes]]:
    """(start, bytes) of each part that ends after `offset`."""
    if stored.data:
        yield stored.start, zlib.decompress(stored.data)
    for part in stored.parts.filter(end__gt=offset).order_by("start").iterator(chunk_size=2):
        yield part.start, zlib.decompress(part.data)


def parts_back(stored: AttemptLog) -> Iterator[tuple[int, bytes]]:
    if stored.data:
        yield stored.start, zlib.decompress(stored.data)
    for part in stored.parts.order_by("-start").iterator(chunk_size=2):
        yield part.start, zlib.decompress(part.data)

"""The log of one attempt: a piece from an offset, its last lines, or the whole as a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.access import actor_of
from portal.text.numbers import LARGEST, natural
from workloads.files.logs import read_log
from workloads.models import Attempt, Workload
from workloads.pages.rows import workload_for
from workloads.runtime.base import LogChunk, NoSuchRun, Unreachable

TEXT = "text/plain; charset=utf-8"
TAIL = 2_000  # lines shown first, as far as they fit into a piece
PIECE = 256 * 1024


@login_required
@require_safe
def log(request: HttpRequest, department: str, workload: str) -> HttpResponseBase:
    """A piece of the log as text/plain. `X-Log-Start` is the offset of its first byte in the whole log, `X-Log-Offset` the
    offset of the next piece, `X-Log-End` 1 when nothing will be added, `X-Log-Lost` how many of the first bytes are not kept.

    `?attempt=` (default the newest), `?rank=` (default 0); `?offset=` (the piece from there), `?before=` (the piece that ends
    there) or neither (the last lines); `?download=1` the whole log, `?previous=1` a service's log before its last restart.
    """
    _department, row = workload_for(actor_of(request), department, workload)
    attempt = attempt_of(row, request.GET.get("attempt", ""))
    if attempt is None:
        return HttpResponse(b"", content_type=TEXT, headers={"X-Log-End": "1"})
    rank = min(natural(request.GET.get("rank", ""), 10_000) or 0, row.pods - 1)
    if request.GET.get("download"):
        return download(row, attempt, rank)
    previous = bool(request.GET.get("previous"))
    offset, before = (natural(request.GET.get(name, ""), LARGEST) for name in ("offset", "before"))
    try:
        if before is not None:
            chunk = piece_before(attempt, before, rank, previous)
        else:
            tail = None if offset is not None else TAIL
            chunk = read_log(attempt, offset=offset or 0, tail=tail, rank=rank, limit=PIECE, previous=previous)
            chunk = chunk if offset is not None else from_a_line(chunk)
    except NoSuchRun:
        end = "1" if attempt.finished_at else "0"
        return HttpResponse(b"", content_type=TEXT, headers={"X-Log-Offset": str(offset or 0), "X-Log-End": end})
    except Unreachable as error:
        return HttpResponse(error.detail, status=503, content_type=TEXT)
    headers = {
        "X-Log-Start": str(chunk.offset),
        "X-Log-Offset": str(chunk.offset + len(chunk.data)),
        "X-Log-End": "1" if chunk.end and (previous or attempt.finished_at) else "0",
    }
    if chunk.first:
        headers["X-Log-Lost"] = str(chunk.first)
    return HttpResponse(chunk.data, content_type=TEXT, headers=headers)


def piece_before(attempt: Attempt, end: int, rank: int, previous: bool) -> LogChunk:
    """The piece that ends at offset `end` and begins with a whole line."""
    start = max(0, end - PIECE)
    chunk = read_log(attempt, offset=start, rank=rank, limit=end - start, previous=previous)
    chunk = replace(chunk, data=chunk.data[: max(0, end - chunk.offset)])
    return from_a_line(chunk)


def from_a_line(chunk: LogChunk) -> LogChunk:
    """The piece without its incomplete first line; where that line fills the piece, without its incomplete first character."""
    data = chunk.data
    if chunk.offset == chunk.first or len(data) < PIECE:
        return chunk
    cut = data.find(b"\n", 0, len(data) - 1) + 1
    if not cut:
        cut = next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
    return replace(chunk, data=data[cut:], offset=chunk.offset + cut)


def download(workload: Workload, attempt: Attempt, rank: int) -> StreamingHttpResponse:
    of_rank = f"-rank-{rank}" if workload.pods > 1 else ""
    name = re.sub(r'[/"]', "_", f"{workload.name}-{attempt.number}{of_rank}.log")
    response = StreamingHttpResponse(whole(attempt, rank), content_type=TEXT)
    response["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name)}"
    return response


def attempt_of(workload: Workload, number: str) -> Attempt | None:
    attempts = workload.attempts.select_related("cluster", "claim").order_by("-number")
    chosen = natural(number, 10**8)
    return attempts.first() if chosen is None else attempts.filter(number=chosen).first()


def whole(attempt: Attempt, rank: int) -> Iterator[bytes]:
    """The whole log. Raises Unreachable if the cluster stops responding: an incomplete log must not look complete."""
    offset = 0
    while True:
        try:
            chunk = read_log(attempt, offset=offset, rank=rank)
        except NoSuchRun:
            return
        if chunk.offset > offset:
            yield _("[The first %(n)s bytes of this log are not kept.]\n").replace("%(n)s", str(chunk.offset)).encode()
        if not chunk.data:
            return
        yield chunk.data
        offset = chunk.offset + len(chunk.data)

"""The log of one attempt: a piece from an offset, its last lines, or the whole as a file."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.http import require_safe

from portal.access import actor_of
from portal.numbers import natural
from workloads.archive import read_log
from workloads.clusters.base import NoSuchRun, Unreachable
from workloads.models import Attempt, Workload
from workloads.views.rows import workload_for

TAIL = 500  # lines shown first
PIECE = 256 * 1024


@login_required
@require_safe
def log(request: HttpRequest, department: str, workload: str) -> HttpResponseBase:
    """text/plain; `X-Log-Offset` is where to go on, `X-Log-End` 1 when nothing will be added.

    `?attempt=` (default the newest), `?rank=` (default 0), `?offset=` or the last lines, `?download=1` the whole,
    `?previous=1` of a service before its last start.
    """
    _department, row = workload_for(actor_of(request), department, workload)
    attempt = attempt_of(row, request.GET.get("attempt", ""))
    if attempt is None:
        return HttpResponse(b"", content_type="text/plain; charset=utf-8", headers={"X-Log-End": "1"})
    rank = min(natural(request.GET.get("rank", "")) or 0, row.pods - 1)
    if request.GET.get("download"):
        name = f"{row.name}-{attempt.number}{f'-rank-{rank}' if row.pods > 1 else ''}.log".replace("/", "_").replace(
            '"', "_"
        )
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{_quoted(name)}"}
        return StreamingHttpResponse(whole(attempt, rank), content_type="text/plain; charset=utf-8", headers=headers)
    offset, previous = request.GET.get("offset", ""), bool(request.GET.get("previous"))
    try:
        chunk = read_log(
            attempt,
            offset=natural(offset) or 0,
            tail=None if offset else TAIL,
            rank=rank,
            limit=PIECE,
            previous=previous,
        )
    except NoSuchRun:
        end = "1" if attempt.finished_at else "0"
        return HttpResponse(b"", content_type="text/plain", headers={"X-Log-Offset": "0", "X-Log-End": end})
    except Unreachable as error:
        return HttpResponse(error.detail, status=503, content_type="text/plain; charset=utf-8")
    data = chunk.data
    if len(data) == PIECE and b"\n" in data:
        data = data[: data.rindex(b"\n") + 1]  # never split a letter of several bytes
    response = HttpResponse(data, content_type="text/plain; charset=utf-8")
    response["X-Log-Offset"] = str(chunk.offset + len(data))
    response["X-Log-End"] = "1" if chunk.end and (previous or attempt.finished_at) else "0"
    return response


def attempt_of(workload: Workload, number: str) -> Attempt | None:
    attempts = workload.attempts.select_related("cluster", "claim").order_by("-number")
    chosen = natural(number, 10**8)
    return attempts.first() if chosen is None else attempts.filter(number=chosen).first()


def whole(attempt: Attempt, rank: int) -> Iterator[bytes]:
    offset = 0
    while True:
        try:
            chunk = read_log(attempt, offset=offset, rank=rank)
        except (NoSuchRun, Unreachable):
            return
        if not chunk.data:
            return
        yield chunk.data
        offset = chunk.offset + len(chunk.data)


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name)

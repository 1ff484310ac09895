"""`workloads/{id}/logs/`, `…/files/…` and `…/events/`: output and history of a workload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import Right
from portal.api.base import ApiView
from portal.api.events import EVENT_ANSWERS, EVENT_PARAMETERS, Events
from portal.errors import N_, Problem, TooLarge
from portal.notify import event_bell
from portal.server import streams
from portal.text.numbers import natural
from portal.text.plain_errors import plain_error
from workloads.actions import request_of
from workloads.api.resources import workload_for
from workloads.clusters.drivers import ClusterAway
from workloads.files import downloads, volumes
from workloads.files.logs import read_log
from workloads.models import Attempt, Workload
from workloads.requests import previews
from workloads.requests.exports import EXPORTS
from workloads.runtime.base import LogChunk, NoSuchRun, Unreachable
from workloads.runtime.files import Listing

TEXT = "text/plain; charset=utf-8"
PIECE = 1 << 20  # most bytes in a response with `offset`
TAIL = 1 << 24  # most bytes in a response with `tail`
SOON, LATER = 0.3, 2.0  # least and most seconds between two reads of a log that is followed


class NoSuchAttempt(Problem):
    status = 404
    code = "no_such_attempt"
    message = N_("There is no attempt %(attempt)s.")


class NoSuchRank(Problem):
    status = 404
    code = "no_such_rank"
    message = N_("It has %(pods)s pods, numbered from 0.")


def piece(
    attempt: Attempt, *, offset: int = 0, tail: int | None = None, rank: int = 0, previous: bool = False
) -> LogChunk:
    """A piece of the log; empty while nothing is written. Raises ClusterAway."""
    limit = PIECE if tail is None else TAIL
    try:
        return read_log(attempt, offset=offset, tail=tail, rank=rank, limit=limit, previous=previous)
    except NoSuchRun:
        return LogChunk(b"", offset, end=attempt.finished_at is not None)
    except Unreachable as error:
        raise ClusterAway(why=plain_error(str(error))[:200]) from error


def rest(attempt: Attempt, chunk: LogChunk, rank: int, previous: bool) -> Iterator[bytes]:
    """The log from `chunk` to its present end. Raises ClusterAway if a piece is missing: an incomplete log must not look
    complete."""
    while chunk.data:
        yield chunk.data
        there = chunk.offset + len(chunk.data)
        chunk = piece(attempt, offset=there, rank=rank, previous=previous)
        if chunk.data and chunk.offset != there:  # the bytes between are not kept any more
            raise ClusterAway(why=f"bytes {there} to {chunk.offset} of the log are not kept")


class Logs(ApiView):
    """stdout and stderr as text: the whole log, or at most 1 MiB from `offset`, or the last lines, at most 16 MiB.

    `X-Log-Start` is the offset of the first byte sent, `X-Log-Offset` that of the next one (not sent with a long whole log).
    `X-Log-End: 1` means that nothing will follow, `X-Log-Lost: n` that the first n bytes are not kept.
    """

    @extend_schema(
        operation_id="workloads_logs",
        parameters=[
            OpenApiParameter(
                "tail", int, description="Only this number of last lines, at most 1000000 lines and 16 MiB."
            ),
            OpenApiParameter("offset", int, description="Only from this byte on, at most 1 MiB; the first byte is 0."),
            OpenApiParameter(
                "follow", bool, description="Keep the connection, and send what is added until the attempt ends."
            ),
            OpenApiParameter("attempt", int, description="Number of the attempt, from 1; by default the newest."),
            OpenApiParameter("rank", int, description="Number of the pod, from 0; by default 0."),
            OpenApiParameter(
                "previous",
                bool,
                description="Of a service, the log before its last start, if its cluster still has it.",
            ),
        ],
        responses={(200, "text/plain"): OpenApiResponse(OpenApiTypes.STR, "The log.")},
    )
    def get(self, request: Request, workload: str) -> HttpResponseBase:
        row = workload_for(self.actor, workload)
        attempt, rank = self.attempt(row), self.number("rank", 0) or 0
        if rank >= row.pods:
            raise NoSuchRank(field="rank", pods=row.pods)
        offset, tail = self.number("offset"), self.number("tail", maximum=1_000_000)
        previous = self.flag("previous")
        chunk = piece(attempt, offset=offset or 0, tail=tail, rank=rank, previous=previous)
        there = chunk.offset + len(chunk.data)
        headers = {"X-Log-Attempt": str(attempt.number), "X-Log-Start": str(chunk.offset)}
        if chunk.first:
            headers["X-Log-Lost"] = str(chunk.first)
        if self.flag("follow") and not previous and streams.can_hold(request):
            return streams.streaming(follow(attempt, chunk, rank, streams.Standing(self.actor)), TEXT, **headers)
        if offset is None and tail is None and len(chunk.data) >= PIECE:
            return StreamingHttpResponse(rest(attempt, chunk, rank, previous), content_type=TEXT, headers=headers)
        headers |= {
            "X-Log-Offset": str(there),
            "X-Log-End": "1" if chunk.end and (previous or attempt.finished_at) else "0",
        }
        return HttpResponse(chunk.data, content_type=TEXT, headers=headers)

    def attempt(self, row: Workload) -> Attempt:
        number = self.number("attempt", maximum=2**31 - 1)
        attempts = row.attempts.select_related("cluster", "workload").order_by("-number")
        attempt = attempts.first() if number is None else attempts.filter(number=number).first()
        if attempt is None:
            raise NoSuchAttempt(field="attempt", attempt=number)
        return attempt


class Export(ApiView):
    """A distributed job as the manifest of another Kubernetes operator; the values of secrets are hidden."""

    @extend_schema(
        operation_id="workloads_export",
        parameters=[
            OpenApiParameter(
                "kind",
                str,
                "path",
                enum=[name.lower() for name in EXPORTS],
                description="The Kubernetes resource of the manifest, in lower case.",
            )
        ],
        responses={(200, "application/yaml"): OpenApiTypes.STR},
    )
    def get(self, request: Request, workload: str, kind: str) -> HttpResponseBase:
        text = previews.export_of(request_of(workload_for(self.actor, workload)), kind)
        return HttpResponse(text, content_type="application/yaml")


async def follow(attempt: Attempt, chunk: LogChunk, rank: int, reader: streams.Standing) -> AsyncIterator[bytes]:
    """Streams the log as it grows. Ends when the attempt ends, the server stops, the reader disconnects or loses the right, or
    the next bytes are not kept any more: a new request then gets the next offset in X-Log-Start."""
    offset, pause = chunk.offset, SOON
    while True:
        if chunk.data and chunk.offset != offset:
            return
        if chunk.data:
            yield chunk.data
            offset, pause = chunk.offset + len(chunk.data), SOON
        if (not chunk.data and chunk.end and attempt.finished_at) or event_bell.closing.is_set():
            return
        if not chunk.data:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LATER)
        update = await streams.look(lambda: again(attempt.pk, offset, rank, reader), cluster=True)  # noqa: B023
        if update is None:
            return
        attempt, chunk = update


def again(pk: int, offset: int, rank: int, reader: streams.Standing) -> tuple[Attempt, LogChunk] | None:
    """(attempt, next chunk); None if the reader lost the right to see it.

    The attempt is read before its log: if it has ended by then, the log is complete.
    """
    attempt = Attempt.objects.select_related("cluster", "workload").get(pk=pk)
    actor = reader.actor()
    if actor is None or not actor.may(Right.SEE, attempt.workload.department_id):
        return None
    try:
        return attempt, piece(attempt, offset=offset, rank=rank)
    except ClusterAway:
        return attempt, LogChunk(b"", offset, end=False)


class EntryOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    path = serializers.CharField()
    kind = serializers.ChoiceField(choices=["directory", "file", "link", "pipe", "socket", "device"])
    size = serializers.IntegerField(allow_null=True, help_text="Bytes; null: a directory.")
    changed = serializers.DateTimeField()


class EntriesOut(serializers.Serializer[Any]):
    results = EntryOut(many=True)
    next = serializers.CharField(allow_null=True)
    total = serializers.IntegerField(help_text="Entries of the whole directory.")
    free = serializers.IntegerField(help_text="Bytes left on its disk.")


FILE_PARAMETERS = [
    OpenApiParameter("cursor", str, description="Of a directory: the cursor in `next` of the page before."),
    OpenApiParameter("archive", bool, description="Send the directory as one tar archive, instead of a list."),
]


class Files(ApiView):
    """The working directory: upload before the start; browse and download during the run and for 14 days after it."""

    def writable(self, workload: str) -> Workload:
        row = workload_for(self.actor, workload)
        self.actor.require_own_or_steer(row.department, row.author)
        return row

    @extend_schema(
        operation_id="workloads_files",
        parameters=FILE_PARAMETERS,
        responses={(200, "application/json"): EntriesOut, (200, "application/x-tar"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, workload: str) -> HttpResponseBase:
        row = workload_for(self.actor, workload)
        if self.flag("archive"):
            return downloads.answer(row, "")
        return listing(request, volumes.listing(row, "", request.GET.get("cursor", "")))


class FileView(Files):
    @extend_schema(
        operation_id="workloads_file_read",
        parameters=FILE_PARAMETERS,
        responses={
            (200, "application/x-tar"): OpenApiTypes.BINARY,
            (200, "application/octet-stream"): OpenApiTypes.BINARY,
            (200, "application/json"): EntriesOut,
        },
    )
    def get(self, request: Request, workload: str, path: str) -> HttpResponseBase:  # type: ignore[override]
        """A file's bytes, or the list of a directory."""
        row = workload_for(self.actor, workload)
        if self.flag("archive"):
            return downloads.answer(row, path)
        content = volumes.get(row, path, request.GET.get("cursor", ""))
        return listing(request, content) if isinstance(content, Listing) else downloads.sent(content)

    @extend_schema(
        operation_id="workloads_file_write",
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses={204: None},
    )
    def put(self, request: Request, workload: str, path: str) -> Response:
        """Writes the body to this file, completely or not at all."""
        row = self.writable(workload)
        size = natural(request.META.get("CONTENT_LENGTH") or "0")
        if size is None or size > settings.FILE_UPLOAD_LIMIT:
            raise TooLarge(settings.FILE_UPLOAD_LIMIT)
        volumes.store(row, path, received(request))
        return Response(status=204)

    @extend_schema(operation_id="workloads_file_remove", responses={204: None})
    def delete(self, request: Request, workload: str, path: str) -> Response:
        """Deletes a file, or a directory with its content."""
        volumes.remove(self.writable(workload), path)
        return Response(status=204)


def listing(request: Request, folder: Listing) -> Response:
    query = urlencode({"cursor": folder.next})
    following = request.build_absolute_uri(f"{quote(request.path)}?{query}") if folder.next else None
    entries = EntryOut(folder.entries, many=True).data
    return Response({"results": entries, "next": following, "total": folder.total, "free": folder.free})


def received(request: Request) -> Iterator[bytes]:
    """The raw request body in pieces. Raises TooLarge."""
    size = 0
    while data := request._request.read(1 << 16):
        size += len(data)
        if size > settings.FILE_UPLOAD_LIMIT:
            raise TooLarge(settings.FILE_UPLOAD_LIMIT)
        yield data


class WorkloadEvents(Events):
    @extend_schema(operation_id="workload_events_list", parameters=EVENT_PARAMETERS, responses=EVENT_ANSWERS)
    def get(self, request: Request, workload: str) -> HttpResponseBase:  # type: ignore[override]
        return self.events(workload_for(self.actor, workload).public_id)

"""Logs and files of real runs, through the API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from rest_framework.test import APIClient, force_authenticate

from portal.access import Actor
from portal.models import Role
from portal.server.streams import Standing
from tests import builders as make
from tests.clients import person
from tests.workloads.conftest import Bed
from workloads.api.outputs import Logs, again
from workloads.models import Workload


def url(workload: Workload, path: str = "") -> str:
    return f"/api/v1/workloads/{workload.public_id}/{path}"


def test_log_can_be_read_whole_by_its_tail_and_from_an_offset(bed: Bed) -> None:
    job = bed.submit(bed.alice, bed.vision, "for n in range(5): print('line', n)")
    client = person(bed.alice)
    early = client.get(url(job, "logs/"))
    assert (early.content, early["X-Log-End"]) == (b"", "0")
    bed.until(lambda: bed.state(job) == "succeeded")
    whole = client.get(url(job, "logs/"))
    assert whole.content == b"line 0\nline 1\nline 2\nline 3\nline 4\n"
    assert whole["Content-Type"] == "text/plain; charset=utf-8"
    assert (whole["X-Log-Offset"], whole["X-Log-End"], whole["X-Log-Attempt"]) == ("35", "1", "1")
    assert client.get(url(job, "logs/?tail=2")).content == b"line 3\nline 4\n"
    assert client.get(url(job, "logs/?offset=28")).content == b"line 4\n"
    assert client.get(url(job, "logs/?offset=35")).content == b""
    bed.until(lambda: job.attempts.get().removed_at is not None)
    assert client.get(url(job, "logs/")).content == whole.content, "also after the cluster has removed the run"
    assert client.get(url(job, "logs/?attempt=2")).json()["code"] == "no_such_attempt"
    assert client.get(url(job, "logs/?rank=1")).json()["code"] == "no_such_rank"
    assert client.get(url(job, "logs/?tail=x")).status_code == 422


WAITS_FOR_GO = """
import pathlib, time
print("first", flush=True)
while not pathlib.Path("go").exists(): time.sleep(0.05)
print("second", flush=True)
"""


def test_followed_log_streams_new_lines_and_ends_with_the_attempt(bed: Bed) -> None:
    job = bed.submit(bed.alice, bed.vision, WAITS_FOR_GO)
    bed.until(lambda: bed.state(job) == "running")
    scope = {
        "type": "http", "method": "GET", "path": url(job, "logs/"), "query_string": b"follow=1", "headers": [],
        "server": ("localhost", 80),
    }  # fmt: skip
    request = ASGIRequest(scope, None)  # type: ignore[arg-type]
    request.user = bed.alice
    force_authenticate(request, bed.alice)
    response = Logs.as_view()(request, workload=job.public_id)
    assert response.is_async
    assert response["X-Accel-Buffering"] == "no"

    async def read() -> list[bytes]:
        async with asyncio.timeout(60):
            beat = asyncio.create_task(beating())
            parts = []
            async for part in response.streaming_content:
                parts.append(part)
                (root / "go").touch()  # so the second line is written after the first has been read
            beat.cancel()
            return parts

    async def beating() -> None:
        while True:
            await asyncio.to_thread(turn)
            await asyncio.sleep(0.1)

    def turn() -> None:
        from django.db import connections

        try:
            bed.turn()
        finally:
            connections.close_all()

    root = bed.folder(job)
    assert asyncio.run(read()) == [b"first\n", b"second\n"]


def test_followed_log_ends_when_its_reader_loses_access(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portal.server.streams.CHECK_EVERY", 0.0)
    job = bed.submit(bed.alice, bed.vision, WAITS_FOR_GO)
    reader = Standing(Actor(bed.alice))
    attempt = job.attempts.get()
    assert again(attempt.pk, 0, 0, reader) is not None
    bed.alice.memberships.all().delete()
    assert again(attempt.pk, 0, 0, reader) is None


@pytest.fixture
def job(bed: Bed) -> Workload:
    return bed.submit(bed.alice, bed.vision, "print(open('in/data.txt').read()); open('out.bin','wb').write(b'\\0\\1')")


def put(client: APIClient, job: Workload, path: str, data: bytes) -> Any:
    return client.put(url(job, f"files/{path}"), data, content_type="application/octet-stream")


def test_files_can_be_uploaded_before_and_downloaded_after_the_run(bed: Bed, job: Workload) -> None:
    client = person(bed.alice)
    assert put(client, job, "in/data.txt", "Grüße".encode()).status_code == 204
    bed.until(lambda: bed.state(job) == "succeeded")
    assert client.get(url(job, "logs/")).content == "Grüße\n".encode()
    names = [(each["name"], each["size"]) for each in client.get(url(job, "files/")).json()["results"]]
    assert names == [("in", None), ("out.bin", 2)]
    assert [each["path"] for each in client.get(url(job, "files/in")).json()["results"]] == ["in/data.txt"]
    answer = client.get(url(job, "files/out.bin"))
    assert b"".join(answer.streaming_content) == b"\0\1"
    assert answer["Content-Disposition"].startswith("attachment")
    assert answer["Content-Type"] == "application/octet-stream"
    assert "sandbox" in answer["Content-Security-Policy"]
    assert client.delete(url(job, "files/in")).status_code == 204
    assert client.get(url(job, "files/in/data.txt")).status_code == 404


OUTSIDE = [
    "../secret",
    "in/../../secret",
    "..%2Fsecret",
    "%2e%2e/secret",
    "/etc/passwd",
    "link/secret",
    "linked.txt",
    "a%00b",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_paths_and_links_cannot_leave_the_working_directory(bed: Bed, job: Workload, path: str, tmp_path: Path) -> None:
    root = bed.folder(job)
    outside = root.parent / "secret"
    outside.write_text("not yours")
    (root / "link").symlink_to(root.parent)
    (root / "linked.txt").symlink_to(outside)
    client = person(bed.alice)
    for answer in (
        client.get(url(job, f"files/{path}")),
        put(client, job, path, b"overwritten"),
        client.delete(url(job, f"files/{path}")) if "link" not in path else client.get(url(job, "files/")),
    ):
        body = answer.content if not getattr(answer, "streaming", False) else b"".join(answer.streaming_content)
        assert b"not yours" not in body
        assert answer.status_code in {200, 204, 400, 404, 422}, answer.content
    assert outside.read_text() == "not yours"
    assert sorted(each.name for each in root.parent.iterdir()) == sorted([root.name, "secret"])


def test_upload_above_the_limit_is_rejected_and_leaves_no_file(bed: Bed, job: Workload, settings: Any) -> None:
    settings.FILE_UPLOAD_LIMIT = 10
    answer = put(person(bed.alice), job, "big.bin", b"x" * 11)
    assert (answer.status_code, answer.json()["limit"]) == (413, 10)
    assert person(bed.alice).get(url(job, "files/")).json()["results"] == []


def test_viewers_can_only_read_files_and_other_departments_get_404(bed: Bed, job: Workload) -> None:
    put(person(bed.alice), job, "a.txt", b"a")
    viewer, stranger = person(make.member(bed.vision, Role.VIEWER)), person(bed.bob)
    assert b"".join(viewer.get(url(job, "files/a.txt")).streaming_content) == b"a"
    assert put(viewer, job, "a.txt", b"b").status_code == 403
    assert viewer.delete(url(job, "files/a.txt")).status_code == 403
    assert stranger.get(url(job, "files/a.txt")).status_code == 404
    assert put(stranger, job, "a.txt", b"b").status_code == 404
    assert stranger.get(url(job, "logs/")).status_code == 404


def test_events_of_a_workload_cover_its_whole_life(bed: Bed) -> None:
    job = bed.submit(bed.alice, bed.vision, "pass")
    other = bed.submit(bed.alice, bed.vision, "pass")
    bed.until(lambda: bed.state(job) == "succeeded")
    rows = person(bed.alice).get(url(job, "events/")).json()["results"]
    kinds = [row["kind"] for row in reversed(rows)]
    assert kinds[0] == "workload.queued"
    assert kinds[-1] == "workload.succeeded"
    assert {row["workload"] for row in rows} == {job.public_id} != {other.public_id}

"""The web server on the real application: streams of the API, the demo's single process, and how they end."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import select
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone
from websockets.sync.client import connect

from portal.access import Actor
from portal.accounts import bearer_tokens
from portal.models import ApiToken, Department
from portal.server import serve
from tests import builders as make
from tests.portal.server.web_server import free_port, web_server
from tests.servers import listening
from workloads import actions
from workloads.models import Image, Workload
from workloads.requests.request import WorkloadRequest

STREAM = "text/event-stream"


def eventually(condition: Callable[[], Any], within: float = 90) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_database() -> str:
    """The address of this test's database, for another process."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    return parts._replace(path=f"/{settings.DATABASES['default']['NAME']}").geturl()


test_database.__test__ = False  # type: ignore[attr-defined]


def bearer(department: Department) -> str:
    prefix, token, digest = bearer_tokens.new_secret()
    ApiToken.objects.create(
        holder=make.member(department), department=department, name="ci", prefix=prefix, digest=digest,
        scopes=["read"], expires_at=timezone.now() + dt.timedelta(days=1),
    )  # fmt: skip
    return token


def waiting_workload(department: Department) -> Workload:
    pool = make.pool("a100", cards=1)
    make.quota(department, pool, 1)
    image = Image.objects.create(name="python", title="Python", interpreter="python")
    request = WorkloadRequest(kind="job", name="waits", pool=pool, image=image, command=("true",))
    return actions.submit(actor=Actor(make.member(department)), department=department, request=request)


def read_until(stream: socket.socket, mark: bytes) -> bytes:
    received = b""
    while mark not in received:
        part = stream.recv(1 << 16)
        assert part, received
        received += part
    return received


@pytest.mark.timeout(240)
@pytest.mark.skipif(not os.environ["DATABASE_URL"].startswith("postgres"), reason="needs PostgreSQL")
def test_200_held_requests_all_receive_an_event_while_pages_respond(transactional_db: None) -> None:
    department = make.department("vision")
    token, workload = bearer(department), waiting_workload(department)
    environment = {"DATABASE_URL": test_database(), "REDIS_URL": os.environ["TEST_REDIS_URL"], "LOG_LEVEL": "ERROR"}
    with web_server(**environment) as server, contextlib.ExitStack() as opened:

        def ask(path: str, accept: str) -> socket.socket:
            request = (
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nAccept: {accept}\r\n\r\n"
            )
            stream = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=50))
            stream.sendall(request.encode())
            if accept == STREAM:
                read_until(stream, b"event: open")
            return stream

        with ThreadPoolExecutor(8) as openers:
            streams = list(openers.map(lambda _: ask("/api/v1/events/", STREAM), range(150)))
            wait = f"/api/v1/workloads/{workload.public_id}/?wait=55&until=finished"  # a stop is two changes
            waits = list(openers.map(lambda _: ask(wait, "application/json"), range(50)))
        headers = {"Authorization": f"Bearer {token}"}
        for _ in range(10):
            assert httpx.get(f"{server.url}/login/", timeout=10).status_code == 200
            assert "vision" in httpx.get(f"{server.url}/api/v1/departments/", headers=headers, timeout=10).text
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
            assert cursor.fetchone()[0] < 25  # not one connection for each request
        assert select.select(waits, [], [], 0)[0] == []  # all are still held
        actions.cancel(actor=Actor(workload.author), workload=workload)
        with ThreadPoolExecutor(200) as readers:
            events = readers.map(lambda stream: read_until(stream, b"event: workload.cancelled"), streams)
            answers = readers.map(lambda stream: read_until(stream, b"\r\n0\r\n\r\n"), waits)
            assert (len(list(events)), sum(b'"state":"cancelled"' in answer for answer in answers)) == (150, 50)
        assert server.terminate() < 5
        for stream in streams:
            assert stream.recv(1 << 16).endswith(b"0\r\n\r\n")  # ended properly, not aborted


DEMO = """
import django; django.setup()
from portal.server import serve
try:
    serve.one_process(lambda: print("listening", flush=True), lambda: print("stopped", flush=True))
except serve.PortTaken as error:
    raise SystemExit(str(error))
"""

LATE_CLOSE = """
import asyncio, portal.asgi
async def application(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        await send({"type": "websocket.close"})
portal.server.application.application = application
"""


def demo_environment(folder: Path, port: int) -> dict[str, str]:
    return {
        "EMBEDDED": "true", "DEBUG": "true", "DATA_DIR": str(folder), "DATABASE_URL": f"sqlite:///{folder}/portal.sqlite3",
        "REDIS_URL": "", "PORT": str(port), "NOTEBOOK_PORT": str(free_port()), "NOTEBOOK_URL": "", "LOG_LEVEL": "ERROR",
    }  # fmt: skip


def test_only_one_of_two_servers_gets_the_port() -> None:
    port, other = free_port(), free_port()
    with serve.claimed(port):
        with pytest.raises(serve.PortTaken, match=f":{port} "), serve.claimed(other, port):
            pass
        with serve.claimed(other):  # a refused attempt keeps no port
            pass
    with serve.claimed(port):
        pass


@pytest.mark.timeout(240)
def test_demo_is_one_process_with_worker_and_beat_that_ends_quickly(tmp_path: Path, migrated: Path) -> None:
    shutil.copy(migrated, tmp_path)
    port = free_port()
    environment = {**os.environ, **demo_environment(tmp_path, port)}
    environment.pop("NOTEBOOK_URL")
    with subprocess.Popen([sys.executable, "-c", DEMO], env=environment, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        try:
            assert demo.stdout.readline() == "listening\n"
            assert httpx.get(f"http://127.0.0.1:{port}/login/").status_code == 200
            notebook = httpx.get(f"http://127.0.0.1:{environment['NOTEBOOK_PORT']}/",
                                 headers={"Host": f"x.localhost:{environment['NOTEBOOK_PORT']}"})  # fmt: skip
            assert notebook.status_code == 403
            with sqlite3.connect(tmp_path / "portal.sqlite3") as database:
                jobs = "SELECT count(DISTINCT job) FROM portal_jobrun WHERE finished_at IS NOT NULL AND error = ''"
                eventually(lambda: database.execute(jobs).fetchone()[0] >= 4)
            second = subprocess.run([sys.executable, "-c", DEMO], env=environment, stderr=subprocess.PIPE, text=True)
            assert f"127.0.0.1:{port} cannot be listened on" in second.stderr
            children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text()
            assert children == ""
            demo.terminate()
            assert demo.stdout.readline() == "stopped\n"
            assert demo.wait(30) == 0
        finally:
            demo.kill()


@pytest.mark.timeout(120)
def test_demo_ends_although_a_websocket_still_sends_after_the_server_stopped(tmp_path: Path, migrated: Path) -> None:
    shutil.copy(migrated, tmp_path)
    port = free_port()
    environment = {**os.environ, **demo_environment(tmp_path, port)}
    environment.pop("NOTEBOOK_URL")
    begin, rest = DEMO.split("from portal.server", 1)
    program = f"{begin}{LATE_CLOSE}from portal.server{rest}"
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        try:
            assert demo.stdout.readline() == "listening\n"
            eventually(lambda: listening(port))
            with connect(f"ws://127.0.0.1:{port}/", proxy=None):
                pass
            demo.terminate()
            assert demo.wait(20) == 0
        finally:
            demo.kill()


def test_no_process_of_a_killed_server_keeps_responding(tmp_path: Path) -> None:
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path}/portal.sqlite3", "REDIS_URL": "", "WEB_WORKERS": "2"}
    with web_server(**environment) as server:
        assert httpx.get(f"{server.url}/livez").status_code == 200
        server.process.kill()
        server.process.wait(10)
        eventually(lambda: not listening(server.port), within=20)

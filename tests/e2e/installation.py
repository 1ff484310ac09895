"""A whole installation as `make serve` runs it: web, worker, beat and watcher on a real PostgreSQL and Redis."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
from psycopg import sql

from tests.architecture.sources import ROOT
from tests.servers import free_port

T = TypeVar("T")


def eventually(fact: Callable[[], T], seconds: float = 60, why: Callable[[], object] = str) -> T:
    """The first true value of `fact`."""
    end = time.monotonic() + seconds
    while not (found := fact()):
        assert time.monotonic() < end, f"still {found!r} after {seconds} s; {why()}"
        time.sleep(0.1)
    return found


@dataclass
class Installation:
    environment: dict[str, str]
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return self.environment["BASE_URL"]

    def manage(self, *arguments: str, given: str = "") -> str:
        ran = subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=self.environment, input=given, capture_output=True,
            text=True,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-3000:]
        return ran.stdout

    def python(self, code: str) -> Any:
        """Runs code as `manage.py shell` would; its last printed line is JSON."""
        return json.loads(self.manage("shell", "--no-imports", "-c", code).strip().splitlines()[-1])

    def client(self, token: str) -> httpx.Client:
        return httpx.Client(
            base_url=f"{self.url}/api/v1/", headers={"Authorization": f"Bearer {token}"}, timeout=70, trust_env=False
        )

    def children(self) -> dict[int, str]:
        """The processes that `make serve` manages: pid → command."""
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return {int(pid): Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip() for pid in pids}

    def said(self) -> str:
        return self.log.read_text()[-5000:]


@contextlib.contextmanager
def installed(folder: Path, **more: str) -> Iterator[Installation]:
    """An installation with its own database on the tests' PostgreSQL; its processes are killed and the database is dropped at
    the end. `more`: environment variables."""
    server, _slash, _name = os.environ["DATABASE_URL"].rpartition("/")
    name, port = f"installation_{secrets.token_hex(4)}", free_port()
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "VENV": str(Path(sys.executable).parent.parent),
        "SECRET_KEY": secrets.token_urlsafe(48),
        "ENCRYPTION_KEYS": base64.urlsafe_b64encode(os.urandom(32)).decode(),
        "DATABASE_URL": f"{server}/{name}",
        "REDIS_URL": os.environ["TEST_REDIS_URL"].rpartition("/")[0] + "/7",
        "BASE_URL": f"http://127.0.0.1:{port}",
        "NOTEBOOK_URL": f"http://*.localhost:{port}",
        "PORT": str(port),
        "DATA_DIR": str(folder / "data"),
        "WORKER_PROCESSES": "2",
        "WEB_WORKERS": "1",
        **more,
    }
    log = folder / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [ROOT / "deploy" / "serve"], cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    made = Installation(environment, process, log)
    try:
        eventually(lambda: ready(made), 120, made.said)
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def ready(made: Installation) -> bool:
    assert made.process.poll() is None, made.said()
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{made.url}/readyz", trust_env=False).status_code == 200
    return False

"""A small server for GPUQ_URL with configurable responses, and gpuq as a process that calls it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOME = Path(__file__).resolve().parents[2] / "gpuq"
TOKEN = "gqp_0123456789ab_a-Secret-that-Nobody-may-read-0123456789abc"


@dataclass
class Front:
    url: str = ""
    status: int = 200
    body: bytes = b""
    next_bodies: list[bytes] = field(default_factory=list)  # bodies of the next responses; then always `body`
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)


@contextlib.contextmanager
def front() -> Iterator[Front]:
    """A server that answers with the values of its fields, and records its requests."""
    server_state = Front()

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            server_state.requests.append(f"{self.command} {self.path}")
            server_state.tokens.append(self.headers.get("Authorization", ""))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = server_state.next_bodies.pop(0) if server_state.next_bodies else server_state.body
            self.send_response(server_state.status)
            for name, value in ({"Content-Type": "application/json"} | server_state.headers).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = respond

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server_state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server_state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Ran:
    code: int
    out: str
    err: str
    seconds: float


def gpuq(*words: str, **environment: str) -> Ran:
    """Runs the command to its end with a separate environment. Fails after 60 s, so that a test in this package cannot hang."""
    keep = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "VIRTUAL_ENV"}}
    given = keep | {"PYTHONPATH": str(HOME), "GPUQ_TOKEN": TOKEN, "GPUQ_DEPARTMENT": "vision"} | environment
    begun = time.monotonic()
    ran = subprocess.run([sys.executable, "-m", "gpuq", *words], env=given, capture_output=True, timeout=60)
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode(), time.monotonic() - begun)

"""The real web server in a separate process, for tests."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx

PROCESSES = "import django; django.setup(); from portal.server import serve; serve.processes()"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class WebServer:
    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def terminate(self, number: int = signal.SIGTERM) -> float:
        """Sends the signal; returns the seconds until the process has ended."""
        begun = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(30)
        return time.monotonic() - begun


@contextlib.contextmanager
def web_server(code: str = PROCESSES, **environment: str) -> Iterator[WebServer]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "DEBUG": "true",
            "PORT": str(port),
            "WEB_WORKERS": "1",
            "NOTEBOOK_URL": f"http://*.localhost:{port}",
            **environment,
        },
    )
    server = WebServer(process, port)
    try:
        end = time.monotonic() + 100
        while True:
            assert process.poll() is None, f"the server ended with {process.returncode}"
            assert time.monotonic() < end, "the server does not answer"
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{server.url}/", timeout=5)
                break
            time.sleep(0.05)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

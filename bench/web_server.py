"""What a page costs under portal/server/asgi_server.py, compared with plain WSGI and Django's ASGI in the same run.

Each server has one process and serves the login page with all middleware on SQLite, in interleaved rounds. The server's CPU time
is a better measure than requests a second: on a busy machine it hardly changes.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

ROUNDS, REQUESTS, CLIENTS = 3, 400, 8
SERVERS = {
    "WSGI, 4 threads": ["--interface", "wsgi", "--blocking-threads", "4", "portal.wsgi:application"],
    "hybrid": ["--interface", "asginl", "--backpressure", "2048", "portal.asgi:application"],
    "Django's ASGI": ["--interface", "asginl", "--factory", "django.core.asgi:get_asgi_application"],
}


def main() -> None:
    from tests import servers

    folder = tempfile.mkdtemp(prefix="gqp-bench-")
    environment = {
        **os.environ, "DEBUG": "true", "DATA_DIR": folder, "DATABASE_URL": f"sqlite:///{folder}/portal.sqlite3",
        "REDIS_URL": "", "LOG_LEVEL": "ERROR", "DJANGO_SETTINGS_MODULE": "portal.settings",
    }  # fmt: skip
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], env=environment, check=True)
    ports = {name: servers.free_port() for name in SERVERS}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "granian", "--port", str(ports[name]), "--log-level", "error", *arguments],
            env=environment,
        )
        for name, arguments in SERVERS.items()
    ]
    try:
        for port in ports.values():
            servers.wait("web", partial(servers.listening, port))
        measure(dict(zip(SERVERS, running, strict=True)), ports)
    finally:
        for server in running:
            server.terminate()
            server.wait(15)


def measure(running: dict[str, subprocess.Popen[bytes]], ports: dict[str, int]) -> None:
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in SERVERS}
    for number in range(ROUNDS + 1):
        for name, server in running.items():
            cpu, began = cpu_seconds(server.pid), time.perf_counter()
            ask(f"http://127.0.0.1:{ports[name]}/login/")
            took, cpu = time.perf_counter() - began, cpu_seconds(server.pid) - cpu
            if number:  # the first round warms up
                figures[name].append((cpu / REQUESTS * 1e6, REQUESTS / took))
    base = statistics.median(cpu for cpu, _ in figures["WSGI, 4 threads"])
    for name, rounds in figures.items():
        cpu, rate = (statistics.median(each) for each in zip(*rounds, strict=True))
        print(f"{name:16} {cpu:7.0f} µs CPU a page  × {cpu / base:4.2f}  {rate:6.1f} pages/s  ({CLIENTS} clients)")


def ask(url: str) -> None:
    import httpx

    def client() -> None:
        with httpx.Client(timeout=60) as http:
            for _ in range(REQUESTS // CLIENTS):
                if http.get(url).status_code != 200:
                    raise SystemExit(f"{url} failed")

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds(int(child)) for child in children)

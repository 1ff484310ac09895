"""A real Prometheus, a simulated exporter for it, servers that misbehave in every way, and workloads in the database.

There is no GPU: the exporter writes what NVIDIA's DCGM exporter, HAMi's monitor and cAdvisor would report for pods,
in their formats (the samples of their documentation); the pods exist in the database only.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from django.utils import timezone

from portal.models import Department
from quotas.models import Cluster, ClusterKind, Pool
from tests import builders as make
from tests.clusters.realcluster import cannot
from tests.servers import free_port
from workloads.models import Attempt, Image, MetricsSource, Workload

CARD = "GPU-0000000{}-aaaa-bbbb-cccc-dddddddddddd"


def line(metric: str, value: float | str, **labels: str) -> str:
    inner = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return f"{metric}{{{inner}}} {value}"


def dcgm(
    metric: str, value: float | str, pod: str, card: int = 0, *, namespace: str = "gqp-vision", **more: str
) -> str:
    """A line of DCGM exporter with its mapping of pods."""
    labels = {"gpu": str(card), "UUID": CARD.format(card), "device": f"nvidia{card}", "Hostname": "n1",
              "container": "main", "namespace": namespace, "pod": pod}  # fmt: skip
    return line(f"DCGM_FI_{metric}", value, **labels | more)


@contextmanager
def serving(
    answer: Callable[[str, dict[str, str]], tuple[int, dict[str, str], bytes]], *, certificate: Path | None = None
) -> Iterator[str]:
    """An HTTP server; `answer` gets the path with its query and the headers, and returns status, headers and body. With a
    `certificate` (and its key, in the same file) it uses TLS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = answer(self.path, dict(self.headers))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Prometheus:
    """A running Prometheus, and the `lines` that its target returns at the next scrape."""

    url: str
    lines: list[str] = field(default_factory=list)

    def value(self, query: str) -> float | None:
        rows = httpx.get(f"{self.url}/api/v1/query", params={"query": query}, timeout=10).json()["data"]["result"]
        return float(rows[0]["value"][1]) if rows else None

    def until(self, query: str, seconds: float = 40) -> None:
        """Waits until the query gives a series."""
        end = time.monotonic() + seconds
        while self.value(query) is None:
            assert time.monotonic() < end, query
            time.sleep(0.05)


@contextmanager
def prometheus(folder: Path, *scrapes: dict[str, Any]) -> Iterator[Prometheus]:
    """Runs a Prometheus. `scrapes`: further scrape_configs."""
    binary = shutil.which("prometheus")
    if binary is None:
        cannot("Prometheus is not installed")
    lines: list[str] = []

    def metrics(_path: str, _headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        return 200, {"Content-Type": "text/plain; version=0.0.4"}, ("\n".join(lines) + "\n").encode()

    with serving(metrics) as exporter:
        target = exporter.removeprefix("http://")
        config = {
            "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms"},
            "scrape_configs": [
                {"job_name": "gpu", "honor_labels": True, "static_configs": [{"targets": [target]}]},
                *scrapes,
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        port = free_port()
        with (folder / "prometheus.log").open("wb") as log:
            process = subprocess.Popen(
                [str(binary), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address=127.0.0.1:{port}"],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        created = Prometheus(f"http://127.0.0.1:{port}", lines)
        try:
            end = time.monotonic() + 40
            while not _ready(created.url):
                assert time.monotonic() < end, (folder / "prometheus.log").read_text()[-2000:]
                time.sleep(0.05)
            yield created
        finally:
            process.terminate()
            process.wait(20)


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


@dataclass
class World:
    cluster: Cluster
    pool: Pool
    vision: Department
    source: MetricsSource


def world(url: str, **fields: Any) -> World:
    """A Kubernetes cluster with a pool of whole cards and a source at `url`."""
    vision = make.department("vision")
    pool = make.pool("a100", cards=8, **fields)
    cluster = pool.group.cluster
    Cluster.objects.filter(pk=cluster.pk).update(kind=ClusterKind.KUBERNETES)
    cluster.refresh_from_db()
    source = MetricsSource.objects.create(cluster=cluster, url=url, exporters=["dcgm", "hami", "cadvisor"])
    return World(cluster, pool, vision, source)


def attempt(
    here: World, *, pool: Pool | None = None, kind: str = "job", pods: int = 1, units: int = 1, **fields: Any
) -> Attempt:
    """An attempt that has run for an hour; `fields` of the workload."""
    pool = pool or here.pool
    image, _new = Image.objects.get_or_create(name="python:3.11", title="Python")
    workload = Workload.objects.create(
        department=here.vision, kind=kind, name="train", pool=pool, image=image, pods=pods, units_per_pod=units,
        state="running", attempts_made=1, **fields,
    )  # fmt: skip
    claim = make.holding(here.vision, pool, own=units * pods, workload=workload.public_id)
    return Attempt.objects.create(
        workload=workload, number=1, claim=claim, cluster=here.cluster, run_name=f"w-{workload.public_id}-1",
        namespace="gqp-vision", started_at=timezone.now() - dt.timedelta(hours=1),
    )  # fmt: skip


def vector(*rows: tuple[dict[str, str], Any]) -> bytes:
    result = [{"metric": labels, "value": [1, value]} for labels, value in rows]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


class Mood:
    """The behaviour of a server: the test sets its response, and `asked` has the requests it got."""

    def __init__(self) -> None:
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, vector())
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.over = threading.Event()
        self.held = False
        self.answer_at: Callable[[dt.datetime], bytes] | None = None

    def __call__(self, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        self.asked.append((path, headers))
        if self.held:
            self.over.wait(60)
        if self.answer_at is None:
            return self.answer
        moment = float(parse_qs(urlsplit(path).query)["time"][0])
        return 200, {}, self.answer_at(dt.datetime.fromtimestamp(moment, dt.UTC))

"""Traces and error reports of a whole installation, received by a real collector and Sentry endpoint."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.e2e.installation import Installation, eventually, installed
from tests.servers import free_port

pytest.importorskip("opentelemetry.instrumentation.django", reason="the extra tracing is not installed")
pytest.importorskip("sentry_sdk", reason="the extra sentry is not installed")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not os.environ["DATABASE_URL"].startswith("postgres") or not os.environ["TEST_REDIS_URL"],
        reason="needs PostgreSQL and Redis",
    ),
]
TRY = "d/<slug:department>/webhooks/<int:webhook>/try/"
PASSWORD = "correct horse battery staple"
# What users enter or send, and who they are: none of it must arrive.
SECRETS = (
    PASSWORD, "s3cret-hook", "s3cret-query", "s3cret-invite", "s3cret-agent", "s3cret-baggage", "root-s3cret", "203.0.113.77",
    "csrftoken", "sessionid", "Bearer",
)  # fmt: skip


class Listener:
    """An OTLP collector and a Sentry at one port; `bodies` is everything received, as bytes."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.spans: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.headers: list[str] = []
        here = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                here.take(self.path, body, self.headers.get("X-Collector-Key", ""))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"

    def take(self, path: str, body: bytes, key: str) -> None:
        self.bodies.append(body)
        if path == "/v1/traces":
            self.headers.append(key)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                about = {each.key: each.value.string_value for each in resource.resource.attributes}
                self.spans += [as_dict(span, about) for scope in resource.scope_spans for span in scope.spans]
        elif path == "/api/7/envelope/":
            parts = [json.loads(line) for line in body.splitlines() if line.strip()]
            self.events += [part for part in parts if "event_id" in part and "exception" in part]

    def of_trace(self, trace: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["trace"] == trace]


def as_dict(span: Any, about: dict[str, str]) -> dict[str, Any]:
    return {
        "name": span.name, "trace": span.trace_id.hex(), "id": span.span_id.hex(), "parent": span.parent_span_id.hex(),
        "links": [link.trace_id.hex() for link in span.links], "service": about["service.name"],
        **{each.key: each.value.string_value or each.value.int_value for each in span.attributes},
    }  # fmt: skip


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(scope="module")
def here(listener: Listener, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    more = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{listener.address}",
        "OTEL_EXPORTER_OTLP_HEADERS": "X-Collector-Key=a%20key",
        "SENTRY_DSN": f"http://key@{listener.address}/7",
        "BEHIND_PROXY": "true",
    }
    with installed(tmp_path_factory.mktemp("installation"), **more) as made:
        made.manage("bootstrap", "root-s3cret", "--password-file", "-", given=f"{PASSWORD}\n")
        made.python(
            "from portal.models import Department; Department.objects.create(slug='vision', name='V'); print(1)"
        )
        yield made


@pytest.fixture(scope="module")
def browser(here: Installation) -> Iterator[httpx.Client]:
    """Signed in; everything that it sends contains something that must not be exported."""
    headers = {
        "User-Agent": "s3cret-agent", "X-Forwarded-For": "203.0.113.77", "baggage": "who=s3cret-baggage",
        "Accept": "text/html",
    }  # fmt: skip
    with httpx.Client(base_url=here.url, headers=headers, trust_env=False, timeout=30) as client:
        client.get("/login/")
        answer = post(client, "/login/", username="root-s3cret", password=PASSWORD)
        assert answer.status_code == 302, answer.text[-3000:]
        yield client


def post(client: httpx.Client, path: str, **values: str) -> httpx.Response:
    return client.post(path, data={"csrfmiddlewaretoken": client.cookies["csrftoken"], **values})


def traced(listener: Listener, answer: httpx.Response) -> str:
    """The trace of a response, found by its request ID."""
    wanted = answer.headers["X-Request-ID"]
    return str(eventually(lambda: next((s["trace"] for s in listener.spans if s.get("request_id") == wanted), ""), 20))


def test_request_and_its_task_are_in_one_trace(here: Installation, browser: httpx.Client, listener: Listener) -> None:
    answer = post(
        browser, "/d/vision/webhooks/?q=s3cret-query", name="Chat", url="https://hooks.slack.com/services/s3cret-hook",
        shape="slack", secret="",
    )  # fmt: skip
    assert answer.status_code == 302, answer.text[-3000:]
    page = browser.get("/d/vision/webhooks/").text
    address = next(iter(re.findall(r"/d/vision/webhooks/\d+/try/", page)))
    answer = post(browser, address)
    assert answer.status_code == 302
    trace = traced(listener, answer)
    whole = {f"POST {TRY}", "apply_async/portal.deliver", "run/portal.deliver"}
    eventually(lambda: whole <= {span["name"] for span in listener.of_trace(trace)}, 30, here.said)
    spans = {span["name"]: span for span in listener.of_trace(trace)}
    request = spans[f"POST {TRY}"]
    assert request["http.status_code"] == 302
    assert request["http.route"] == TRY
    assert spans["apply_async/portal.deliver"]["parent"] == request["id"]
    assert spans["run/portal.deliver"]["parent"] == spans["apply_async/portal.deliver"]["id"]
    statements = [str(span["db.statement"]) for span in listener.of_trace(trace) if "db.statement" in span]
    assert any(text.startswith("INSERT INTO") and "%s" in text for text in statements), "placeholders, no values"
    assert {span["service"] for span in listener.spans} == {"gpu-quota-portal"}
    assert set(listener.headers) == {"a key"}


def test_trace_continues_through_the_watcher(here: Installation, browser: httpx.Client, listener: Listener) -> None:
    """Hints are batched, so acting on them continues one of their traces and is linked to the others."""
    made = "from django.db import transaction; from portal.infra.telemetry.switch import work\n"
    sent = "from portal.background.hints import wake; import json; from portal.infra.telemetry import tracing\n"
    act = "with work('a test'):\n    wake('quotas.plan', group_id=999)\n    print(json.dumps(tracing.ids()))\n"
    eventually(lambda: here.python("from portal.background import hint_queue; print(int(hint_queue.alive()))"), 30)
    trace = here.python(made + sent + act)["trace_id"]
    eventually(
        lambda: any(s["name"] == "act on hints" and trace in (s["trace"], *s["links"]) for s in listener.spans), 20
    )


def test_errors_of_pages_and_tasks_arrive_with_ids_and_without_messages(
    here: Installation, browser: httpx.Client, listener: Listener
) -> None:
    with psycopg.connect(here.environment["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("ALTER TABLE portal_webhookdelivery RENAME TO gone")
        try:
            answer = browser.get("/d/vision/webhooks/?q=s3cret-query", headers={"X-Request-ID": "a-page-that-fails"})
            assert answer.status_code == 500
            eventually(
                lambda: {"a-page-that-fails"} <= {e["tags"].get("request_id") for e in listener.events}, 60, here.said
            )
            eventually(lambda: {"celery.app.trace"} <= {e["tags"]["logger"] for e in listener.events}, 60, here.said)
        finally:
            connection.execute("ALTER TABLE gone RENAME TO portal_webhookdelivery")
    event = next(e for e in listener.events if e["tags"].get("request_id") == "a-page-that-fails")
    trace = event["tags"]["trace_id"]  # spans leave in batches, later than errors
    eventually(
        lambda: {span.get("request_id") for span in listener.of_trace(trace)} >= {"a-page-that-fails"}, 60, here.said
    )
    lines = [json.loads(line) for line in here.log.read_text().splitlines() if line.startswith("{")]
    [line] = [line for line in lines if line.get("request_id") == "a-page-that-fails" and "exception" in line]
    assert line["trace_id"] == trace, "the log has the details"
    assert "does not exist" in json.dumps(line)
    assert "ProgrammingError" in [value["type"] for value in event["exception"]["values"]]
    assert {"request", "user", "breadcrumbs", "message", "logentry"} & set(event) == set()
    assert "does not exist" not in json.dumps(event), "messages stay in the log"


def test_no_personal_data_or_secrets_are_exported(browser: httpx.Client, listener: Listener) -> None:
    answer = browser.get("/invite/s3cret-invite/")
    traced(listener, answer)
    everything = b"\n".join(listener.bodies)
    assert b"d/<slug:department>/webhooks/" in everything, "the search covers the data that could contain them"
    assert [secret for secret in SECRETS if secret.encode() in everything] == []


def test_unresponsive_collector_delays_no_page(tmp_path: Path) -> None:
    """Pages are served as usual, and the installation ends on SIGTERM. Sentry refuses connections, the collector is silent."""
    with socket.socket() as deaf:  # accepts into its backlog, and never answers
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(128)
        more = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{deaf.getsockname()[1]}",
            "SENTRY_DSN": f"http://key@127.0.0.1:{free_port()}/7",
        }
        with installed(tmp_path, **more) as made, httpx.Client(base_url=made.url, trust_env=False) as client:
            client.get("/login/")
            took = []
            for _ in range(100):
                began = time.monotonic()
                assert client.get("/login/").status_code == 200
                took.append(time.monotonic() - began)
            assert sorted(took)[50] < 0.2
            assert max(took) < 3, "less than a batch is waited for"
            made.process.terminate()
            assert made.process.wait(20) == 0

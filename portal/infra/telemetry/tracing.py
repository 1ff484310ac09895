"""Traces: Django, Celery, PostgreSQL, Redis and requests by urllib3 (Kubernetes, identity providers), each by its
OpenTelemetry instrumentation. Webhooks and mail are left out: their addresses are secrets.

Only what is listed here is sent. Attributes that a library adds later are dropped, as are all messages of exceptions, which may
quote user input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

import structlog
from celery import current_app
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.instrumentation.django import DjangoInstrumentor
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.instrumentation.redis import RedisInstrumentor
from opentelemetry.instrumentation.urllib3 import URLLib3Instrumentor
from opentelemetry.propagate import set_global_textmap
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import Link, SpanKind, Status, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes, AttributeValue

from portal.infra.telemetry.destinations import CARRIED, Collector

KEPT = frozenset(
    {
        "http.method", "http.request.method", "http.status_code", "http.response.status_code", "http.route",
        "db.system", "db.system.name", "db.name", "db.namespace", "db.statement", "db.query.text",
        "celery.action", "celery.state", "celery.task_name", "messaging.destination", "messaging.destination.name",
        "error.type", "exception.type", "request_id", "workload", "attempt",
    }
)  # fmt: skip
ADDRESSES = frozenset({"http.url", "url.full"})  # of outgoing requests; sent without query, user name and password
BOUND = ("request_id", "workload", "attempt")  # as in the log
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
TIMEOUT, EVERY = 3, 1000  # s for a batch; ms between two
PROPAGATOR = TraceContextTextMapPropagator()  # no baggage: it would pass on what any client sends


class Root(Sampler):
    """Samples the traces that begin here. An outgoing read without a parent span is the polling of a background process, and is
    dropped."""

    def __init__(self, share: float) -> None:
        self.inner = TraceIdRatioBased(share)

    def should_sample(
        self, parent_context: Context | None, trace_id: int, name: str, kind: SpanKind | None = None,
        attributes: Attributes = None, links: Sequence[Link] | None = None, trace_state: TraceState | None = None,
    ) -> SamplingResult:  # fmt: skip
        given = attributes or {}
        asks = kind is SpanKind.CLIENT and (given.get("http.method") or given.get("http.request.method")) not in WRITES
        sampler = ALWAYS_OFF if asks else self.inner
        return sampler.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return f"Root({self.inner.get_description()})"


class Ids(SpanProcessor):
    """Each span gets the ids that its log lines have."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        bound = structlog.contextvars.get_contextvars()
        span.set_attributes({name: str(bound[name]) for name in BOUND if name in bound})


class Scrubbed(SpanExporter):
    def __init__(self, inner: SpanExporter) -> None:
        self.inner = inner

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self.inner.export([scrubbed(span) for span in spans])

    def shutdown(self) -> None:
        self.inner.shutdown()


def scrubbed(span: ReadableSpan) -> ReadableSpan:
    """The span with only the attributes that may be sent: KEPT and, for outgoing requests, ADDRESSES."""
    attributes = _kept(span.attributes)
    if span.kind is SpanKind.CLIENT:
        attributes |= {name: _plain(str(url)) for name, url in (span.attributes or {}).items() if name in ADDRESSES}
    return ReadableSpan(
        name=span.name, context=span.context, parent=span.parent, resource=span.resource, attributes=attributes,
        events=[Event(event.name, _kept(event.attributes), event.timestamp) for event in span.events],
        links=span.links, kind=span.kind, status=Status(span.status.status_code), start_time=span.start_time,
        end_time=span.end_time, instrumentation_scope=span.instrumentation_scope,
    )  # fmt: skip


def _kept(attributes: Attributes) -> dict[str, AttributeValue]:
    return {name: value for name, value in (attributes or {}).items() if name in KEPT}


def _plain(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def begin(collector: Collector, version: str) -> None:
    """Starts tracing. The exporter works in its own thread, from a queue that drops what does not fit: nothing waits for the
    collector."""
    from django.conf import settings

    resource = Resource.create({"service.name": collector.service, "service.version": version})
    provider = TracerProvider(sampler=ParentBased(Root(collector.share)), resource=resource)
    provider.add_span_processor(Ids())
    exporter = OTLPSpanExporter(f"{collector.endpoint}/v1/traces", headers=dict(collector.headers), timeout=TIMEOUT)
    provider.add_span_processor(BatchSpanProcessor(Scrubbed(exporter), schedule_delay_millis=EVERY))
    trace.set_tracer_provider(provider)
    set_global_textmap(PROPAGATOR)
    # Celery's instrumentation ends the span of a message only if the task is registered.
    current_app.autodiscover_tasks(["portal", "quotas", "workloads"], force=True)
    inside = settings.MIDDLEWARE.index("portal.web.middleware.request_id") + 1  # probes are answered before it
    DjangoInstrumentor().instrument(middleware_position=inside)
    for each in (CeleryInstrumentor, PsycopgInstrumentor, RedisInstrumentor, URLLib3Instrumentor):
        each().instrument()


def carrier() -> dict[str, str]:
    carried: dict[str, str] = {}
    PROPAGATOR.inject(carried)
    return {CARRIED: carried[CARRIED]} if CARRIED in carried else {}


@contextmanager
def work(name: str, traces: Iterable[str]) -> Iterator[None]:
    """Starts a span: as a child of a single trace; of several traces as a new root that is linked to all of them."""
    contexts = [PROPAGATOR.extract({CARRIED: each}) for each in dict.fromkeys(traces)]
    links = [Link(trace.get_current_span(each).get_span_context()) for each in contexts]
    alone = contexts[0] if len(contexts) == 1 else None
    with trace.get_tracer("portal").start_as_current_span(name, context=alone, links=[] if alone else links):
        yield


def ids() -> dict[str, str]:
    """`trace_id` and `span_id` of the current span; {} without one."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}

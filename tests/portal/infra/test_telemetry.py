"""What switches traces and error reports on, and what of them leaves."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

import pytest
import structlog
from django.core.exceptions import ImproperlyConfigured

from portal.infra.telemetry import destinations, switch

NEEDED = {destinations.ENDPOINT: "http://collector:4318", destinations.DSN: "https://key@sentry.example.org/7"}


def set_to(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def test_nothing_is_sent_unless_somebody_says_where_to() -> None:
    assert (destinations.collector(), destinations.sentry()) == (None, None)
    assert switch.trace_of() == {}
    with switch.work("anything", [{destinations.CARRIED: "nonsense"}]):
        assert switch.add_ids(None, "", {"event": "x"}) == {"event": "x"}


@pytest.mark.parametrize(("variable", "read", "file"), [
    (destinations.ENDPOINT, destinations.collector, "tracing.txt"), (destinations.DSN, destinations.sentry, "sentry.txt"),
])  # fmt: skip
def test_without_the_library_the_start_says_what_to_install(
    variable: str, read: Any, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    set_to(monkeypatch, **{variable: NEEDED[variable]})
    for gone in (missing, lambda name: None):
        monkeypatch.setattr(importlib.util, "find_spec", gone)
        with pytest.raises(ImproperlyConfigured, match=rf"{variable} needs .*requirements/{file}"):
            read()


@pytest.mark.parametrize(("values", "told"), [
    ({destinations.ENDPOINT: "collector:4318"}, "'collector:4318'"),
    ({destinations.ENDPOINT: "http://"}, "'http://'"),
    ({"OTEL_TRACES_SAMPLER_ARG": "2"}, "0 to 1, not '2'"),
    ({"OTEL_TRACES_SAMPLER_ARG": "all"}, "not 'all'"),
    ({destinations.HEADERS: "s3cret"}, "name=value"),
])  # fmt: skip
def test_a_mistake_stops_the_start_and_tells_no_secret(
    values: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    set_to(monkeypatch, **{destinations.ENDPOINT: NEEDED[destinations.ENDPOINT], **values})
    with pytest.raises(ImproperlyConfigured) as error:
        destinations.collector()
    assert told in str(error.value)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("dsn", ["s3cret", "https://sentry.example.org/7", "ftp://s3cret@host/7"])
def test_an_address_of_sentry_that_is_none_stops_the_start(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_to(monkeypatch, **{destinations.DSN: dsn})
    with pytest.raises(ImproperlyConfigured) as error:
        destinations.sentry()
    assert "https://key@host/project" in str(error.value)
    assert "s3cret" not in str(error.value)


def test_headers_are_decoded_and_stay_out_of_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    set_to(
        monkeypatch,
        **{destinations.ENDPOINT: "http://collector:4318/", destinations.HEADERS: "Authorization=Bearer%20s3cret, a=b"},
    )
    read = destinations.collector()
    assert read is not None
    assert (read.endpoint, dict(read.headers)) == (
        "http://collector:4318", {"Authorization": "Bearer s3cret", "a": "b"}
    )  # fmt: skip
    assert "s3cret" not in repr(read)


def test_a_span_leaves_with_what_is_listed_and_nothing_else() -> None:
    pytest.importorskip("opentelemetry.instrumentation.django", reason="the extra tracing is not installed")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import SpanKind, Status, StatusCode

    from portal.infra.telemetry.tracing import scrubbed

    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    with tracer.start_as_current_span("GET", kind=SpanKind.CLIENT) as span:
        span.set_attribute("http.url", "https://ann:s3cret@cluster.example.org/api/v1/pods?token=s3cret#s3cret")
        span.set_attribute("http.status_code", 500)
        span.set_attribute("tomorrow", "s3cret")
        span.record_exception(ValueError("s3cret"))
        span.set_status(Status(StatusCode.ERROR, "s3cret"))
    left = scrubbed(span)  # type: ignore[arg-type]
    assert dict(left.attributes or {}) == {
        "http.url": "https://cluster.example.org/api/v1/pods",
        "http.status_code": 500,
    }
    assert [dict(event.attributes or {}) for event in left.events] == [{"exception.type": "ValueError"}]
    assert (left.status.status_code, left.status.description) == (StatusCode.ERROR, None)
    assert "s3cret" not in left.to_json()

    with tracer.start_as_current_span("GET invite", kind=SpanKind.SERVER) as asked:
        asked.set_attribute("http.url", "https://gpu.example.org/invite/s3cret/")
    assert "s3cret" not in scrubbed(asked).to_json()  # type: ignore[arg-type]


def test_a_background_process_that_only_looks_makes_no_traces() -> None:
    pytest.importorskip("opentelemetry.instrumentation.django", reason="the extra tracing is not installed")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased
    from opentelemetry.trace import SpanKind

    from portal.infra.telemetry.tracing import Root

    tracer = TracerProvider(sampler=ParentBased(Root(1)), shutdown_on_exit=False).get_tracer("test")
    assert not tracer.start_span("BLPOP", kind=SpanKind.CLIENT).is_recording()
    assert not tracer.start_span("GET", kind=SpanKind.CLIENT, attributes={"http.method": "GET"}).is_recording()
    assert tracer.start_span("POST", kind=SpanKind.CLIENT, attributes={"http.method": "POST"}).is_recording()
    with tracer.start_as_current_span("act on hints") as span:
        assert span.is_recording()
        assert tracer.start_span("SELECT", kind=SpanKind.CLIENT).is_recording()


def test_an_exception_in_the_log_is_reported_without_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    sentry_sdk = pytest.importorskip("sentry_sdk", reason="the extra sentry is not installed")
    from portal.infra.telemetry import error_reports

    sent: list[Any] = []

    class Transport(sentry_sdk.Transport):  # type: ignore[misc, name-defined]
        def capture_envelope(self, envelope: Any) -> None:
            sent.append(envelope.get_event())

    real = sentry_sdk.init
    monkeypatch.setattr(sentry_sdk, "init", lambda **options: real(**options, transport=Transport))
    error_reports.begin(destinations.Sentry("http://key@127.0.0.1:9/1", "test"), "1.2.3", switch.trace_ids)
    try:
        handler, user = error_reports.Handler(), "s3cret"
        log = logging.getLogger("a.place")
        with structlog.contextvars.bound_contextvars(request_id="request-1", user="s3cret"):
            try:
                raise ValueError(user)
            except ValueError as error:
                info = (type(error), error, error.__traceback__)
                handler.handle(log.makeRecord("a.place", 40, "f", 1, {"event": "failed", "exc_info": True}, (), None))
            handler.handle(log.makeRecord("a.place", 40, "f", 1, "s3cret: %s", ("s3cret",), info))  # the same: once
            handler.handle(log.makeRecord("a.place", 40, "f", 1, {"event": "cluster.failed"}, (), None))
    finally:
        sentry_sdk.get_client().close()
        sentry_sdk.Scope.get_global_scope().set_client(None)  # type: ignore[attr-defined]
    [event] = sent
    assert (event["release"], event["environment"]) == ("gpu-quota-portal@1.2.3", "test")
    assert event["tags"] == {"request_id": "request-1", "logger": "a.place"}
    [thrown] = event["exception"]["values"]
    assert thrown["type"] == "ValueError"
    assert thrown["stacktrace"]["frames"][-1]["context_line"].strip() == "raise ValueError(user)"
    lines = [frame.pop(name) for frame in thrown["stacktrace"]["frames"] for name in ("pre_context", "post_context")]
    assert any("s3cret" in line for part in lines for line in part), "source code, which is public"
    assert "s3cret" not in str(event)

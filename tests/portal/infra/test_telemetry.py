"""What switches traces and error reports on, and which data they send."""

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


def test_nothing_is_sent_without_a_destination() -> None:
    assert (destinations.collector(), destinations.sentry()) == (None, None)
    assert switch.trace_of() == {}
    with switch.work("anything", [{destinations.CARRIED: "nonsense"}]):
        assert switch.add_ids(None, "", {"event": "x"}) == {"event": "x"}


@pytest.mark.parametrize(("variable", "read", "file"), [
    (destinations.ENDPOINT, destinations.collector, "tracing.txt"), (destinations.DSN, destinations.sentry, "sentry.txt"),
])  # fmt: skip
def test_missing_library_stops_the_start_and_names_what_to_install(
    variable: str, read: Any, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    set_to(monkeypatch, **{variable: NEEDED[variable]})
    for lookup in (missing, lambda name: None):
        monkeypatch.setattr(importlib.util, "find_spec", lookup)
        with pytest.raises(ImproperlyConfigured, match=rf"{variable} needs .*requirements/{file}"):
            read()


@pytest.mark.parametrize(("values", "message"), [
    ({destinations.ENDPOINT: "collector:4318"}, "'collector:4318'"),
    ({destinations.ENDPOINT: "http://"}, "'http://'"),
    ({"OTEL_TRACES_SAMPLER_ARG": "2"}, "0 to 1, not '2'"),
    ({"OTEL_TRACES_SAMPLER_ARG": "all"}, "not 'all'"),
    ({destinations.HEADERS: "s3cret"}, "name=value"),
])  # fmt: skip
def test_invalid_setting_stops_the_start_and_reveals_no_secret(
    values: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    set_to(monkeypatch, **{destinations.ENDPOINT: NEEDED[destinations.ENDPOINT], **values})
    with pytest.raises(ImproperlyConfigured) as error:
        destinations.collector()
    assert message in str(error.value)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("dsn", ["s3cret", "https://sentry.example.org/7", "ftp://s3cret@host/7"])
def test_invalid_sentry_address_stops_the_start(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_to(monkeypatch, **{destinations.DSN: dsn})
    with pytest.raises(ImproperlyConfigured) as error:
        destinations.sentry()
    assert "https://key@host/project" in str(error.value)
    assert "s3cret" not in str(error.value)


def test_headers_are_decoded_and_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_span_is_exported_with_allowed_attributes_only() -> None:
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
    exported = scrubbed(span)  # type: ignore[arg-type]
    assert dict(exported.attributes or {}) == {
        "http.url": "https://cluster.example.org/api/v1/pods",
        "http.status_code": 500,
    }
    assert [dict(event.attributes or {}) for event in exported.events] == [{"exception.type": "ValueError"}]
    assert (exported.status.status_code, exported.status.description) == (StatusCode.ERROR, None)
    assert "s3cret" not in exported.to_json()

    with tracer.start_as_current_span("GET invite", kind=SpanKind.SERVER) as request_span:
        request_span.set_attribute("http.url", "https://gpu.example.org/invite/s3cret/")
    assert "s3cret" not in scrubbed(request_span).to_json()  # type: ignore[arg-type]


def test_polling_by_background_processes_is_not_traced() -> None:
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


def test_logged_exception_is_reported_without_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert any("s3cret" in line for part in lines for line in part), "only in the source code, which is public"
    assert "s3cret" not in str(event)

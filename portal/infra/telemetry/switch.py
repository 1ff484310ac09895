"""The switch of traces and error reports: off unless they have a destination. Only what is switched on is imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from portal.infra.telemetry.destinations import CARRIED, Collector, Sentry

_tracing = False


def begin(traces: Collector | None, errors: Sentry | None, version: str) -> None:
    """Call it once in each process, after Django's settings were read and before its middleware is loaded."""
    global _tracing
    if errors is not None:
        from portal.infra.telemetry import error_reports

        error_reports.begin(errors, version, trace_ids)
    if traces is not None and not _tracing:
        from portal.infra.telemetry import tracing

        tracing.begin(traces, version)
        _tracing = True


def trace_of() -> dict[str, str]:
    """The context of the current trace, to be sent with a hint; {} if nothing is traced."""
    if not _tracing:
        return {}
    from portal.infra.telemetry import tracing

    return tracing.carrier()


@contextmanager
def work(name: str, hints: Iterable[Mapping[str, Any]] = ()) -> Iterator[None]:
    """A span for work that no request has begun, linked to the traces that the hints carry."""
    if not _tracing:
        yield
        return
    from portal.infra.telemetry import tracing

    with tracing.work(name, [str(hint[CARRIED]) for hint in hints if CARRIED in hint]):
        yield


def trace_ids() -> dict[str, str]:
    """`trace_id` and `span_id` of the current span; {} outside a span, and if nothing is traced."""
    if not _tracing:
        return {}
    from portal.infra.telemetry import tracing

    return tracing.ids()


def add_ids(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog: adds the ids of the current span."""
    event.update(trace_ids())
    return event

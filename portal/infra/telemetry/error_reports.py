"""Errors to Sentry: every exception that reaches the log as an error, from pages, API, tasks and the watcher alike.

Only what is listed here is sent: the type of the exception, the place in the code, and the ids by which the log has the rest.
Messages, variables, requests and people are never sent.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import sentry_sdk
import structlog
from sentry_sdk.integrations.dedupe import DedupeIntegration
from sentry_sdk.integrations.excepthook import ExcepthookIntegration
from sentry_sdk.integrations.threading import ThreadingIntegration

from portal.infra.telemetry.destinations import Sentry

EVENT = ("event_id", "timestamp", "platform", "level", "release", "environment", "server_name", "sdk")
FRAME = (
    "filename",
    "abs_path",
    "function",
    "module",
    "lineno",
    "pre_context",
    "context_line",
    "post_context",
    "in_app",
)
TraceIds = Callable[[], Mapping[str, str]]
TAGS, LOGGER = ("request_id", "workload", "attempt", "trace_id"), "logger"


class Handler(logging.Handler):
    """For the root logger (portal/infra/logs.py). Refusals and unreachable clusters are logged without an exception, and are
    not sent."""

    def emit(self, record: logging.LogRecord) -> None:
        info = record.exc_info or (record.msg.get("exc_info") if isinstance(record.msg, dict) else None)
        if info is True:
            info = sys.exc_info()
        error = info[1] if isinstance(info, tuple) else info
        if isinstance(error, BaseException) and not record.name.startswith("sentry_sdk"):
            with sentry_sdk.new_scope() as scope:
                scope.set_tag(LOGGER, record.name)
                scope.capture_exception(error)


def begin(sentry: Sentry, version: str, trace_ids: TraceIds) -> None:
    """Starts error reports. `trace_ids()`: the ids of the current span. A thread sends them, from a queue that drops what does
    not fit. The library's own integrations for Django and Celery are left out: they collect requests."""
    sentry_sdk.init(
        dsn=sentry.dsn, environment=sentry.environment, release=f"gpu-quota-portal@{version}",
        default_integrations=False, auto_enabling_integrations=False,
        integrations=[DedupeIntegration(), ExcepthookIntegration(), ThreadingIntegration(propagate_scope=False)],
        include_local_variables=False, max_request_body_size="never", max_breadcrumbs=0,
        trace_propagation_targets=[], before_send=partial(scrubbed, trace_ids), shutdown_timeout=1,
    )  # fmt: skip


def scrubbed(trace_ids: TraceIds, event: Any, _hint: Any) -> Any:
    ids = {**structlog.contextvars.get_contextvars(), **trace_ids()}
    tags = {name: str(ids[name]) for name in TAGS if name in ids}
    tags |= {LOGGER: event["tags"][LOGGER]} if LOGGER in event.get("tags", {}) else {}
    thrown = (event.get("exception") or {}).get("values") or []
    return {
        **{name: event[name] for name in EVENT if name in event},
        "tags": tags,
        "exception": {"values": [_thrown(each) for each in thrown]},
    }


def _thrown(value: dict[str, Any]) -> dict[str, Any]:
    frames = (value.get("stacktrace") or {}).get("frames") or []
    places = [{name: frame[name] for name in FRAME if name in frame} for frame in frames]
    return {"type": value.get("type"), "module": value.get("module"), "stacktrace": {"frames": places}}

"""Structured logs: one JSON object a line, with the request id and all other bound ids."""

from __future__ import annotations

import logging.config
from typing import Any

import structlog

from portal.infra.telemetry import switch as telemetry

SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    telemetry.add_ids,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
]

# Local variables may hold secrets: they never go into a log.
TRACEBACK = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)


def config(*, json: bool, level: str, report: bool = False) -> dict[str, Any]:
    """Django's LOGGING setting, applied by configure(). `report`: exceptions are also sent to Sentry."""
    reports = {"class": "portal.infra.telemetry.error_reports.Handler", "level": "ERROR"}
    render: list[Any] = (
        [structlog.processors.ExceptionRenderer(TRACEBACK), structlog.processors.JSONRenderer()]
        if json
        else [structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)]
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structured": {
                "()": structlog.stdlib.ProcessorFormatter,
                "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
                "foreign_pre_chain": SHARED,
            }
        },
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "structured"},
            **({"reports": reports} if report else {}),
        },
        "root": {"handlers": ["stderr", "reports"] if report else ["stderr"], "level": level},
        "loggers": {"celery": {"level": "WARNING"}, "kombu": {"level": "WARNING"}, "httpx": {"level": "WARNING"}},
    }


def configure(settings: dict[str, Any]) -> None:
    logging.config.dictConfig(settings)
    structlog.configure(
        processors=[*SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def current_request_id() -> str:
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))

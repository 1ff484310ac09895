"""Where traces and errors go: an OpenTelemetry collector and Sentry, each only when its variable is set.

Both libraries are extras, and are imported by tracing.py and error_reports.py alone.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from portal.infra import env

ENDPOINT, HEADERS, DSN = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS", "SENTRY_DSN"
CARRIED = "traceparent"  # key of the trace context in a hint


@dataclass(frozen=True, slots=True)
class Collector:
    """`endpoint`: without /v1/traces. `share`: how much of the traces that begin here is sent, 0 to 1."""

    endpoint: str
    headers: Mapping[str, str] = field(repr=False)
    service: str
    share: float


@dataclass(frozen=True, slots=True)
class Sentry:
    dsn: str = field(repr=False)
    environment: str


def collector() -> Collector | None:
    """The configured collector; None if nothing is traced. Raises ImproperlyConfigured."""
    endpoint, headers = env.text("OTEL_EXPORTER_OTLP_ENDPOINT"), env.text("OTEL_EXPORTER_OTLP_HEADERS")
    service, share = env.text("OTEL_SERVICE_NAME", "gpu-quota-portal"), env.text("OTEL_TRACES_SAMPLER_ARG", "1")
    if not endpoint:
        return None
    _check_address(ENDPOINT, endpoint)
    _check_installed(ENDPOINT, "opentelemetry.instrumentation.django", "OpenTelemetry", "tracing")
    pairs = [pair.partition("=") for pair in headers.split(",") if pair.strip()]
    if any(not name.strip() or not mark for name, mark, _value in pairs):  # the value is not shown: it may be a secret
        raise ImproperlyConfigured(f"{HEADERS} must be name=value pairs with commas between")
    try:
        number = float(share)
    except ValueError:
        number = -1
    if not 0 <= number <= 1:
        raise ImproperlyConfigured(f"OTEL_TRACES_SAMPLER_ARG must be a share from 0 to 1, not {share!r}")
    named = {name.strip(): unquote(value.strip()) for name, _mark, value in pairs}
    return Collector(endpoint.rstrip("/"), named, service, number)


def sentry() -> Sentry | None:
    """The configured Sentry; None if no errors are sent. Raises ImproperlyConfigured."""
    dsn, environment = env.text("SENTRY_DSN"), env.text("SENTRY_ENVIRONMENT", "production")
    if not dsn:
        return None
    _check_address(DSN, dsn, secret=True)
    _check_installed(DSN, "sentry_sdk", "sentry-sdk", "sentry")
    return Sentry(dsn, environment)


def _check_address(variable: str, address: str, *, secret: bool = False) -> None:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or (secret and not parts.username):
        shape = "https://key@host/project" if secret else "an address such as http://collector:4318"
        raise ImproperlyConfigured(f"{variable} must be {shape}{'' if secret else f', not {address!r}'}")


def _check_installed(variable: str, module: str, what: str, extra: str) -> None:
    try:
        installed = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        installed = False
    if not installed:
        raise ImproperlyConfigured(
            f"{variable} needs {what}, which is not installed: pip install -r requirements/{extra}.txt, "
            f'or build the image with EXTRAS="{extra}" (docs/operations.md)'
        )

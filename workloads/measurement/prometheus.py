"""Query a cluster's Prometheus. All queries of a round share one time-out, and the length of each answer is limited
(portal/notify/safe_http.py)."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

import httpx
from django.utils.translation import gettext

from portal.errors import N_, Invalid, Problem
from portal.infra.crypt import decrypt
from portal.notify import safe_http
from portal.text.plain_errors import plain_error
from workloads.measurement.series import NotPrometheus, Query, QueryRefused, Sample, parse
from workloads.models import MetricsAuth, MetricsSource

SECONDS = 20.0
"""Time-out of all queries of a round together."""
LONGEST = 32 * 2**20
"""Most bytes of one answer: three times what 10,000 cards need."""


class NotMeasured(Invalid):
    """Why nothing was measured. `field` names the setting that is most likely at fault."""

    code = "not_measured"

    @property
    def detail(self) -> str:
        """The message in the reader's language, with the system's error in plain words."""
        why = {"why": plain_error(str(self.numbers["why"]))} if "why" in self.numbers else {}
        return gettext(self.message) % (self.numbers | why)


@dataclass(frozen=True, slots=True)
class Server:
    """A Prometheus and how to query it. `namespaces`: prefix of the names of the portal's namespaces."""

    url: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    ca: str = ""
    selector: str = ""
    namespaces: str = ""


def server_of(source: MetricsSource) -> Server:
    """Raises Undecryptable."""
    headers = {"Accept": "application/json"}
    secret = decrypt(source.secret, N_("The Prometheus secret of the cluster %(name)s"), source.cluster.name)
    if source.auth == MetricsAuth.BEARER:
        headers["Authorization"] = f"Bearer {secret}"
    elif source.auth == MetricsAuth.BASIC:
        pair = base64.b64encode(f"{source.username}:{secret}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    prefix = str(source.cluster.options.get("namespace_prefix", "gqp-"))
    return Server(source.url, headers, source.ca, source.selector, prefix)


def ask(server: Server, queries: Sequence[Query], *, at: dt.datetime, seconds: int) -> dict[str, tuple[Sample, ...]]:
    """Key of a query → its series, over the `seconds` before `at`. Raises NotMeasured if any query fails."""
    texts = [query.over(seconds, server.selector, server.namespaces) for query in queries]
    return dict(zip((query.key for query in queries), ask_texts(server, texts, at=at), strict=True))


def ask_texts(server: Server, texts: Sequence[str], *, at: dt.datetime) -> list[tuple[Sample, ...]]:
    """The series of each query's answer at that time. Raises NotMeasured."""
    base = server.url.rstrip("/")
    moment = f"{at.timestamp():.3f}"
    urls = [
        f"{base}/api/v1/query?{urlencode({'query': text, 'time': moment, 'timeout': f'{SECONDS:g}s'})}"
        for text in texts
    ]  # fmt: skip
    try:
        answers = safe_http.get(urls, server.headers, seconds=SECONDS, longest=LONGEST, ca=server.ca) if urls else []
        return [_series(answer) for answer in answers]
    except NotMeasured:
        raise
    except safe_http.TooSlow as error:
        raise NotMeasured(
            N_("It did not respond within %(seconds)s s."), field="url", seconds=f"{SECONDS:g}"
        ) from error
    except safe_http.TooLong as error:
        text = N_("One of its responses is larger than %(size)s MiB. Narrow it down with label matchers.")
        raise NotMeasured(text, field="selector", size=LONGEST // 2**20) from error
    except Problem as error:
        raise NotMeasured(error.message, field=error.field, **error.numbers) from error
    except (OSError, httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise NotMeasured(N_("It cannot be reached: %(why)s."), field="url", why=_innermost(error)) from error


def _innermost(error: BaseException) -> str:
    """The original error of the system, which libraries wrap in their own."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return f"{type(error).__name__}: {error}"[:300]


def _series(answer: safe_http.Answer) -> tuple[Sample, ...]:
    """The series of an answer. Raises NotMeasured."""
    if 300 <= answer.status < 400:
        text = N_("It redirects to %(address)s. Redirects are not followed: enter the address itself.")
        raise NotMeasured(text, field="url", address=answer.location[:200] or "?")
    if answer.status in (401, 403):
        raise NotMeasured(N_("It rejects the credentials (HTTP %(status)s)."), field="secret", status=answer.status)
    try:
        return parse(answer.body)
    except QueryRefused as error:
        raise NotMeasured(N_("It rejects a query: %(why)s"), field="selector", why=str(error)) from error
    except NotPrometheus as error:
        text = N_("The server at this address is not Prometheus (HTTP %(status)s).")
        raise NotMeasured(text, field="url", status=answer.status) from error

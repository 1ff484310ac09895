"""The Kubernetes API as this project uses it: JSON in, JSON out, a time-out on every call.

Raw requests through the library's ApiClient: parsing into its models costs five times the CPU on a list of 3,000 pods.
One client for each process, made on first use and again after a fork, because connections cannot be shared with the parent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
import urllib3

from workloads.runtime.base import Unreachable

CONNECT_TIMEOUT, READ_TIMEOUT = 3.0, 15.0  # s
PROBE_TIMEOUT, PROBE_EVERY = 5.0, 5.0  # s
MERGE_PATCH = "application/merge-patch+json"
PAGE = 500
PIECE = 1 << 20  # bytes

Json = Mapping[str, Any]


class NotServed(Unreachable):
    """The server does not know this group and version: a 404 for the path, not for one object."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: status below 500 (401 and 429 are Unreachable instead) with its parsed body; or a 500 that says the
    request is too large, which repeating would not change."""

    status: int
    body: dict[str, Any]

    @property
    def ok(self) -> bool:
        return self.status < 300

    @property
    def message(self) -> str:
        return str(self.body.get("message") or f"HTTP {self.status}")


class Api:
    """Requests to one cluster; thread-safe.

    After a time-out one thread first probes the server with a small request; until that is answered all other calls
    fail at once. Otherwise a server that accepts connections but never answers would keep every thread waiting.
    """

    def __init__(self, make_client: Callable[[], Any], errors: tuple[type[Exception], ...] = ()) -> None:
        """`errors`: the exceptions that the client raises when no connection can be made."""
        self._make_client = make_client
        self._errors: tuple[type[Exception], ...] = (urllib3.exceptions.HTTPError, OSError, *errors)
        self._lock = threading.Lock()
        self._client: Any = None
        self._process = 0
        self._silent, self._probe_after = False, 0.0

    def client(self) -> Any:
        with self._lock:
            if self._client is None or self._process != os.getpid():
                self._client = self._make_client()
                self._process = os.getpid()
            return self._client

    def close(self) -> None:
        with self._lock:
            if self._client is not None and self._process == os.getpid():
                self._client.close()
            self._client = None

    def _send(
        self, method: str, path: str, query: Json, body: Any, content_type: str, read_timeout: float, *,
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:  # fmt: skip
        if self._silent:
            self._probe()
        answer = self._request(method, path, query, body, content_type, read_timeout, stream=stream)
        if answer.status in (401, 429) or (answer.status >= 500 and not _is_too_large(answer)):
            raise _no_answer(answer)
        return answer

    def _request(
        self, method: str, path: str, query: Json, body: Any, content_type: str, read_timeout: float, *,
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:  # fmt: skip
        client = self.client()
        headers = {"Accept": "application/json, */*", "Content-Type": content_type}
        client.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
        try:  # the library's connections without its copying of bodies: half the CPU of a create
            answer: urllib3.BaseHTTPResponse = client.rest_client.pool_manager.request(
                method,
                client.configuration.host + path + (f"?{urlencode(query)}" if query else ""),
                body=None if body is None else orjson.dumps(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=read_timeout),
                retries=False,
                preload_content=not stream,
            )
        except self._errors as error:
            if isinstance(error, urllib3.exceptions.TimeoutError):
                self._silent = True
            raise Unreachable(_short(error)) from error
        return answer

    def _probe(self) -> None:
        """Probe a server that timed out. Raises Unreachable unless it sends a response, whichever."""
        with self._lock:
            if time.monotonic() < self._probe_after:
                raise Unreachable("it did not answer a moment ago")
            self._probe_after = time.monotonic() + PROBE_TIMEOUT + PROBE_EVERY
        try:
            self._request("GET", "/version", {}, None, "application/json", PROBE_TIMEOUT)
            self._silent = False
        finally:
            self._probe_after = time.monotonic() + (PROBE_EVERY if self._silent else 0)

    def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: Any
    ) -> Answer:
        answer = self._send(method, path, query, body, content_type, READ_TIMEOUT)
        try:
            parsed = orjson.loads(answer.data or b"{}")
        except orjson.JSONDecodeError as error:
            if answer.status == 404:
                raise NotServed(f"{method} {path}: the server does not know this version") from error
            raise Unreachable(f"{method} {path}: an answer that is not JSON") from error
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(_short(error)) from error
        return Answer(answer.status, parsed)

    def text(self, path: str, keep: int, **query: Any) -> tuple[int, bytes, int]:
        """(status, the last `keep` bytes, total length) of a text of any length."""
        answer = self._send("GET", path, query, None, "application/json", READ_TIMEOUT, stream=True)
        text, size = bytearray(), 0
        try:
            for piece in answer.stream(PIECE):
                size += len(piece)
                text += piece
                if len(text) > 2 * keep:
                    del text[:-keep]
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(_short(error)) from error
        return answer.status, bytes(text[-keep:]), size

    def get(self, path: str) -> dict[str, Any] | None:
        """An object, or None if it is not there."""
        answer = self.call("GET", path)
        if answer.status == 404:
            return None
        return _readable(path, answer).body

    def list(self, path: str, **query: Any) -> tuple[list[dict[str, Any]], str]:
        """(all items, version of the list), read in pages of PAGE. Without `managedFields`, which are half of an object and
        used by nothing here. When the token of a page has expired, the list is read again from the start."""
        items: list[dict[str, Any]] = []
        token = ""
        while True:
            more = {"continue": token} if token else {}
            answer = self.call("GET", path, limit=PAGE, **query, **more)
            if answer.status == 410 and token:
                items, token = [], ""
                continue
            body = _readable(path, answer).body
            for item in body.get("items") or ():
                item["metadata"].pop("managedFields", None)
                items.append(item)
            token = body["metadata"].get("continue", "")
            if not token:
                return items, str(body["metadata"]["resourceVersion"])

    def watch(self, path: str, version: str, seconds: int, **query: Any) -> Iterator[dict[str, Any]]:
        """Events after `version` until the server ends the stream. Raises Unreachable if it breaks."""
        query |= {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version, "timeoutSeconds": seconds}
        answer = self._send("GET", path, query, None, "application/json", seconds + READ_TIMEOUT, stream=True)
        try:
            if answer.status != 200:
                yield {"type": "ERROR", "object": orjson.loads(answer.data)}
                return
            rest = b""
            for chunk in answer.stream(65536, decode_content=True):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (orjson.loads(line) for line in lines if line)
        except (urllib3.exceptions.HTTPError, OSError, orjson.JSONDecodeError) as error:
            raise Unreachable(f"the watch broke: {_short(error)}") from error
        finally:
            answer.close()


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _readable(path: str, answer: Answer) -> Answer:
    """The answer. Raises Unreachable if the server refused the read."""
    if not answer.ok:
        raise Unreachable(f"GET {path}: {answer.message}")
    return answer


def status_message(status: bytes | None) -> str:
    """The message of a Status object; the text itself if it is not a Status."""
    try:
        return str(orjson.loads(status or b"{}")["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return (status or b"").decode(errors="replace")[:200]


def _is_too_large(answer: urllib3.BaseHTTPResponse) -> bool:
    """Whether etcd refused the object for its size, which the API server passes on as a 500 (etcd: 1.5 MiB, its
    transport: 2 MiB)."""
    try:
        message = status_message(answer.data)
    except urllib3.exceptions.HTTPError:
        return False
    return "request is too large" in message or "larger than max" in message


def _no_answer(answer: urllib3.BaseHTTPResponse) -> Unreachable:
    try:
        detail = status_message(answer.data)
    except urllib3.exceptions.HTTPError:
        detail = ""
    after = answer.headers.get("Retry-After", "")
    return Unreachable(f"HTTP {answer.status} {detail}".strip()[:300], float(after) if after.isdigit() else None)

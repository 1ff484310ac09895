"""A client of the portal's REST API, whose calls are retried while the portal is unreachable for a while."""

from __future__ import annotations

import contextlib
import math
import socket
import ssl
import time
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx

from gpuq.settings import PATIENCE, Failure, Misconfigured, Settings, without_tokens

PASSING = frozenset({429, 502, 503, 504})  # statuses after which a call is retried
QUIET = 60  # s without a byte after which a followed log is requested again, as the connection may be dead
NO_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)
NAMELESS = 10.0  # s to retry if the resolver fails before the portal was ever reached
Json = dict[str, Any]


class Lost(Failure):
    """The portal did not respond for longer than `patience`."""

    code = 125


class Refused(Failure):
    """The portal responded with a problem (RFC 9457)."""

    def __init__(self, status: int, problem: Json) -> None:
        self.status, self.problem = status, problem
        faults = [f"{e['attr']}: {e['detail']}" for e in problem.get("errors", []) if e.get("attr")]
        super().__init__("; ".join(faults) or problem.get("detail") or f"HTTP {status}")

    @property
    def code(self) -> int:  # type: ignore[override]
        return 121 if self.problem.get("code") == "impossible" else 2


class Portal:
    def __init__(self, url: str, token: str, patience: float = PATIENCE, language: str = "en") -> None:
        self.url, self.language, self.patience = url, language, patience
        self.reached = False  # whether any call has got a response
        try:
            self.http = httpx.Client(
                base_url=url + "/api/v1/",
                headers={"Authorization": f"Bearer {token}", "Accept-Language": language},
                timeout=httpx.Timeout(10, read=75),  # a long poll is answered within 55 s
            )
        except (
            ValueError,
            ImportError,
            OSError,
            httpx.InvalidURL,
        ) as error:  # a proxy's address, a file of certificates
            raise Misconfigured(
                f"the environment names a proxy or certificates that cannot be used: {error}"
            ) from error

    @classmethod
    def from_environment(cls) -> Portal:
        """A client with the settings of the environment. Raises Misconfigured."""
        given = Settings.from_environment()
        return cls(given.url, given.token, given.patience, given.language)

    def call(self, method: str, path: str, *, stream: bool = False, **options: Any) -> httpx.Response:
        """A successful response; retries only while the portal is unreachable or busy. With `stream`, its body is not read yet.
        Raises Lost, Refused, Misconfigured."""
        end, pause = time.monotonic() + self.patience, 0.5
        while True:
            wait, why = pause, ""
            try:
                response = self.http.send(self.http.build_request(method, path, **options), stream=stream)
                if not response.is_success:
                    response.read()
            except httpx.TransportError as error:
                self.give_up_on(error)
                if is_unknown_name(error) and not self.reached:
                    end = min(end, time.monotonic() + NAMELESS)
                why = without_tokens(f"{type(error).__name__}: {error}")
            else:
                self.reached = True
                problem = self.problem_of(response)
                if problem is None:
                    return response
                in_flight = problem.get("code") == "idempotency_in_flight"
                if response.status_code not in PASSING and not in_flight:
                    raise Refused(response.status_code, problem)
                wait = max(pause, retry_after(response))
                why = problem.get("detail") or f"HTTP {response.status_code}"
            if time.monotonic() + wait > end:
                raise Lost(f"the portal at {self.url} does not answer: {why}")
            time.sleep(wait)
            pause = min(pause * 2, 10.0)

    def give_up_on(self, error: httpx.TransportError) -> None:
        """Raises Misconfigured for an error that retrying cannot solve."""
        host = self.http.base_url.host
        if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
            raise Misconfigured(without_tokens(f"the request to {self.url} cannot be sent: {error}")) from error
        for each in causes(error):
            if isinstance(each, ssl.SSLCertVerificationError):
                raise Misconfigured(
                    f"the certificate of {host} is not to be trusted: {each.verify_message} "
                    "(SSL_CERT_FILE may name the authority of your site)"
                ) from error
            if self.reached:
                continue
            if isinstance(each, ssl.SSLError) and each.reason in NO_TLS:
                raise Misconfigured(f"what answers at {self.url} does not support TLS; is it http://?") from error
            if isinstance(each, httpx.RemoteProtocolError) and "illegal" in str(each):
                raise Misconfigured(f"what answers at {self.url} does not speak HTTP; is it https://?") from error
            if is_no_name(each):
                raise Misconfigured(f"there is no host {host}; is GPUQ_URL right?") from error

    def problem_of(self, response: httpx.Response) -> Json | None:
        """The problem of an error response (for a proxy's response, one made from its status); None for success. Raises
        Misconfigured if the response is not the portal's."""
        if response.has_redirect_location:
            target = without_tokens(response.headers["Location"]).partition("/api/v1/")[0]
            raise Misconfigured(f"{self.url} sends on to {target}; set GPUQ_URL to where the portal is")
        if response.headers.get("Content-Type", "").startswith("application/problem+json"):
            found = json_of(response)
            if isinstance(found, dict):
                return found
        if not response.is_error:
            self.check_origin(response)
            return None
        status = f"HTTP {response.status_code} {response.reason_phrase}"
        return {"detail": f"{status}, which is not the portal's answer; is GPUQ_URL {self.url} right?"}

    def check_origin(self, response: httpx.Response) -> None:
        """Raises Misconfigured for an HTML page of another site, which may return 200 for every path."""
        kind = response.headers.get("Content-Type") or "nothing"
        if kind.startswith("text/html") and "X-Request-ID" not in response.headers:
            raise Misconfigured(
                f"what answers at {self.url} is not the portal's API (it sent {kind}); is GPUQ_URL right?"
            )

    def json(self, method: str, path: str, **options: Any) -> Json:
        """The response as a JSON object. Raises Misconfigured if it is none."""
        response = self.call(method, path, **options)
        found = json_of(response)
        if not isinstance(found, dict):
            kind = response.headers.get("Content-Type") or "nothing"
            raise Misconfigured(
                f"what answers at {self.url} is not the portal's API (it sent {kind}); is GPUQ_URL right?"
            )
        return found

    def get(self, path: str, **params: Any) -> Json:
        return self.json("GET", path, params={name: value for name, value in params.items() if value is not None})

    def every(self, path: str, most: int, **params: Any) -> Iterator[Json]:
        """The rows of a list, page after page, at most `most`."""
        params["limit"] = min(most, 500)
        while True:
            page = self.get(path, **params)
            yield from page["results"][:most]
            most -= len(page["results"])
            if not page.get("next") or most <= 0:
                return
            params["cursor"] = httpx.URL(page["next"]).params["cursor"]  # not the URL: the token goes to no other host

    def submit(self, department: str, body: Json, *, dry_run: bool = False, key: str = "") -> Json:
        """Submits a workload. Safe to retry: the idempotency key (a new one unless given) makes it one workload."""
        return self.json(
            "POST", f"departments/{segment(department)}/workloads/", json=body, params={"dry_run": 1} if dry_run else None,
            headers={"Idempotency-Key": key or str(uuid.uuid4())},
        )  # fmt: skip

    def act(self, identity: str, action: str, body: Json | None = None) -> Json:
        """POST workloads/{id}/{action}/; safe to retry."""
        return self.post(f"workloads/{segment(identity)}/{action}/", body)

    def post(self, path: str, body: Json | None, **params: Any) -> Json:
        """POST of JSON; safe to retry where the portal accepts an Idempotency-Key."""
        given = {name: value for name, value in params.items() if value is not None}
        return self.json("POST", path, json=body, params=given, headers={"Idempotency-Key": str(uuid.uuid4())})

    def send_file(self, path: str, text: bytes, **params: Any) -> Json:
        """POST of YAML; safe to retry."""
        given = {name: value for name, value in params.items() if value is not None}
        headers = {"Content-Type": "application/yaml", "Idempotency-Key": str(uuid.uuid4())}
        return self.json("POST", path, content=text, params=given, headers=headers)

    def workload(self, identity: str, *, wait: int = 0, version: int | None = None) -> Json:
        return self.get(f"workloads/{segment(identity)}/", wait=wait or None, version=version)

    def stop(self, identity: str) -> None:
        self.call("DELETE", f"workloads/{segment(identity)}/")

    @contextlib.contextmanager
    def file(self, path: str) -> Iterator[tuple[bool, Iterator[bytes]]]:
        """(whether it is a folder, which is sent as a tar; its bytes). Raises Lost, Refused, Misconfigured."""
        response = self.call("GET", path, stream=True, params={"archive": 1})
        try:
            yield response.headers.get("Content-Type") == "application/x-tar", response.iter_raw()
        except httpx.TransportError as error:
            raise Lost(f"the file broke off: {error}") from error
        finally:
            response.close()

    def log(self, identity: str, *, follow: bool = False, **params: Any) -> Iterator[tuple[int, int, bytes]]:
        """Pieces of the log as (attempt, offset, bytes); the first is empty. Raises httpx.TransportError when the connection
        breaks, Refused, Misconfigured."""
        given = {name: value for name, value in params.items() if value is not None} | ({"follow": 1} if follow else {})
        timeout = httpx.Timeout(10, read=QUIET if follow else 75)
        try:
            with self.http.stream("GET", self.log_path(identity), params=given, timeout=timeout) as response:
                self.reached = True
                if not response.is_success:
                    response.read()
                    raise Refused(response.status_code, self.problem_of(response) or {})
                self.check_origin(response)
                number = int(response.headers.get("X-Log-Attempt", params.get("attempt") or 1))
                at = int(response.headers.get("X-Log-Start", params.get("offset") or 0))
                yield number, at, b""
                for piece in response.iter_raw():
                    yield number, at, piece
                    at += len(piece)
        except httpx.TransportError as error:
            self.give_up_on(error)
            raise

    def log_path(self, identity: str) -> str:
        return f"workloads/{segment(identity)}/logs/"

    def log_ended(self, identity: str, attempt: int | None, offset: int, rank: int) -> bool:
        """Whether the attempt has ended and its log has nothing after `offset`."""
        response = self.call(
            "GET", self.log_path(identity), params={"attempt": attempt, "offset": offset, "rank": rank}
        )
        return response.headers.get("X-Log-End") == "1" and not response.content


def segment(name: str) -> str:
    """A name as one segment of a path, with all special characters escaped."""
    return quote(name, safe="", errors="surrogateescape")


def json_of(response: httpx.Response) -> Any:
    """The parsed body; None if it is not JSON."""
    try:
        return response.json()
    except ValueError:
        return None


def retry_after(response: httpx.Response) -> float:
    """The seconds in Retry-After; 0 if it is missing or a date."""
    try:
        seconds = float(response.headers.get("Retry-After", 0))
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0


def causes(error: BaseException) -> list[BaseException]:
    """The error and its causes, outermost first."""
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in found:
        found.append(at)
        at = at.__cause__ or at.__context__
    return found


def is_no_name(error: BaseException) -> bool:
    """Whether the resolver reported that the host does not exist; not if the resolver itself failed."""
    missing = {getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)}
    return isinstance(error, socket.gaierror) and error.errno in missing


def is_unknown_name(error: BaseException) -> bool:
    return any(isinstance(each, socket.gaierror) for each in causes(error))

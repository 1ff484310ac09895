"""The portal's REST API as few calls, each of which survives a portal that is away for a while."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx

PASSING = frozenset({429, 502, 503, 504})  # worth another try, by themselves
QUIET = 60  # s without a byte after which a followed log is asked for again: the line may be dead
Json = dict[str, Any]


class Failure(Exception):
    """Ends gpuq with `code`; the text goes to stderr."""

    code = 2


class Misconfigured(Failure):
    pass


class Lost(Failure):
    """The portal did not answer for longer than our patience."""

    code = 125


class Refused(Failure):
    """The portal answered with a problem (RFC 9457)."""

    def __init__(self, status: int, problem: Json) -> None:
        self.status, self.problem = status, problem
        faults = [f"{e['attr']}: {e['detail']}" for e in problem.get("errors", []) if e.get("attr")]
        super().__init__("; ".join(faults) or problem.get("detail") or f"HTTP {status}")

    @property
    def code(self) -> int:  # type: ignore[override]
        return 121 if self.problem.get("code") == "impossible" else 2


class Portal:
    def __init__(self, url: str, token: str, patience: float = 300.0) -> None:
        self.language = "zh-hans" if os.environ.get("LANG", "").startswith("zh") else "en"
        self.patience = patience
        self.http = httpx.Client(
            base_url=url.rstrip("/") + "/api/v1/",
            headers={"Authorization": f"Bearer {token}", "Accept-Language": self.language},
            timeout=httpx.Timeout(10, read=75),  # a long poll is answered within 55 s
        )

    @classmethod
    def from_environment(cls) -> Portal:
        url, token = os.environ.get("GPUQ_URL", ""), os.environ.get("GPUQ_TOKEN", "")
        if not url or not token:
            raise Misconfigured("set GPUQ_URL and GPUQ_TOKEN (a token is made in the portal under Profile, Tokens)")
        return cls(url, token, float(os.environ.get("GPUQ_PATIENCE", "300")))

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Tries again while the portal is away or busy. Raises Lost, Refused."""
        end, pause = time.monotonic() + self.patience, 0.5
        while True:
            wait, why = pause, ""
            try:
                response = self.http.request(method, path, **options)
            except httpx.TransportError as error:
                why = f"{type(error).__name__}: {error}"
            else:
                problem = problem_of(response)
                if problem is None:
                    return response
                in_flight = problem.get("code") == "idempotency_in_flight"
                if response.status_code not in PASSING and not in_flight:
                    raise Refused(response.status_code, problem)
                wait = max(pause, float(response.headers.get("Retry-After", 0)))
                why = problem.get("detail") or f"HTTP {response.status_code}"
            if time.monotonic() + wait > end:
                raise Lost(f"the portal at {self.http.base_url} does not answer: {why}")
            time.sleep(wait)
            pause = min(pause * 2, 10.0)

    def get(self, path: str, **params: Any) -> Json:
        given = {name: value for name, value in params.items() if value is not None}
        found: Json = self.call("GET", path, params=given).json()
        return found

    def every(self, path: str, most: int, **params: Any) -> Iterator[Json]:
        """The rows of a list, page after page, at most `most`."""
        page = self.get(path, limit=min(most, 500), **params)
        while True:
            yield from page["results"][:most]
            most -= len(page["results"])
            if not page["next"] or most <= 0:
                return
            page = self.get(page["next"])

    def submit(self, department: str, body: Json, *, dry_run: bool = False) -> Json:
        """Safe to repeat: the key makes it one workload, however often it is sent."""
        found: Json = self.call(
            "POST", f"departments/{department}/workloads/", json=body, params={"dry_run": 1} if dry_run else None,
            headers={"Idempotency-Key": str(uuid.uuid4())},
        ).json()  # fmt: skip
        return found

    def workload(self, identity: str, *, wait: int = 0, version: int | None = None) -> Json:
        return self.get(f"workloads/{identity}/", wait=wait or None, version=version)

    def stop(self, identity: str) -> None:
        self.call("DELETE", f"workloads/{identity}/")

    def log(self, identity: str, *, follow: bool = False, **params: Any) -> Iterator[bytes]:
        """Pieces of the log. Raises httpx.TransportError when the stream breaks, Refused."""
        given = {name: value for name, value in params.items() if value is not None} | ({"follow": 1} if follow else {})
        timeout = httpx.Timeout(10, read=QUIET if follow else 75)
        with self.http.stream("GET", f"workloads/{identity}/logs/", params=given, timeout=timeout) as response:
            if response.is_error:
                response.read()
                raise Refused(response.status_code, problem_of(response) or {})
            yield from response.iter_raw()

    def log_ended(self, identity: str, attempt: int, offset: int, rank: int) -> bool:
        """Whether the attempt is over and nothing lies behind `offset`."""
        response = self.call(
            "GET", f"workloads/{identity}/logs/", params={"attempt": attempt, "offset": offset, "rank": rank}
        )
        return response.headers.get("X-Log-End") == "1" and not response.content


def problem_of(response: httpx.Response) -> Json | None:
    """The problem of an error answer, made up where a proxy answered; None for a good one."""
    if not response.is_error:
        return None
    if response.headers.get("Content-Type", "").startswith("application/problem+json"):
        found: Json = response.json()
        return found
    return {"detail": f"HTTP {response.status_code} {response.reason_phrase}"}

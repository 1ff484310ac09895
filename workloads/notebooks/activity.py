"""Whether people work in notebooks, as reported by their Jupyter servers: computing kernels, messages of kernels and terminals.
The servers run any code of their users, so answers are limited in size and time, and an unreadable answer counts as none.
Output of a terminal counts like input: Jupyter does not distinguish them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
import structlog
from django.utils.dateparse import parse_datetime

from portal.infra.crypt import Undecryptable
from portal.notify import safe_http
from workloads.clusters.drivers import driver_for
from workloads.clusters.run_spec import ref_of, tokens_of
from workloads.idle.rule import Activity
from workloads.models import Attempt
from workloads.runtime.base import ClusterDriver, ClusterError, RunRef, base_path

AT_ONCE = 8
DEADLINE = 4.0  # s for each server
LARGEST = 1 << 20  # bytes of an answer
COMPUTING = frozenset({"busy", "restarting", "autorestarting"})
log = structlog.get_logger(__name__)


class UnknownActivity(Exception):
    """The server did not answer, or its answer is not Jupyter's."""


@dataclass(frozen=True, slots=True)
class Server:
    attempt: int
    driver: ClusterDriver
    ref: RunRef
    path: str
    token: str


def activity_of(attempts: Sequence[Attempt]) -> dict[int, Activity]:
    """Id of an attempt → the activity that its server reports; attempts without an answer are missing."""
    servers = [server for attempt in attempts if (server := _server(attempt)) is not None]
    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="notebooks") as threads:
        answers = threads.map(_ask, servers)
        return {
            server.attempt: answer for server, answer in zip(servers, answers, strict=True) if answer is not None
        }  # fmt: skip


def _server(attempt: Attempt) -> Server | None:
    try:
        token = tokens_of(attempt)["notebook"]
        driver = driver_for(attempt.cluster)
    except (Undecryptable, ClusterError, KeyError, ValueError):
        return None
    workload = attempt.workload
    return Server(attempt.pk, driver, ref_of(attempt), base_path(workload.kind, workload.public_id), token)


def _ask(server: Server) -> Activity | None:
    """The activity of one server; None without an answer. Runs in a thread of its own and does not use the database."""
    try:
        address = server.driver.endpoint(server.ref)
        if address is None:
            return None
        root = f"http://{address[0]}:{address[1]}{server.path}api/"
        headers = {"Authorization": f"token {server.token}", "Accept-Encoding": "identity"}
        requests = [
            httpx.Request("GET", root + name, params={"no_track_activity": "1"}, headers=headers)
            for name in ("kernels", "terminals")
        ]
        kernels, terminals = asyncio.run(safe_http.exchange(requests, DEADLINE, LARGEST))
        return read(_rows(kernels, missing=False), _rows(terminals, missing=True))
    except (UnknownActivity, ClusterError, OSError, httpx.HTTPError, httpx.InvalidURL) as error:
        log.info("notebook.activity_unknown", run=server.ref.name, error=str(error)[:200])
        return None


def _rows(answer: safe_http.Answer, *, missing: bool) -> list[dict[str, Any]]:
    """The list in the answer. `missing`: 404 means that there are none, because the server lacks this feature. Raises
    UnknownActivity."""
    if missing and answer.status == 404:
        return []
    if answer.status != 200:
        raise UnknownActivity(f"the server answers {answer.status}")
    try:
        rows = orjson.loads(answer.body)
    except orjson.JSONDecodeError as error:
        raise UnknownActivity("the answer is not JSON") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UnknownActivity("the answer is not a list of objects")
    return rows


def read(kernels: Sequence[dict[str, Any]], terminals: Sequence[dict[str, Any]]) -> Activity:
    """The activity in lists of kernels and terminals. Raises UnknownActivity if one lacks a field of Jupyter's."""
    times = []
    for row in (*kernels, *terminals):
        try:
            moment = parse_datetime(str(row["last_activity"]))
        except (KeyError, ValueError) as error:
            raise UnknownActivity("no last_activity") from error
        if moment is None or moment.tzinfo is None:
            raise UnknownActivity("no last_activity")
        times.append(moment)
    states = [row.get("execution_state") for row in kernels]
    if None in states:
        raise UnknownActivity("no execution_state")
    return Activity(bool(COMPUTING.intersection(states)), max(times, default=None))

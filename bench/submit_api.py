"""How many workloads a second the REST API accepts, compared with two baselines in the same run on the same server and database:
a read from the same API by the same clients, and bare inserts of the rows that a submission writes.

PostgreSQL and Redis are real (throw-away), the web server is as in production. No worker runs, so only submission is measured.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

REQUESTS, THREADS, BARE = 600, 8, 200


def main() -> None:
    from bench._installation import prepared, web_server

    prepared(LOG_LEVEL="ERROR", DATABASE_POOL="8")  # its default
    header, body = seed()
    with web_server() as base:
        measure(f"{base}/api/v1", header, body)


def seed() -> tuple[dict[str, str], dict[str, object]]:
    from tests import builders as make
    from tests.clients import token_of
    from workloads.models import Image

    pool = make.pool("a100", cards=512, nodes=64)
    vision = make.department("vision")
    make.quota(vision, pool, 512)
    Image.objects.create(name="python:3.11", title="Python")
    _, token = token_of(make.member(vision), vision, ["read", "submit"])
    body = {
        "kind": "job",
        "name": "train",
        "image": "python:3.11",
        "command": ["python", "train.py"],
        "pool": "a100",
        "units_per_pod": 1,
    }
    return {"Authorization": f"Bearer {token}"}, body


def measure(base: str, header: dict[str, str], body: dict[str, object]) -> None:
    import httpx

    class Connection(threading.local):
        def __init__(self) -> None:
            self.client = httpx.Client(headers=header, timeout=30)

    own = Connection()

    def submit(number: int) -> None:
        answer = own.client.post(f"{base}/departments/vision/workloads/", json=body | {"name": f"train-{number}"})
        if answer.status_code != 202:
            raise SystemExit(f"{answer.status_code}: {answer.text}")

    def read(number: int) -> None:
        if own.client.get(f"{base}/images/").status_code != 200:
            raise SystemExit("the read failed")

    for work in (submit, read):
        in_threads(work, 40)  # warm
    submits, reads = in_threads(submit, REQUESTS), in_threads(read, REQUESTS)
    bare = bare_rows()
    rate, read_rate = REQUESTS / submits[0], REQUESTS / reads[0]
    print(f"submit     {rate:7.1f} requests/s  p50 {submits[1]:5.1f} ms  p95 {submits[2]:5.1f} ms  ({THREADS} clients)")
    print(f"read       {read_rate:7.1f} requests/s  p50 {reads[1]:5.1f} ms  p95 {reads[2]:5.1f} ms")
    print(f"bare rows  {bare:7.1f} submissions/s, inserted by one loop without HTTP or checks")
    print(f"submit / read = {rate / read_rate:.2f}   submit / bare rows = {rate / bare:.2f}")


def in_threads(work: Callable[[int], object], count: int) -> tuple[float, float, float]:
    """(total seconds, median ms, 95th percentile ms) of `count` calls by THREADS threads."""
    taken: list[float] = []
    numbers, guard = iter(range(count)), threading.Lock()

    def run() -> None:
        while True:
            with guard:
                number = next(numbers, None)
            if number is None:
                return
            began = time.perf_counter()
            work(number)
            taken.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began, statistics.median(taken), statistics.quantiles(taken, n=20)[18]


def bare_rows() -> float:
    """Submissions a second when only their rows are written: workload, claim, attempt, audit entry, event."""
    from django.db import transaction

    from portal.models import AuditEntry, Department, Event
    from quotas.models import Claim, Pool
    from workloads.models import Attempt, Image, Workload

    pool, image = Pool.objects.get(), Image.objects.get()
    of: dict[str, Any] = {"department": Department.objects.get(), "pool": pool}
    began = time.perf_counter()
    for n in range(BARE):
        with transaction.atomic():
            workload = Workload.objects.create(kind="job", name="bare", image=image, units_per_pod=1, **of)
            claim = Claim.objects.create(name="bare", units_per_pod=1, workload=workload.public_id, **of)
            Attempt.objects.create(
                workload=workload, number=1, claim=claim, cluster=pool.group.cluster, run_name=f"bare-{n}"
            )
            AuditEntry.objects.create(action="bare", target="bare", actor_name="bare")
            Event.objects.create(kind="bare")
    return BARE / (time.perf_counter() - began)


if __name__ == "__main__":
    main()

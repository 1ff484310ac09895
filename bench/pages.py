"""How fast the pages are with 5,000 workloads and 50 people, and what they cost compared with the shortest response of the same
server.

    python -m bench.pages [--workloads 5000 --rounds 40] [--browser]

PostgreSQL and Redis are real (throw-away), the web server is as in production. First, with one logged-in reader at a time: median
and 95th percentile of the time for a page's HTML. Then the five most used pages with as many readers at once as in `web_server`,
beside `livez` (the same server, no database). `--browser` also opens the pages in Chromium, each with an empty cache: requests,
compressed size, largest contentful paint (LCP) and cumulative layout shift within five seconds (CLS). There are eight departments
and four pools with 64 nodes; a tenth of the workloads runs or waits, as decided by a planning pass.
"""

from __future__ import annotations

import argparse
import datetime as dt
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.submit_api import THREADS, in_threads

DEPARTMENTS, PEOPLE, POOLS, NODES, CARDS = 8, 50, 4, 64, 512
REQUESTS = 160
WARM = 30
"""Rounds that are not counted: PostgreSQL prepares a statement when a connection has sent it three times, and the pages are
answered by two processes of several threads, each with a connection of its own."""
COMMONEST = ("home", "workloads", "workload", "request form", "department")


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--browser", action="store_true")
    given = parser.parse_args(arguments)
    from bench._installation import prepared, web_server

    prepared(LOG_LEVEL="ERROR", DATABASE_POOL="8")
    world = seed(given.workloads)
    with web_server() as base:
        measure(base, world, given.rounds)
        if given.browser:
            look(base, world)


# Data ---------------------------------------------------------------------------------------------------------------------


def seed(count: int) -> dict[str, Any]:
    """Creates the data. Returns the readers' cookies, and the names for addresses."""
    from django.utils import timezone

    from portal.models import Role
    from quotas.planning.run_pass import run_pass
    from quotas.spending.metering import sum_hours
    from tests import builders as make
    from workloads.models import Image, Workload

    pools = [make.pool(f"pool-{n}", cards=CARDS // POOLS, nodes=NODES // POOLS) for n in range(POOLS)]
    departments = [make.department(f"department-{n}") for n in range(DEPARTMENTS)]
    people = [make.member(departments[n % DEPARTMENTS], Role.MEMBER, f"person-{n}") for n in range(PEOPLE)]
    for department in departments:
        for pool in pools:
            make.quota(department, pool, CARDS // POOLS // DEPARTMENTS)
    owner = make.member(departments[0], Role.OWNER, "owner")
    operator = make.user("operator", is_operator=True)
    image = Image.objects.create(name="python:3.11", title="Python")
    ended, now = count * 9 // 10, timezone.now()
    for n in range(count):
        person = people[n % PEOPLE]
        at = {"department": departments[n % PEOPLE % DEPARTMENTS], "pool": pools[n % POOLS]}
        workload(n, person, image, at, now - dt.timedelta(days=30) * (count - n) / count if n < ended else None)
    for pool in pools:
        run_pass(group_id=pool.group_id)
    carry_out(now)
    sum_hours(now=timezone.now())  # as the meter does every hour
    mine = Workload.objects.filter(author=people[0], state="running").first()
    assert mine is not None
    return {"member": cookie_of(people[0]), "owner": cookie_of(owner), "operator": cookie_of(operator),
            "department": departments[0].slug, "pool": pools[0].slug, "workload": mine.public_id}  # fmt: skip


def workload(n: int, person: Any, image: Any, at: dict[str, Any], ended: dt.datetime | None) -> None:
    """Creates a workload that ran for an hour until `ended`, or one that waits."""
    from quotas.models import Claim, LedgerEntry
    from workloads.models import Attempt, Workload

    began = ended and ended - dt.timedelta(hours=1)
    done = {"state": "succeeded", "finished_at": ended, "submitted_at": began} if ended else {}
    row = Workload.objects.create(
        kind="job", name=f"train-{n}", image=image, author=person, units_per_pod=1, max_runtime=7200, attempts_made=1,
        **at, **done,
    )  # fmt: skip
    past = {"state": "released", "started_at": began, "released_at": ended} if ended else {}
    claim = Claim.objects.create(name=row.name, kind="job", units_per_pod=1, workload=row.public_id, user=person,
                                 max_runtime=7200, **at, **past)  # fmt: skip
    past = {"queued_at": began, "started_at": began, "finished_at": ended, "outcome": "succeeded"} if ended else {}
    Attempt.objects.create(workload=row, number=1, claim=claim, cluster=at["pool"].group.cluster,
                           run_name=f"w-{row.public_id}-1", **past)  # fmt: skip
    if began:
        LedgerEntry.objects.create(claim=claim, units=1, own=True, started_at=began, ended_at=ended, **at)


def carry_out(now: dt.datetime) -> None:
    """Marks the admitted workloads as running."""
    from workloads.models import Attempt, Workload

    admitted = Attempt.objects.filter(claim__state="holding")
    Workload.objects.filter(attempts__in=admitted).update(state="running")
    admitted.update(admitted_at=now, created_at=now, started_at=now)


def cookie_of(user: Any) -> dict[str, str]:
    from django.test import Client

    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return {name: morsel.value for name, morsel in client.cookies.items()}


# Measurement --------------------------------------------------------------------------------------------------------------


def pages_of(world: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(name, reader, path) of each page."""
    home, pool = f"/d/{world['department']}/", world["pool"]
    return [
        ("home", "member", "/"), ("workloads", "member", f"{home}workloads/"),
        ("workload", "member", f"{home}workloads/{world['workload']}/"),
        ("request form", "member", f"{home}workloads/new/"), ("department", "owner", home),
        ("pools", "member", "/pools/"), ("pool", "owner", f"/pools/{pool}/"), ("card map", "owner", "/card-map/"),
        ("decisions", "owner", "/decisions/"), ("requests", "owner", "/requests/"), ("usage", "owner", "/usage/"),
        ("quotas", "owner", f"{home}quotas/"), ("members", "owner", f"{home}members/"), ("inbox", "member", "/inbox/"),
        ("overview", "operator", "/operator/"), ("all workloads", "operator", "/operator/workloads/"),
        ("users", "operator", "/operator/users/"), ("nodes", "operator", "/operator/nodes/"),
        ("audit", "operator", "/operator/audit/"), ("usage of all", "operator", "/usage/"),
    ]  # fmt: skip


def measure(base: str, world: dict[str, Any], rounds: int) -> None:
    import httpx

    pages = pages_of(world)
    readers = {
        who: httpx.Client(base_url=base, cookies=world[who], timeout=30) for who in ("member", "owner", "operator")
    }
    taken: dict[str, list[float]] = {name: [] for name, _who, _path in pages}
    for number in range(WARM + rounds):
        for name, who, path in pages:
            seconds = asked(readers[who], path)
            if number >= WARM:
                taken[name].append(seconds * 1000)
    for name, times in taken.items():
        print(
            f"{name:14} p50 {statistics.median(times):6.1f} ms  p95 {statistics.quantiles(times, n=20)[18]:6.1f} ms",
            flush=True,
        )
    everything = [statistics.median(times) for times in taken.values()]
    print(f"slowest p50 {max(everything):.1f} ms (goal 100)")
    shortest = rate(base, {}, "/livez")
    print(f"{'livez':14} {shortest:7.1f} answers/s  ({THREADS} clients)")
    for name, who, path in pages:
        if name in COMMONEST:
            each = rate(base, world[who], path)
            print(f"{name:14} {each:7.1f} pages/s: {each / shortest:.2f} of livez", flush=True)


OBSERVED = """
window.shift = 0; window.painted = 0;
new PerformanceObserver((list) => list.getEntries().forEach((each) => { if (!each.hadRecentInput) window.shift += each.value; }))
  .observe({ type: "layout-shift", buffered: true });
new PerformanceObserver((list) => list.getEntries().forEach((each) => { window.painted = each.startTime; }))
  .observe({ type: "largest-contentful-paint", buffered: true });
"""
LOOKED = 5_000
"""How long a page stays open, in ms: some pages refresh themselves."""


def look(base: str, world: dict[str, Any]) -> None:
    """Opens each page in Chromium, as on a first visit."""
    from playwright.sync_api import sync_playwright

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"]) as browser,
    ):
        for name, who, path in pages_of(world):
            with browser.new_context(base_url=base) as context:
                context.add_cookies([{"name": key, "value": value, "url": base} for key, value in world[who].items()])
                context.add_init_script(OBSERVED)
                page = context.new_page()
                page.goto(path)
                page.wait_for_timeout(LOOKED)
                sizes = page.evaluate(
                    "performance.getEntries().map((each) => each.transferSize).filter((size) => size > 0)"
                )
                painted, shift = page.evaluate("[window.painted, window.shift]")
                print(
                    f"{name:14} {len(sizes):3} requests {sum(sizes) / 1024:6.1f} KB  LCP {painted:5.0f} ms  CLS {shift:.3f}",
                    flush=True,
                )


def asked(reader: Any, path: str) -> float:
    began = time.perf_counter()
    answer = reader.get(path)
    if answer.status_code != 200:
        raise SystemExit(f"{path}: {answer.status_code}")
    return time.perf_counter() - began


def rate(base: str, cookies: dict[str, str], path: str) -> float:
    """Responses a second, for all clients together."""
    import httpx

    with httpx.Client(base_url=base, cookies=cookies, timeout=60) as reader:
        in_threads(lambda _number: asked(reader, path), REQUESTS // 4)  # warm
        return REQUESTS / in_threads(lambda _number: asked(reader, path), REQUESTS)[0]


if __name__ == "__main__":
    main(sys.argv[1:])

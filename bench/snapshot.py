"""How long it takes to read the snapshot for a planning pass from PostgreSQL, and in how many queries.

    python bench/snapshot.py [--departments 1000 --running 10000 --pending 10000]

1,213 nodes with 6,212 cards are read by a process that has just started, and again with the rules cached. Two baselines in the
same run: fetching only the claims' columns (the cost of database and driver), and reading the claims as model instances.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--departments", type=int, default=1000)
    parser.add_argument("--running", type=int, default=10000)
    parser.add_argument("--pending", type=int, default=10000)
    given = parser.parse_args(arguments)
    from bench import _database

    _database.start()
    pool = seed(given.departments)
    for part in (8, 4, 2, 1):
        fill(pool, given.running // part, given.pending // part)
        measure(pool)


def seed(departments: int) -> Any:
    from bench import _openb
    from portal.models import Department
    from quotas.models import Card, Node, Quota
    from tests import builders as make

    pool = make.pool("shares", cards=0, nodes=0, unit="milli", units_per_card=_openb.CARD, nominal=6212 * _openb.CARD)
    nodes = {
        node.name: (Node(cluster=pool.group.cluster, name=node.name, cpu_milli=node.cpu_milli, memory_mib=node.memory_mib), node)
        for node in _openb.nodes()
    }  # fmt: skip
    Node.objects.bulk_create(row for row, _ in nodes.values())
    Card.objects.bulk_create(
        Card(node=row, pool=pool, index=index, units=card.units)
        for row, node in nodes.values()
        for index, card in enumerate(node.cards)
    )
    rows = Department.objects.bulk_create(Department(slug=f"d{n:04}", name=f"d{n:04}") for n in range(departments))
    Quota.objects.bulk_create(Quota(department=row, pool=pool, guaranteed=pool.nominal // departments) for row in rows)
    return pool


def fill(pool: Any, running: int, pending: int) -> None:
    """Stores the claims of bench/plan_pass.py."""
    from bench._snapshots import a_snapshot
    from portal.models import Department
    from quotas.models import Claim
    from quotas.planning.snapshot import moment

    now = int(time.time())
    Claim.objects.all().delete()
    departments = dict(Department.objects.values_list("slug", "pk"))
    made = a_snapshot(len(departments), running, pending, with_nodes=True)

    def at(seconds: int) -> dt.datetime:
        return moment(now + seconds)

    Claim.objects.bulk_create(
        Claim(
            department_id=departments[claim.department],
            pool=pool,
            name=claim.id,
            state=claim.state,
            priority=claim.priority,
            units_per_pod=claim.units_per_pod,
            cpu_milli=claim.cpu_milli,
            memory_mib=claim.memory_mib,
            submitted_at=at(claim.submitted_at),
            queued_at=at(claim.submitted_at),
            started_at=None if claim.started_at is None else at(claim.started_at),
            notice=600,
            grace=120,
            placement=[{"pod": p.pod, "node": p.node, "cards": list(p.cards)} for p in claim.placement or ()] or None,
        )
        for claim in made.claims
    )


def measure(pool: Any) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext
    from django.utils import timezone

    from quotas.models import LIVE_CLAIMS, Claim
    from quotas.planning import rules_cache
    from quotas.planning.snapshot import CLAIM_COLUMNS, load_snapshot

    def cold() -> None:
        rules_cache._last.clear()
        load_snapshot(pool.group, now=now)

    now = timezone.now()
    rows = Claim.objects.filter(pool=pool, state__in=LIVE_CLAIMS)
    with CaptureQueriesContext(connection) as queries:
        cold()
    wall, ours = seconds(cold)
    wall_again, again = seconds(lambda: load_snapshot(pool.group, now=now))
    _, bare = seconds(lambda: list(rows.order_by("public_id").values_list(*CLAIM_COLUMNS)))
    _, models = seconds(lambda: list(rows.select_related("department", "pool", "preempted_for")))
    print(
        f"{rows.count():6} claims: {len(queries)} queries, {ours:.3f} CPU s ({wall:.3f} s with the database), "
        f"with the rules unchanged {again:.3f} ({wall_again:.3f})   "
        f"the claims' columns alone {bare:.3f}   as model instances {models:.3f}", flush=True,
    )  # fmt: skip


def seconds(run: Callable[[], object], times: int = 4) -> tuple[float, float]:
    """(wall seconds, CPU seconds) of this process, each the least of several runs."""
    walls, spent = [], []
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        spent.append(time.process_time() - cpu)
        walls.append(time.perf_counter() - wall)
    return min(walls), min(spent)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The time and memory that a backtest of a month takes, and its longest time without a sign of life.

    python bench/backtest.py [--workloads 20000 --days 30]

It runs in PostgreSQL on a made-up history of six departments whose guaranteed quotas are in proportion to their demand. The
baseline, in the same run, is the reading of that history, once for the present rules and once for the draft.
"""

from __future__ import annotations

import argparse
import datetime as dt
import resource
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ON_A_NODE, LOAD = 8, 0.95
DRAFT = "apiVersion: gpu-quota-portal/v1\npools: {a100: {notice: 60 s}}"


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=20_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--read-only", action="store_true", help="only read the history, play nothing")
    given = parser.parse_args(arguments)
    from bench import _database

    _database.start()
    from django.db import connection
    from django.utils import timezone

    from portal.access import Actor
    from quotas.models import Pool
    from tests import builders as make
    from workloads.backtests import runs
    from workloads.replay.history import demand_of

    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # its sockets must not be shared with the child process
    filling = get_context("fork").Process(target=fill, args=(given.workloads, given.days))
    filling.start()  # in a child process, so that its memory does not count
    filling.join()
    if filling.exitcode:
        sys.exit("the history could not be made")
    pool, now = Pool.objects.get(), timezone.now()
    row = runs.ask(actor=Actor(make.user("olga", is_operator=True)), group=pool.group, text=DRAFT, days=given.days)
    began = time.process_time()
    demand, _unknown = demand_of(pool.group, row.begin, row.end)
    reading = time.process_time() - began
    print(
        f"{len(demand.jobs):,} workloads of {given.days} days are read in {reading:.1f} CPU s, {peak()} MiB at most",
        flush=True,
    )
    if given.read_only:
        return
    beats = [time.monotonic()]

    class Watched(runs.Beat):
        """Records when it was called, and shows the progress."""

        def __call__(self) -> bool:
            beats.append(time.monotonic())
            if sys.stderr.isatty():
                print(f"\r{self.percent} % ", end="", file=sys.stderr, flush=True)
            return super().__call__()

    runs.Beat = Watched  # type: ignore[misc]
    began = time.process_time()
    runs.run_next(now=now)
    took, row = time.process_time() - began, type(row).objects.get()
    silent = max(later - before for before, later in pairwise(beats))
    print(
        f"played twice: {took:.0f} CPU s, {row.state}, {peak()} MiB at most, silent for {silent:.1f} s at most;"
        f" reading alone {2 * reading:.1f} CPU s",
        flush=True,
    )


def fill(workloads: int, days: int) -> None:
    """Creates workloads that were submitted in the last days and started at once."""
    from django.utils import timezone

    from bench._demand import made_up
    from portal.ids import new_id
    from quotas.models import Claim, ClaimState
    from tests import builders as make
    from workloads.models import Attempt, Image, Workload
    from workloads.replay.traces import demand_of, in_proportion

    rows = made_up(workloads, days)
    units = demand_of(rows, 0, days * 86400).units_in_use()
    guaranteed = in_proportion(units, round(sum(units.values()) / LOAD))
    cards = sum(guaranteed.values())
    pool = make.pool("a100", cards=cards, nodes=max(1, cards // ON_A_NODE))
    departments = {str(slug): make.department(slug) for slug in guaranteed}
    for slug, of_it in guaranteed.items():
        make.quota(departments[str(slug)], pool, of_it)
    begin, image = timezone.now() - dt.timedelta(days=days), Image.objects.create(name="python:3.11", title="Python")
    works, claims, attempts = [], [], []
    for row in rows:
        at = begin + dt.timedelta(seconds=row.submitted_at)
        ends = at + dt.timedelta(seconds=row.runtime)
        pods = max(1, row.units // ON_A_NODE)
        of_both = {
            "department": departments[row.department],
            "pool": pool,
            "units_per_pod": row.units // pods,
            "pods": pods,
        }
        works.append(Workload(kind="job", name="n", image=image, submitted_at=at, **of_both))
        claims.append(
            Claim(
                workload=works[-1].public_id,
                submitted_at=at,
                started_at=at,
                released_at=ends,
                state=ClaimState.RELEASED,
                **of_both,
            )
        )
        attempts.append(
            Attempt(
                workload=works[-1], claim=claims[-1], number=1, cluster=pool.group.cluster, run_name=f"w-{new_id()}",
                queued_at=at, started_at=at, finished_at=ends, outcome="succeeded",
            )
        )  # fmt: skip
    Workload.objects.bulk_create(works, batch_size=2_000)
    Claim.objects.bulk_create(claims, batch_size=2_000)
    Attempt.objects.bulk_create(attempts, batch_size=2_000)


def peak() -> int:
    """The peak memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main(sys.argv[1:])

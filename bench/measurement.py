"""What measuring use costs each minute: queries to Prometheus, a round of measuring, a round of idle policies, the meter.

    python -m bench.measurement [--pods 5000 --idle 500]

It runs in PostgreSQL. Every pod is a workload of one card. A server with prepared responses stands for Prometheus, so only the
portal's part is timed: parsing, attributing and writing. The baseline, in the same run, is a bare insert of as many rows.
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

HISTORY = 36  # buckets of each pod before the first round: three hours
BEGIN = dt.datetime(2026, 5, 4, 10, 0, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=5_000)
    parser.add_argument("--idle", type=int, default=500, help="how many of them do nothing")
    given = parser.parse_args(arguments)
    from bench import _database

    _database.start()
    from tests.workloads.measurement import bed

    mood = bed.Mood()
    with bed.serving(mood) as url:
        here = bed.world(url)
        runs = fill(here, given.pods, given.idle)
        mood.answer = (200, {}, bed.vector(*series(runs, given.idle)))
        print(f"{len(runs):,} pods, {given.idle} idle; an answer has {len(mood.answer[2]) / 1e6:.1f} MB", flush=True)
        measuring(mood, len(runs))
    looking(here)
    metering()


def fill(here: Any, pods: int, idle: int) -> list[str]:
    """Creates running workloads with measurements of the last hours. Returns the names of their runs."""
    from portal.ids import new_id
    from quotas.models import Claim, ClaimState, LedgerEntry
    from workloads.measurement.buckets import BUCKET
    from workloads.models import Attempt, Image, MeasuredBucket, MetricsSource, Workload

    began, image = BEGIN - dt.timedelta(days=1), Image.objects.create(name="python:3.11", title="Python")
    ids = [new_id() for _ in range(pods)]
    common = {"department": here.vision, "pool": here.pool, "kind": "job", "units_per_pod": 1}
    workloads = Workload.objects.bulk_create(
        Workload(public_id=one, name=f"train-{n}", image=image, state="running", attempts_made=1, **common)
        for n, one in enumerate(ids)
    )
    claims = Claim.objects.bulk_create(
        Claim(workload=one, name=f"train-{n}", state=ClaimState.HOLDING, started_at=began, **common)
        for n, one in enumerate(ids)
    )
    LedgerEntry.objects.bulk_create(
        LedgerEntry(claim=claim, pool=here.pool, department=here.vision, own=True, units=1, started_at=began)
        for claim in claims
    )
    attempts = Attempt.objects.bulk_create(
        Attempt(
            workload=workload, number=1, claim=claim, cluster=here.cluster, run_name=f"w-{workload.public_id}-1",
            namespace="gqp-vision", started_at=began, grace=30,
        )
        for workload, claim in zip(workloads, claims, strict=True)
    )  # fmt: skip
    for number in range(1, HISTORY + 1):
        MeasuredBucket.objects.bulk_create(
            MeasuredBucket(attempt=one, rank=0, at=BEGIN - number * BUCKET, gpu=0 if n < idle else 800, cards=1)
            for n, one in enumerate(attempts)
        )
    MetricsSource.objects.update(complete_until=BEGIN)
    return [attempt.run_name for attempt in attempts]


def series(runs: Sequence[str], idle: int) -> list[tuple[dict[str, str], str]]:
    """A series for the card of each pod, with the labels of the DCGM exporter."""
    return [
        (
            {
                "pod": run, "namespace": "gqp-vision", "container": "main", "Hostname": f"n{n // 8}",
                "UUID": f"GPU-{n:08}-aaaa-bbbb-cccc-dddddddddddd", "gpu": str(n % 8), "device": f"nvidia{n % 8}",
                "modelName": "NVIDIA A100-SXM4-80GB",
            },
            "0" if n < idle else "0.8",
        )
        for n, run in enumerate(runs)
    ]  # fmt: skip


def measuring(mood: Any, pods: int) -> None:
    """Measures the minutes of one bucket and one more: the fifth completes the bucket and sums its hour."""
    from workloads.measurement.sample import measure_all
    from workloads.models import MeasuredBucket

    rounds = []
    for minute in range(1, 7):
        before = len(mood.asked)
        now = BEGIN + minute * MINUTE
        rounds.append((*timed(lambda now=now: measure_all(now=now)), len(mood.asked) - before))  # type: ignore[misc]
    assert MeasuredBucket.objects.filter(at=BEGIN).count() == pods, "every pod was measured"
    rows = list(MeasuredBucket.objects.filter(at=BEGIN))
    MeasuredBucket.objects.filter(at=BEGIN).delete()
    bare = timed(lambda: MeasuredBucket.objects.bulk_create(rows))[0]
    for minute, (seconds, cpu, count, asked) in enumerate(rounds, 1):
        print(
            f"minute {minute}: {asked} queries to Prometheus, {count} to the database; {seconds:.2f} s, {cpu:.2f} CPU s;"
            f" the bare insert {bare:.2f} s: ratio {seconds / bare:.1f}",
            flush=True,
        )


def looking(here: Any) -> None:
    """Measures rounds of the idle policies: one that warns, and two without changes."""
    from portal.access import SYSTEM
    from workloads.idle.policies import set_policy
    from workloads.idle.rule import Action, Rule
    from workloads.models import IdleSpell
    from workloads.reconciler import idle_rounds

    rule = Rule(below=5, minutes=60, action=Action.STOP, countdown=15, keep=120)
    set_policy(actor=SYSTEM, pool=here.pool, department=None, rules={"job": rule}, expected_version=0)
    for minute, what in ((6, "that warns"), (7, "in which nothing is new"), (8, "in which nothing is new")):
        now = BEGIN + minute * MINUTE
        seconds, cpu, count = timed(lambda now=now: idle_rounds.review(now=now))  # type: ignore[misc]
        print(
            f"a round {what}: {seconds:.2f} s, {cpu:.2f} CPU s, {count} queries to the database,"
            f" {IdleSpell.objects.count()} warned",
            flush=True,
        )


def metering() -> None:
    """Measures a run of the meter, with a ledger entry for each pod."""
    from quotas.spending.metering import sum_hours

    now = BEGIN + 10 * MINUTE
    sum_hours(now=now)
    seconds, cpu, count = timed(lambda: sum_hours(now=now + MINUTE))
    print(f"a minute's run of the meter: {seconds:.2f} s, {cpu:.2f} CPU s, {count} queries to the database", flush=True)


def timed(act: Callable[[], Any]) -> tuple[float, float, int]:
    """(seconds, CPU seconds of this process, queries to the database) of a call."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    began, cpu = time.perf_counter(), time.process_time()
    with CaptureQueriesContext(connection) as queries:
        act()
    return time.perf_counter() - began, time.process_time() - cpu, len(queries)


if __name__ == "__main__":
    main(sys.argv[1:])

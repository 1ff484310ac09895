"""How long a whole planning pass (reading, deciding, writing) takes when one of many waiting claims starts and all others move up
by one.

    python bench/long_line.py [--running 400 --pending 4000]

It runs in PostgreSQL, with the scaling curve. The baseline in the same run changes the same rows one by one with the ORM, in one
transaction.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

PASSES = 3


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--running", type=int, default=400, help="one card each, in nodes of eight")
    parser.add_argument("--pending", type=int, default=4000)
    given = parser.parse_args(arguments)
    from bench import _database

    _database.start()
    from quotas.planning.run_pass import run_pass
    from tests import builders as make

    pool = make.pool("a100", cards=given.running, nodes=max(1, given.running // 8))
    department = make.department("vision")
    make.quota(department, pool, given.running)
    ask(department, pool, given.running)
    run_pass(group_id=pool.group_id)
    waiting = 0
    for part in (8, 4, 2, 1):
        ask(department, pool, given.pending // part - waiting)
        waiting = given.pending // part
        answered = seconds(lambda: run_pass(group_id=pool.group_id))
        moved = min(one_starts(pool) for _ in range(PASSES))
        ask(department, pool, PASSES)
        run_pass(group_id=pool.group_id)
        one_by_one = seconds(lambda: write_one_by_one(pool))
        print(
            f"{waiting:6} wait: {moved:6.2f} s for a pass that moves them up, {answered:6.2f} s for the first answers;"
            f" their rows changed one by one {one_by_one:6.2f} s: ratio {moved / one_by_one:.2f}",
            flush=True,
        )


def ask(department: Any, pool: Any, count: int) -> None:
    """Creates `count` claims for one card each, behind the existing ones."""
    from django.utils import timezone

    from portal.ids import new_id
    from quotas.models import Claim

    now = timezone.now()
    Claim.objects.bulk_create(
        Claim(department=department, pool=pool, name=f"claim-{n}", workload=new_id(), units_per_pod=1,
              submitted_at=now + dt.timedelta(milliseconds=n) - dt.timedelta(minutes=1))
        for n in range(count)
    )  # fmt: skip


def one_starts(pool: Any) -> float:
    """Ends a running claim; the first in the queue starts and the others move up. The seconds of that pass."""
    from django.utils import timezone

    from quotas.models import Claim, ClaimState
    from quotas.planning.claims import release
    from quotas.planning.run_pass import run_pass

    first = Claim.objects.filter(pool=pool, state=ClaimState.PENDING).order_by("position").first()
    release(Claim.objects.filter(pool=pool, state=ClaimState.HOLDING).order_by("pk")[0], now=timezone.now())
    took = seconds(lambda: run_pass(group_id=pool.group_id))
    assert first is not None
    first.refresh_from_db()
    assert first.state == ClaimState.HOLDING
    return took


def write_one_by_one(pool: Any) -> None:
    from django.db import transaction
    from django.db.models import F
    from django.utils import timezone

    from quotas.models import Claim, ClaimState

    waiting = Claim.objects.filter(pool=pool, state=ClaimState.PENDING).values_list("pk", flat=True)
    with transaction.atomic():
        for pk in waiting:
            Claim.objects.filter(pk=pk, state=ClaimState.PENDING).update(
                position=F("position"), answered_at=timezone.now()
            )


def seconds(act: Any) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    main(sys.argv[1:])

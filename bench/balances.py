"""What fairness over time adds to a planning pass, with the sums that the meter stores and without them.

    python bench/balances.py [--rows 1000000 --departments 60 --people 500 --running 2000]

It runs in PostgreSQL on the metered hours of usage_report. Half of the departments borrow from the others; each loan has three
ended ledger entries in the last two hours. The baseline, in the same run, is the same pass without fairness over time.
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

HALF_LIFE = 7 * 86400
TIMES = 15
CHANGED_HANDS = (
    "INSERT INTO quotas_ledgerentry (claim_id, pool_id, department_id, own, lender_id, units, started_at, ended_at)"
    " SELECT claim_id, pool_id, department_id, own, lender_id, units,"
    " %s::timestamptz - interval '1 minute' * (40 * n + 40), %s::timestamptz - interval '1 minute' * (40 * n)"
    " FROM quotas_ledgerentry, generate_series(0, 2) n WHERE NOT own"
)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="metered rows of work, one for each hour and key")
    parser.add_argument("--departments", type=int, default=60)
    parser.add_argument("--people", type=int, default=500)
    parser.add_argument("--running", type=int, default=2_000, help="one card each")
    given = parser.parse_args(arguments)
    from bench import _database

    _database.start()
    from bench.usage_report import fill

    fill(given.rows, given.departments, given.people, cards=given.running)
    from django.db import connection
    from django.utils import timezone

    from quotas.models import LedgerEntry, Pool, UsageHour
    from quotas.planning.run_pass import run_pass
    from quotas.spending.balances import balances, remember

    pool = Pool.objects.get()
    run(pool, given.departments, given.running)
    run_pass(group_id=pool.group_id)
    now = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(CHANGED_HANDS, [now, now])
        cursor.execute("ANALYZE quotas_ledgerentry")
    borrowed = LedgerEntry.objects.filter(own=False)
    print(
        f"{UsageHour.objects.count():,} metered hours of {given.departments} departments; {given.running:,} run, of which"
        f" {borrowed.filter(ended_at=None).count():,} borrow; {borrowed.count():,} entries of borrowed units"
    )

    def pass_() -> float:
        return cpu_ms(lambda: run_pass(group_id=pool.group_id))

    without = pass_()
    Pool.objects.update(balance_half_life=HALF_LIFE)
    forgotten = pass_()
    remembering = cpu_ms(lambda: remember(now=timezone.now()), times=1)
    passes = pass_()
    rows = [Pool.objects.get()]
    departments = [row.department for row in rows[0].quotas.select_related("department")]
    alone = cpu_ms(lambda: balances(rows, departments, now=timezone.now()))
    print(
        f"a pass: {without:.1f} CPU ms without fairness over time, {passes:.1f} with it (the balances alone {alone:.1f});"
        f" nothing remembered {forgotten:.1f}; to remember {remembering:.0f}",
        flush=True,
    )


def run(pool: Any, departments: int, running: int) -> None:
    """Creates running one-card workloads, twice as many in every second department, with equal guaranteed quotas."""
    from django.utils import timezone

    from portal.models import Department
    from quotas.models import Card, Claim, ClaimState, Quota

    rows = [*Department.objects.order_by("pk")]
    Quota.objects.bulk_create(Quota(department=row, pool=pool, guaranteed=running // departments) for row in rows)
    cards = Card.objects.filter(pool=pool).order_by("node", "index").values_list("node__name", "index")
    whose = [row for number, row in enumerate(rows) for _ in range(1 + number % 2)]
    since = timezone.now() - dt.timedelta(hours=3)
    Claim.objects.bulk_create(
        Claim(
            department=whose[number % len(whose)], pool=pool, name=f"claim-{number}", state=ClaimState.HOLDING,
            units_per_pod=1, submitted_at=since, queued_at=since, started_at=since, notice=600, grace=120,
            placement=[{"pod": 0, "node": node, "cards": [index]}],
        )
        for number, (node, index) in enumerate(cards)
    )  # fmt: skip


def cpu_ms(act: Callable[[], object], times: int = TIMES) -> float:
    """CPU milliseconds of this process, the least of `times` runs."""
    spent = []
    for _ in range(times):
        began = time.process_time()
        act()
        spent.append(time.process_time() - began)
    return min(spent) * 1000


if __name__ == "__main__":
    main(sys.argv[1:])

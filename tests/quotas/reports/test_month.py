"""A month of submissions, loans, recalls and ends, planned as in operation: report = ledger = metrics."""

from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict

import pytest
from django.utils import timezone

from portal.access import SYSTEM
from quotas import metrics
from quotas.models import Claim, ClaimState, LedgerEntry
from quotas.planning.claims import release
from quotas.planning.run_pass import run_pass
from quotas.reports.asked import Asked, month_of
from quotas.reports.queries import report
from quotas.spending.metering import seconds_within, sum_hours
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)
EVENTS = 150


def test_a_month_is_the_same_in_the_report_the_ledger_and_the_metrics() -> None:
    chance = random.Random("month")
    start, end = month_of(timezone.localdate() - dt.timedelta(days=40))
    pool = make.pool("a100", cards=8)
    departments = [make.department(name) for name in ("vision", "nlp", "bio")]
    for department, guaranteed in zip(departments, (4, 3, 0), strict=True):
        make.quota(department, pool, guaranteed)
    people = [make.user(name) for name in ("ann", "ben", "eve")]
    for at in range(EVENTS):
        now = start + (end - start) / EVENTS * (at + chance.random())
        for claim in Claim.objects.filter(state__in=[ClaimState.HOLDING, ClaimState.LEAVING]):
            if claim.state == ClaimState.LEAVING or chance.random() < 0.4:
                release(claim, now=now)
        number = chance.randrange(3)
        make.claim(
            departments[number], pool, chance.randint(1, 4), user=people[number], kind=chance.choice(["job", "notebook"]),
            workload=f"w{at}", submitted_at=now, queued_at=now,
        )  # fmt: skip
        run_pass(group_id=pool.group_id, now=now)
        if chance.random() < 0.7:
            sum_hours(now=now)
    sum_hours(now=end)
    summed = report(SYSTEM, Asked(start, end, ("department", "person", "kind")), now=end)
    lent = report(SYSTEM, Asked(start, end, ("department",)), now=end)

    ledger: dict[tuple[str, str], int] = defaultdict(int)
    for entry in LedgerEntry.objects.select_related("department", "lender"):
        spent = entry.units * seconds_within(entry.started_at, entry.ended_at, start, end)
        ledger[entry.department.slug, "own" if entry.own else "borrowed"] += spent
        if entry.lender:
            ledger[entry.lender.slug, "lent"] += spent
    reported: dict[tuple[str, str], int] = defaultdict(int)
    for row in summed.rows:
        reported[row.key[0], "own"] += row.own
        reported[row.key[0], "borrowed"] += row.borrowed
    for row in lent.rows:
        reported[row.key[0], "lent"] += row.lent or 0
    [used] = metrics.metered()
    measured = {
        (sample.labels["department"], sample.labels["share"]): int(sample.value)
        for sample in used.samples if sample.name.endswith("_total")
    }  # fmt: skip
    assert {key: spent for key, spent in ledger.items() if spent} == {
        key: spent for key, spent in reported.items() if spent
    }
    assert {key: spent for key, spent in measured.items() if spent} == {
        key: spent for key, spent in ledger.items() if spent
    }
    assert ledger["bio", "borrowed"]
    assert ledger["vision", "lent"]
    recalls = [(row.suffered, row.caused) for row in lent.totals]
    assert recalls[0][0] == recalls[0][1] > 0
    assert sum(row.starts for row in summed.rows) == Claim.objects.exclude(started_at=None).count() > EVENTS / 3

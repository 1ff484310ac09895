"""The demo's history: thirty busy days, within capacity, with the sums that metering itself would have stored."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter, defaultdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest
from django.conf import LazySettings
from django.db.models import Sum
from django.utils import timezone

from quotas.models import Claim, LedgerEntry, Pool, PoolGroup, Quota, UsageDay, UsageHour, WorkHour
from quotas.spending.metering import _sum_hour, hour_of
from workloads.demo.history import DAYS, fill
from workloads.demo.seed import seed
from workloads.models import Attempt, Workload
from workloads.replay.history import demand_of
from workloads.replay.simulation import Assumed

pytestmark = pytest.mark.django_db
HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)


@pytest.fixture(autouse=True)
def embedded(settings: LazySettings, tmp_path: Path) -> None:
    settings.DEBUG, settings.DATA_DIR = True, tmp_path


def test_history_fills_thirty_days_once_and_adds_up() -> None:
    seed()
    now = timezone.now()
    began = time.process_time()
    attempts = fill(now)
    took = time.process_time() - began
    assert attempts > 300
    assert took < 20  # seconds of one processor: the demo waits for them
    hours = UsageHour.objects.filter(hour__lt=hour_of(now))
    assert hours.values("hour").distinct().count() == DAYS * 24
    assert UsageDay.objects.values("day").distinct().count() >= DAYS - 1
    for pool in Pool.objects.all():
        days = hours.filter(pool=pool).exclude(own=0, borrowed=0).datetimes("hour", "day")
        assert len(days) >= DAYS - 4, pool.slug
        capacity = pool.nominal * 3600
        for row in hours.filter(pool=pool).values("hour").annotate(used=Sum("own") + Sum("borrowed")):
            assert row["used"] <= capacity, (pool.slug, row)
    assert LedgerEntry.objects.filter(own=False, lender__isnull=False).exists()
    assert not LedgerEntry.objects.filter(ended_at=None).exists()
    assert not Claim.objects.exclude(state="released").exists()
    assert not Workload.objects.exclude(state="succeeded", finished_at__lte=now).exists()
    assert Attempt.objects.count() == attempts > Workload.objects.filter(reclaims=0).count()
    assert not Attempt.objects.filter(removed_at=None).exists(), "the cluster has none of them"
    ends = Counter(Workload.objects.values_list("finished_at", flat=True))
    assert max(ends.values()) < 5, "workloads do not all end at the end of the history"
    assert fill(now) == 0


def test_departments_never_borrow_beyond_their_limit_or_with_idle_guarantee() -> None:
    """At any time in thirty days. A recalled workload occupies its units until it has left, but is no longer charged."""
    seed()
    fill(timezone.now())
    quotas = {(row.department_id, row.pool_id): row for row in Quota.objects.all()}
    saving = dt.timedelta(seconds=Assumed().saving)
    left = dict(Attempt.objects.filter(outcome="recalled").values_list("claim", "removed_at"))
    changes: dict[tuple[int, int], list[tuple[dt.datetime, str, int]]] = defaultdict(list)
    for row in LedgerEntry.objects.all():
        source = "own" if row.own else "borrowed"
        end = row.ended_at
        uncharged = min(end, max(row.started_at, left[row.claim_id] - saving)) if row.claim_id in left else end
        changes[row.department_id, row.pool_id] += [
            (row.started_at, source, row.units), (end, source, -row.units),
            (row.started_at, "charged", row.units), (uncharged, "charged", -row.units),
        ]  # fmt: skip
    borrowing = 0
    for key, of_one in changes.items():
        used, quota = {"own": 0, "borrowed": 0, "charged": 0}, quotas[key]
        most = None if quota.borrow_limit is None else quota.guaranteed + quota.borrow_limit
        for at, together in groupby(sorted(of_one), key=itemgetter(0)):
            for _at, source, units in together:
                used[source] += units
            assert used["own"] == min(quota.guaranteed, used["own"] + used["borrowed"]), (quota, at, used)
            assert most is None or used["charged"] <= most, (quota, at, used)
            borrowing += used["borrowed"] > 0
    assert borrowing > 100


def test_history_can_be_backtested_completely_and_is_listed_in_order() -> None:
    seed()
    now = timezone.now()
    fill(now)
    unknown = [demand_of(group, now - DAYS * DAY, now)[1] for group in PoolGroup.objects.all()]
    played = sum(len(demand_of(group, now - DAYS * DAY, now)[0].jobs) for group in PoolGroup.objects.all())
    assert played == Workload.objects.count() > 200
    assert set(unknown) == {0}
    jobs = [job for group in PoolGroup.objects.all() for job in demand_of(group, now - DAYS * DAY, now)[0].jobs]
    assert sum(job.checkpoint_every is None for job in jobs) > played / 2, "most save checkpoints"
    times = list(Workload.objects.order_by("public_id").values_list("submitted_at", flat=True))
    assert times == sorted(times)


def test_hours_equal_the_sums_of_metering() -> None:
    seed()
    now = timezone.now()
    fill(now)
    columns = ("department", "pool", "seconds", "guaranteed", "own", "borrowed", "lent")
    keys = ("department", "pool", "person", "kind", "own", "lender", "unit_seconds")
    for back in (5, 100, 400):
        hour = hour_of(now) - back * HOUR
        rows = set(UsageHour.objects.filter(hour=hour).values_list(*columns))
        work = set(WorkHour.objects.filter(hour=hour).values_list(*keys))
        _sum_hour(hour, until=hour + HOUR, closed=False)
        assert set(UsageHour.objects.filter(hour=hour).values_list(*columns)) == rows
        assert set(WorkHour.objects.filter(hour=hour).values_list(*keys)) == work

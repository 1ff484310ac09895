"""A report equals the ledger to the second, for random ledgers, periods, time zones, groupings and metering times."""

from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from portal.access import Actor
from portal.models import Department, Role
from quotas.models import Claim, ClaimState, LedgerEntry, Pool, PoolPrice, UsageDay, UsageHour, WorkDay, WorkHour
from quotas.reports.asked import GROUPS, Asked, midnight
from quotas.reports.queries import Report, report
from quotas.reports.sums import CENT, unit_seconds_an_hour
from quotas.spending import metering
from quotas.spending.metering import sum_hours
from tests import builders as make

pytestmark = pytest.mark.django_db
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Asuncion"]
# Four days in which clocks change in Berlin (2026-03-29 01:00 UTC); in the other zones they change at other times.
BEGIN = dt.datetime(2026, 3, 27, 21, 17, 3, 250_000, tzinfo=dt.UTC)
SECONDS = 4 * 86_400


def random_ledger(chance: random.Random) -> tuple[list[Department], list[Pool]]:
    lab = make.department("lab")
    departments = [
        lab,
        make.department("vision", parent=lab),
        make.department("nlp", parent=lab),
        make.department("bio"),
    ]
    pools = [
        make.pool("a100", cards=16),
        make.pool("t4", unit="MiB", units_per_card=15_360, cards=2),
        make.pool("mig", unit="slice", units_per_card=7, cards=2),
    ]
    for department in departments:
        for pool in pools:
            make.quota(department, pool, chance.randrange(4) * pool.units_per_card)
    people = [make.user("ann"), make.user("ben"), None]
    for _ in range(60):
        pool, department = chance.choice(pools), chance.choice(departments)
        claim = make.claim(
            department, pool, 1, ClaimState.RELEASED, user=chance.choice(people), workload="w",
            kind=chance.choice(["job", "notebook"]), released_at=BEGIN,
        )  # fmt: skip
        own = chance.random() < 0.5
        start = BEGIN + dt.timedelta(seconds=chance.uniform(-3_600, SECONDS))
        lasts = chance.choice([chance.uniform(0, 2), chance.uniform(0, 7_200), chance.uniform(0, 3 * 86_400)])
        LedgerEntry.objects.create(
            claim=claim, pool=pool, department=department, own=own, units=chance.randint(1, 9),
            lender=None if own else chance.choice([None, *(d for d in departments if d != department)]),
            started_at=start, ended_at=None if chance.random() < 0.1 else start + dt.timedelta(seconds=lasts),
        )  # fmt: skip
    return departments, pools


def random_prices(chance: random.Random, pools: list[Pool]) -> None:
    for pool in pools[:2]:
        since = BEGIN.replace(microsecond=0)
        for number in range(1, chance.randint(2, 4)):
            since += dt.timedelta(seconds=chance.choice([chance.randrange(90_000), 3_600, 86_400 + 43_200]))
            PoolPrice.objects.create(
                pool=pool, number=number, since=since, set_by="root", own=Decimal(chance.randrange(500)) / 100,
                borrowed=None if chance.random() < 0.2 else Decimal(chance.randrange(500)) / 1000,
            )  # fmt: skip


def run_meter(chance: random.Random, end: dt.datetime) -> None:
    """Runs the meter at irregular times, the last of them at the end or not."""
    now = BEGIN
    while now < end:
        sum_hours(now=now)
        now += dt.timedelta(seconds=chance.choice([60, 1_800, 5_400, 40_000]))
    if chance.random() < 0.5:
        sum_hours(now=end)


def computed_from_entries(
    query: Asked, entries: list[LedgerEntry], inside: set[int] | None
) -> dict[Any, dict[str, Any]]:
    """(key, unit) → own, borrowed and cost, computed from each ledger entry by itself in whole seconds."""
    found: dict[Any, dict[str, Any]] = defaultdict(
        lambda: {"own": 0, "borrowed": 0, "cost": Decimal(0), "priced": False}
    )
    history = list(PoolPrice.objects.order_by("since"))
    for entry in entries:
        claim = entry.claim
        if (inside is not None and entry.department_id not in inside) or (query.person not in ("", claim.person)):
            continue
        if query.pool not in (None, entry.pool) or query.kind not in ("", claim.kind):
            continue
        start = max(entry.started_at.replace(microsecond=0), query.start)
        end = min((entry.ended_at or query.end).replace(microsecond=0), query.end)
        if end <= start:
            continue
        values = {
            "department": entry.department.slug,
            "pool": entry.pool.slug,
            "person": claim.person,
            "kind": claim.kind,
        }
        row = found[tuple(values[name] for name in query.by), entry.pool.unit]
        row["own" if entry.own else "borrowed"] += entry.units * int((end - start).total_seconds())
        of_pool = [price for price in history if price.pool_id == entry.pool_id]
        for at, price in enumerate(of_pool):
            until = of_pool[at + 1].since if at + 1 < len(of_pool) else query.end
            lasts = int((min(end, until) - max(start, price.since)).total_seconds())
            value = price.own if entry.own else price.borrowed
            if lasts > 0 and value is not None:
                row["cost"] += value * entry.units * lasts / unit_seconds_an_hour(entry.pool.unit)
                row["priced"] = True
    return found


def random_query(chance: random.Random, departments: list[Department], pools: list[Pool], end: dt.datetime) -> Asked:
    zone = ZoneInfo(chance.choice(ZONES))
    with timezone.override(zone):
        first = dt.date(2026, 3, 27) + dt.timedelta(days=chance.randrange(3))
        days = [midnight(first), midnight(first + dt.timedelta(days=chance.randint(1, 3)))]
    moments = sorted(BEGIN.replace(microsecond=0) + dt.timedelta(seconds=chance.randrange(SECONDS)) for _ in range(2))
    start, until = chance.choice([days, moments])
    by = tuple(chance.sample(list(GROUPS), chance.randint(1, 4)))
    return Asked(
        start, min(until, end.replace(microsecond=0)), by,
        department=chance.choice([None, None, departments[0], departments[1]]),
        person=chance.choice(["", "", "ann"]), pool=chance.choice([None, None, *pools[:1]]), kind=chance.choice(["", "", "job"]),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_report_equals_the_ledger_to_the_second(seed: int) -> None:
    chance = random.Random(seed)
    departments, pools = random_ledger(chance)
    random_prices(chance, pools)
    end = BEGIN + dt.timedelta(seconds=SECONDS)
    run_meter(chance, end)
    entries = list(LedgerEntry.objects.select_related("claim", "pool", "department"))
    root = Actor(make.user("root", is_operator=True))
    for _ in range(25):
        query = random_query(chance, departments, pools, end)
        inside = None if query.department is None else set(query.department.with_teams())
        result, expected = report(root, query, now=end), computed_from_entries(query, entries, inside)
        found = {(row.key, row.unit): row for row in result.rows if row.allocated}
        assert {key: (row.own, row.borrowed) for key, row in found.items()} == {
            key: (row["own"], row["borrowed"]) for key, row in expected.items()
        }, query
        for key, row in expected.items():
            cost = found[key].exact_cost
            assert (cost is not None) == row["priced"], (key, query)
            assert cost is None or abs(cost - row["cost"]) < Decimal("1e-9"), (key, query)
        check_totals(result)


def check_totals(result: Report) -> None:
    for total in result.totals:
        rows = [row for row in result.rows if row.unit == total.unit]
        for column in ("own", "borrowed", "starts", "suffered", "caused"):
            assert getattr(total, column) == sum(getattr(row, column) for row in rows)
        for column in ("lent", "guaranteed", "idle"):
            known = [value for row in rows if (value := getattr(row, column)) is not None]
            assert getattr(total, column) == (sum(known) if known else None)
        costs = [row.cost for row in rows if row.cost is not None]
        assert (total.cost or 0) == sum(costs)
    assert {total.unit for total in result.totals} == {row.unit for row in result.rows}


@pytest.mark.parametrize("seed", range(4))
def test_lent_hours_equal_what_others_borrowed(seed: int) -> None:
    chance = random.Random(f"lent {seed}")
    departments, _pools = random_ledger(chance)
    end = BEGIN + dt.timedelta(seconds=SECONDS)
    run_meter(chance, end)
    root = Actor(make.user("root", is_operator=True))
    for _ in range(10):
        start, until = sorted(
            BEGIN.replace(microsecond=0) + dt.timedelta(seconds=chance.randrange(SECONDS)) for _ in "ab"
        )
        result = report(root, Asked(start, until, ("department", "pool")), now=end)
        expected: dict[tuple[str, str], int] = defaultdict(int)
        for entry in LedgerEntry.objects.filter(lender__isnull=False).select_related("lender", "pool"):
            spent = entry.units * metering.seconds_within(entry.started_at, entry.ended_at, start, until)
            if spent and entry.lender:
                expected[entry.lender.slug, entry.pool.slug] += spent
        assert {row.key: row.lent for row in result.rows if row.lent} == dict(expected)
        alone = report(root, Asked(start, until, ("pool",), department=departments[3]), now=end)
        assert sum(row.lent or 0 for row in alone.rows) == sum(n for (d, _), n in expected.items() if d == "bio")


def test_part_of_a_day_has_its_part_of_the_guarantee_and_the_rest_is_idle() -> None:
    pool, vision = make.pool("a100", cards=8), make.department("vision")
    make.quota(vision, pool, 6)
    begin = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    claim = make.claim(vision, pool, 2, ClaimState.RELEASED, user=make.user("ann"), kind="job")
    LedgerEntry.objects.create(
        claim=claim,
        pool=pool,
        department=vision,
        own=True,
        units=2,
        started_at=begin,
        ended_at=begin + dt.timedelta(hours=3),
    )
    sum_hours(now=begin)
    for hour in range(1, 60):
        sum_hours(now=begin + dt.timedelta(hours=hour, seconds=1))
    query = Asked(begin + dt.timedelta(minutes=90), begin + dt.timedelta(hours=13, minutes=30))
    [row] = report(Actor(None), query, now=begin + dt.timedelta(days=2)).rows
    assert (row.guaranteed, row.own, row.idle) == (6 * 12 * 3600, 2 * 5400, 6 * 12 * 3600 - 2 * 5400)
    [whole] = report(Actor(None), Asked(begin, begin + dt.timedelta(days=2)), now=begin + dt.timedelta(days=2)).rows
    assert whole.guaranteed == 6 * 48 * 3600


def test_quota_change_does_not_affect_past_hours() -> None:
    pool, vision = make.pool("a100", cards=8), make.department("vision")
    quota = make.quota(vision, pool, 6)
    begin = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    sum_hours(now=begin + dt.timedelta(minutes=59))
    sum_hours(now=begin + dt.timedelta(minutes=61))
    quota.guaranteed = 1
    quota.save()
    sum_hours(now=begin + dt.timedelta(minutes=70))
    assert UsageHour.objects.get(hour=begin).guaranteed == 6 * 3600


def test_entry_committed_after_its_hour_was_summed_still_counts() -> None:
    pool, vision = make.pool("a100", cards=8), make.department("vision")
    make.quota(vision, pool, 6)
    begin = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    sum_hours(now=begin + dt.timedelta(minutes=60, seconds=2))
    claim = make.claim(vision, pool, 1, ClaimState.HOLDING, started_at=begin)
    late = begin + dt.timedelta(minutes=59, seconds=58)
    LedgerEntry.objects.create(claim=claim, pool=pool, department=vision, own=True, units=1, started_at=late)
    sum_hours(now=begin + dt.timedelta(minutes=62))
    assert UsageHour.objects.get(hour=begin, department=vision).own == 2
    assert WorkHour.objects.get(hour=begin).unit_seconds == 2


def test_work_of_a_deleted_account_keeps_counting_under_its_name() -> None:
    pool, vision, ann = make.pool("a100"), make.department("vision"), make.user("ann")
    make.member(vision, Role.MEMBER, "owner")
    make.holding(vision, pool, own=1, user=ann, kind="job")
    ann.delete()
    now = timezone.now()
    sum_hours(now=now)
    result = report(Actor(None), Asked(now - dt.timedelta(minutes=30), now, ("person",)), now=now)
    assert [row.key for row in result.rows if row.own] == [("ann",)]


class Killed(BaseException):
    """Simulates kill -9: nothing catches it."""


@pytest.mark.parametrize("table", [UsageHour, WorkHour, UsageDay, WorkDay])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_meter_can_be_killed_at_any_write(table: Any, nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random("killed")
    random_ledger(chance)
    remaining, end = [nth], BEGIN + dt.timedelta(days=3, hours=12)
    write = table.objects.bulk_create

    def killed(*rows: Any, **more: Any) -> Any:
        remaining[0] -= 1
        if remaining[0] == 0:
            raise Killed
        return write(*rows, **more)

    monkeypatch.setattr(table.objects, "bulk_create", killed)
    with pytest.raises(Killed):
        sum_hours(now=end)
    monkeypatch.undo()
    sum_hours(now=end)
    root = Actor(None)
    query = Asked(BEGIN.replace(microsecond=0), end.replace(microsecond=0), ("person", "kind"))
    expected = computed_from_entries(
        query, list(LedgerEntry.objects.select_related("claim", "pool", "department")), None
    )
    found = {(row.key, row.unit): (row.own, row.borrowed) for row in report(root, query, now=end).rows if row.allocated}
    assert found == {key: (row["own"], row["borrowed"]) for key, row in expected.items()}


def test_hours_of_work_add_up_to_the_usage_hours_of_departments() -> None:
    random_ledger(random.Random(7))
    sum_hours(now=BEGIN + dt.timedelta(days=2))
    for row in UsageHour.objects.all():
        work = WorkHour.objects.filter(hour=row.hour, pool=row.pool)
        mine = work.filter(department=row.department)
        assert row.own == sum(mine.filter(own=True).values_list("unit_seconds", flat=True))
        assert row.borrowed == sum(mine.filter(own=False).values_list("unit_seconds", flat=True))
        assert row.lent == sum(work.filter(lender=row.department).values_list("unit_seconds", flat=True))


def test_costs_are_rounded_once_per_row(django_assert_max_num_queries: Any) -> None:
    pool, now = make.pool("a100"), timezone.now().replace(microsecond=0)
    PoolPrice.objects.create(pool=pool, number=1, own=Decimal("0.335"), borrowed=None, since=now - dt.timedelta(days=1),
                             set_by="root")  # fmt: skip
    for name in ("ann", "ben"):
        make.holding(make.department(), pool, own=1, user=make.user(name), started_at=now - dt.timedelta(hours=1))
    query = Asked(now - dt.timedelta(hours=1), now, ("person",))
    with django_assert_max_num_queries(16):
        result = report(Actor(None), query, now=now)
    assert [row.cost for row in result.rows] == [Decimal("0.34"), Decimal("0.34")]
    assert result.totals[0].cost == Decimal("0.68") == 2 * result.rows[0].cost.quantize(CENT)  # type: ignore[union-attr]
    assert Claim.objects.count() == 2

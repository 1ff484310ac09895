"""How much of a budget is used, in GPU-hours. The figures are the same as in reports, to the second.

A budget's period is a calendar month, or its term, in the installation's time zone. What is used is computed on each request;
`remember` keeps the sum of the final hours with the budget, so that little is left to add.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from django.db.models import Q, Sum
from django.utils import timezone

from portal.models import Department
from portal.text.zones import zone_of
from quotas.engine import types as e
from quotas.models import Budget, BudgetAction, BudgetCounts, Pool
from quotas.spending.cover import Span
from quotas.spending.metering import whole_second
from quotas.spending.source import final_until, metered, of_ledger, period_column, spans_of

WARN = Fraction(80, 100)
"""The share of the limit at which people are warned."""
HOUR = 3600


# Periods --------------------------------------------------------------------------------------------------------------


def period_of(budget: Budget, now: dt.datetime) -> Span | None:
    """The period that contains `now`, up to the beginning of the next one; None if the term is not running."""
    zone = zone_of("")
    today = timezone.localdate(now, zone)
    if budget.starts_on is None or budget.ends_on is None:
        return month_of(now)
    elif budget.starts_on <= today <= budget.ends_on:
        first, after = budget.starts_on, budget.ends_on + dt.timedelta(days=1)
    else:
        return None
    return _midnight(first, zone), _midnight(after, zone)


def month_of(now: dt.datetime) -> Span:
    """The calendar month in the installation's time zone."""
    zone = zone_of("")
    first = timezone.localdate(now, zone).replace(day=1)
    return _midnight(first, zone), _midnight((first + dt.timedelta(days=31)).replace(day=1), zone)


def _midnight(day: dt.date, zone: dt.tzinfo) -> dt.datetime:
    return dt.datetime.combine(day, dt.time(), zone).astimezone(dt.UTC)


# What is used ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spent:
    """What is used of a budget in its current period. `unit_seconds` is by pool id."""

    budget: Budget
    start: dt.datetime
    resets_at: dt.datetime
    unit_seconds: Mapping[int, int]
    seconds: Fraction  # of whole cards

    @property
    def hours(self) -> float:
        """GPU-hours."""
        return float(self.seconds / HOUR)

    @property
    def whole_hours(self) -> int:
        """GPU-hours, rounded down."""
        return int(self.seconds / HOUR)

    @property
    def share(self) -> Fraction:
        return self.seconds / (self.budget.hours * HOUR)

    @property
    def is_used_up(self) -> bool:
        return self.share >= 1

    @property
    def is_near(self) -> bool:
        """Whether so much is used that people are warned."""
        return self.share >= WARN


class Tree:
    """The tree of departments, built from rows that the caller has read already, or else from the database."""

    def __init__(self, departments: Iterable[Department] | None = None) -> None:
        rows = Department.objects.values_list("pk", "parent_id") if departments is None else None
        pairs = rows if rows is not None else [(row.pk, row.parent_id) for row in departments or ()]
        self.children: dict[int | None, list[int]] = defaultdict(list)
        for pk, parent in pairs:
            self.children[parent].append(pk)

    def below(self, department: int) -> list[int]:
        """The department and all below it, sorted."""
        subtree, left = list[int](), [department]
        while left:
            subtree.append(pk := left.pop())
            left += self.children[pk]
        return sorted(subtree)


@dataclass(slots=True)
class Tally:
    """The sum to compute for one budget: `sums` has the unit-seconds by pool until `since`; later use must be added."""

    budget: Budget
    span: Span
    departments: list[int]
    since: dt.datetime
    sums: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    @classmethod
    def of(cls, budget: Budget, span: Span, tree: Tree, until: dt.datetime, *, remembered: bool) -> Tally:
        departments, known = tree.below(budget.department_id), budget.counted if remembered else {}
        tally = cls(budget, span, departments, span[0])
        if known and known["from"] == span[0].isoformat() and known["departments"] == departments:
            counted_until = dt.datetime.fromisoformat(known["until"])
            if counted_until <= until:
                tally.since = counted_until
                tally.sums.update({int(pool): seconds for pool, seconds in known["seconds"].items()})
        return tally

    def spent(self, pools: Mapping[int, int]) -> Spent:
        """The result. `pools`: pool id → units per card."""
        seconds = sum((Fraction(units, pools[pool]) for pool, units in self.sums.items()), Fraction(0))
        return Spent(self.budget, *self.span, dict(self.sums), seconds)


def spent_of(
    budgets: Iterable[Budget],
    *,
    now: dt.datetime,
    departments: Iterable[Department] | None = None,
    remembered: bool = True,
) -> list[Spent]:
    """What is used at `now` of each budget whose period is running. A constant number of queries; none without such a budget.
    `departments`: all of them, if the caller has read them. Each budget's `person` should be selected."""
    moment = whole_second(now)
    running = [(budget, span) for budget in budgets if (span := period_of(budget, moment)) is not None]
    if not running:
        return []
    tree = Tree(departments)
    tallies = [Tally.of(budget, span, tree, moment, remembered=remembered) for budget, span in running]
    _add_up(tallies, moment, now=now)
    per_card = dict(Pool.objects.values_list("pk", "units_per_card"))
    return [tally.spent(per_card) for tally in tallies]


def _add_up(tallies: list[Tally], until: dt.datetime, *, now: dt.datetime) -> None:
    """Add to each tally what was used from its `since` to `until`."""
    begins = sorted({tally.since for tally in tallies})
    by_department: dict[int, list[Tally]] = defaultdict(list)
    by_person: dict[tuple[int, str], list[Tally]] = defaultdict(list)
    for tally in tallies:
        person = tally.budget.person
        for department in tally.departments:
            if person is None:
                by_department[department].append(tally)
            else:
                by_person[department, person.username].append(tally)
    for values, at, spent in _used(tallies, begins, until, now=now):
        department, pool = values["department"], values["pool"]
        for tally in (*by_department[department], *by_person.get((department, values["person"]), ())):
            budget = tally.budget
            counts = budget.pool_id in (None, pool) and not (budget.counts == BudgetCounts.BORROWED and values["own"])
            if counts and begins[at] >= tally.since:
                tally.sums[pool] += spent


COLUMNS = {"department": "department_id", "person": "claim__person", "pool": "pool_id", "own": "own"}


def _used(
    tallies: list[Tally], begins: list[dt.datetime], until: dt.datetime, *, now: dt.datetime
) -> Iterator[tuple[dict[str, Any], int, int]]:
    """(values of COLUMNS, index into `begins` of the latest one before the use, unit-seconds)."""
    inside = {pk for tally in tallies for pk in tally.departments}
    cuts = begins[1:]
    spans = spans_of(begins[0], until, cuts, now=now)
    for rows, at in metered(spans):
        grouped = rows.filter(department__in=inside).annotate(period=period_column(cuts, at)).values(*COLUMNS, "period")
        for values in grouped.annotate(spent=Sum("unit_seconds")):
            yield values, values["period"], values["spent"]
    for span, values, spent in of_ledger(spans.rest, Q(department__in=inside), COLUMNS):
        yield values, bisect_right(cuts, span[0]), spent


# For planning ---------------------------------------------------------------------------------------------------------


def used_up(
    budgets: Iterable[Budget], *, now: dt.datetime, departments: Collection[Department]
) -> dict[int, tuple[e.SpentBudget, ...]]:
    """Department id → the used-up budgets that restrict its claims: its own and those of departments above it."""
    acting = [budget for budget in budgets if budget.action != BudgetAction.NOTHING]
    spent_up = [spent for spent in spent_of(acting, now=now, departments=departments) if spent.is_used_up]
    if not spent_up:  # as in nearly every pass
        return {}
    binding: dict[int, list[e.SpentBudget]] = defaultdict(list)
    tree, slugs = Tree(departments), {row.pk: row.slug for row in departments}
    for spent in spent_up:
        for pk in tree.below(spent.budget.department_id):
            binding[pk].append(for_engine(spent, slugs[spent.budget.department_id]))
    return {pk: tuple(rows) for pk, rows in binding.items()}


def for_engine(spent: Spent, department: str) -> e.SpentBudget:
    """`department`: the slug of the budget's department. Hours are rounded down: they are only shown, and a figure that changed
    every second would give each pass a different answer."""
    budget = spent.budget
    return e.SpentBudget(
        e.DepartmentId(department),
        budget.hours,
        spent.whole_hours,
        int(spent.resets_at.timestamp()),
        None if budget.person_id is None else str(budget.person_id),
        None if budget.pool is None else e.PoolId(budget.pool.slug),
        budget.action == BudgetAction.NO_BORROWING,
    )


# Kept sums ------------------------------------------------------------------------------------------------------------


def remember(*, now: dt.datetime) -> int:
    """Keep with each budget the sum of its final hours. Sums are recomputed from the beginning of the period, never incremented;
    a budget that is changed meanwhile is left for the next run. Returns the number of budgets updated."""
    final = final_until(now)
    if final is None:
        return 0
    tree, done = Tree(), 0
    tallies = []
    for budget in Budget.objects.select_related("person"):
        span = period_of(budget, now)
        if span is not None and span[0] < final:
            old = Tally.of(budget, span, tree, now, remembered=True)
            if old.since < final:
                tallies.append(Tally.of(budget, span, tree, now, remembered=False))
    if tallies:
        _add_up(tallies, final, now=now)
    for tally in tallies:
        counted = {
            "from": tally.span[0].isoformat(), "until": final.isoformat(), "departments": tally.departments,
            "seconds": {str(pool): seconds for pool, seconds in sorted(tally.sums.items())},
        }  # fmt: skip
        budget = tally.budget
        done += Budget.objects.filter(pk=budget.pk, version=budget.version).update(counted=counted)
    return done


# What to expect -------------------------------------------------------------------------------------------------------

RATE_OF = dt.timedelta(hours=24)
SHORTEST = dt.timedelta(hours=1)
"""A shorter time is not enough for a rate."""


def rates_of(spent: Iterable[Spent], *, now: dt.datetime) -> dict[int, Fraction]:
    """Budget id → the average number of cards in use that it counts, over the last 24 hours or the shorter time since its period
    began."""
    moment, tree = whole_second(now), Tree()
    tallies = []
    for each in spent:
        since = max(each.start, moment - RATE_OF)
        if moment - since >= SHORTEST:
            tally = Tally(each.budget, (since, each.resets_at), tree.below(each.budget.department_id), since)
            tallies.append(tally)
    if not tallies:
        return {}
    _add_up(tallies, moment, now=now)
    per_card = dict(Pool.objects.values_list("pk", "units_per_card"))
    return {
        tally.budget.pk: tally.spent(per_card).seconds / int((moment - tally.since).total_seconds())
        for tally in tallies
    }

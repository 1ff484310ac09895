"""Reports from the database, with a constant number of queries whatever the period and the grouping.

Whole days and hours are read from the meter's sums and the rest from the ledger, so every report agrees with the ledger to
the second. All work counts in departments that the reader owns, elsewhere only the reader's own.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.db.models import Case, Count, DateTimeField, F, Q, QuerySet, Sum, When, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from portal.access import Actor, Right
from portal.models import Department, User
from quotas.models import Claim, Decision, Pool, PoolPrice, UsageDay, UsageHour
from quotas.reports.asked import Asked
from quotas.reports.measured import fill_measured
from quotas.reports.sums import Price, Prices, Row, Table, idle, rank, totals, unit_seconds_an_hour
from quotas.spending.cover import HOUR, Cover
from quotas.spending.metering import seconds_within
from quotas.spending.source import any_of, metered, of_ledger, period_column, spans_of

FIELDS = {"department": "department_id", "person": "person", "pool": "pool_id", "kind": "kind"}
OF_DEPARTMENTS = {"department", "pool"}
"""Groups to which lending and guarantees apply: persons and kinds of workloads have none."""


@dataclass(slots=True)
class Report:
    asked: Asked
    rows: list[Row]
    totals: list[Row]  # one for each unit
    measured: bool  # whether any use was measured

    @property
    def priced(self) -> bool:
        return any(row.cost is not None for row in self.rows)

    @property
    def of_departments(self) -> bool:
        return any(row.guaranteed is not None or row.lent is not None for row in self.rows)


@dataclass
class Reader:
    """Which work counts in this report for this reader."""

    actor: Actor
    asked: Asked
    pools: dict[int, Pool] = field(default_factory=lambda: {pool.pk: pool for pool in Pool.objects.all()})

    @cached_property
    def tree(self) -> dict[int, tuple[int | None, str]]:
        return {pk: (parent, slug) for pk, parent, slug in Department.objects.values_list("pk", "parent", "slug")}

    @cached_property
    def inside(self) -> frozenset[int] | None:
        """Ids of the department that the report is filtered by, and of all below it; None: all."""
        if self.asked.department is None:
            return None
        children = defaultdict(list)
        for pk, (parent, _slug) in self.tree.items():
            children[parent].append(pk)
        subtree, left = set[int](), [self.asked.department.pk]
        while left:
            subtree.add(pk := left.pop())
            left += children[pk]
        return frozenset(subtree)

    @cached_property
    def owned(self) -> frozenset[int] | None:
        """Ids of the departments whose work counts as a whole; None: all."""
        if self.actor.sees_all:
            return self.inside
        rows = frozenset(self.actor.owned.values_list("pk", flat=True))
        return rows if self.inside is None else rows & self.inside

    @cached_property
    def lends(self) -> bool:
        """Whether the report has lending and guarantees."""
        narrowed = self.asked.person or self.asked.kind
        return not narrowed and set(self.asked.by) <= OF_DEPARTMENTS and self.owned != frozenset()

    def narrowed(self, **names: str) -> Q:
        """The condition on rows that count. `names`: lookups of department, person, kind and pool, if not these names."""
        at = {name: names.get(name, name) for name in FIELDS}
        allowed = Q() if self.owned is None else Q(**{f"{at['department']}__in": self.owned})
        if self.owned is not None and self.actor.user is not None and not self.actor.sees_all:
            own = Q(**{at["person"]: self.actor.user.username})
            if self.inside is not None:
                own &= Q(**{f"{at['department']}__in": self.inside})
            if self.actor.bound is not None:
                own &= Q(**{f"{at['department']}": self.actor.bound})
            if Right.SEE not in self.actor.scopes:
                own = Q(pk__in=[])
            allowed |= own
        if self.asked.person:
            allowed &= Q(**{at["person"]: self.asked.person})
        if self.asked.kind:
            allowed &= Q(**{at["kind"]: self.asked.kind})
        return allowed & self.of_pool(at["pool"])

    def of_pool(self, name: str = "pool") -> Q:
        return Q(**{name: self.asked.pool}) if self.asked.pool else Q()

    def key(self, values: dict[str, Any]) -> tuple[str, ...]:
        """The key of the line to which a row with these values (by the names of FIELDS) belongs."""
        words = []
        for name in self.asked.by:
            value = values[name]
            if name == "department":
                value = self.tree[value][1]
            elif name == "pool":
                value = self.pools[value].slug
            words.append(value)
        return tuple(words)


def report(actor: Actor, asked: Asked, *, now: dt.datetime | None = None) -> Report:
    """The report as far as the reader may see it."""
    now = now or timezone.now()
    asked = asked.until(now)
    reader, table = Reader(actor, asked), Table()
    prices = Prices(_history(asked), asked.start, asked.end)
    spans = spans_of(asked.start, asked.end, prices.cuts, now=now)
    own, lent = _work(reader, table, spans, prices)
    if reader.lends:
        _promised(reader, table, spans, own, lent)
    _waits(reader, table)
    _recalls(reader, table)
    measured = fill_measured(
        table, start=asked.start, end=asked.end, names=sorted({*asked.by, "department", "pool"}),
        condition=reader.narrowed(), pools=reader.pools, key=reader.key,
    )  # fmt: skip
    rows = table.sorted()
    sums = totals(rows)
    _waits_of_all(reader, sums)
    return Report(asked, rows, sums, measured)


def _history(asked: Asked) -> dict[int, list[Price]]:
    history: dict[int, list[Price]] = defaultdict(list)
    rows = PoolPrice.objects.filter(since__lt=asked.end).order_by("since", "number")
    for price in rows.filter(pool=asked.pool) if asked.pool else rows:
        history[price.pool_id].append(Price(price.since, price.own, price.borrowed))
    return history


# Own, borrowed, lent --------------------------------------------------------------------------------------------------

By = dict[tuple[int, int], int]  # (department, pool) → unit-seconds


def _work(reader: Reader, table: Table, spans: Cover, prices: Prices) -> tuple[By, By]:
    """Fill in use and cost. Returns the own use and the lending of each department in each pool."""
    own, lent = defaultdict[tuple[int, int], int](int), defaultdict[tuple[int, int], int](int)
    for values, period, spent in _used(reader, spans, prices):
        pool = reader.pools[values["pool"]]
        row = table.row(reader.key(values), pool.unit)
        row.add("own" if values["own"] else "borrowed", spent)
        own[values["department"], pool.pk] += spent if values["own"] else 0
        price = prices.of(pool.pk, period, own=values["own"])
        row.add("exact_cost", None if price is None else price * spent / unit_seconds_an_hour(pool.unit))
    for lender, of_pool, spent in _lent(reader, spans) if reader.lends else ():
        lent[lender, of_pool] += spent
    return own, lent


def _used(reader: Reader, spans: Cover, prices: Prices) -> Iterator[tuple[dict[str, Any], int, int]]:
    """(values of the row, period, unit-seconds)."""
    names = sorted({*reader.asked.by, "department", "pool", "own"})
    for rows, at in metered(spans):
        rows = rows.filter(reader.narrowed()).annotate(period=period_column(prices.cuts, at))
        for values in rows.values(*names, "period").annotate(spent=Sum("unit_seconds")):
            yield values, values["period"], values["spent"]
    columns = {
        "department": "department_id",
        "pool": "pool_id",
        "own": "own",
        "person": "claim__person",
        "kind": "claim__kind",
    }
    condition = reader.narrowed(person="claim__person", kind="claim__kind")
    for span, values, spent in of_ledger(spans.rest, condition, {name: columns[name] for name in names}):
        yield values, prices.period(span[0]), spent


def _lent(reader: Reader, spans: Cover) -> Iterator[tuple[int, int, int]]:
    """(lender, pool, unit-seconds)."""
    condition = reader.of_pool() & Q(lender__isnull=False)
    if reader.owned is not None:
        condition &= Q(lender__in=reader.owned)
    for rows, _at in metered(spans):
        yield from rows.filter(condition).values_list("lender", "pool").annotate(spent=Sum("unit_seconds"))
    for _span, values, spent in of_ledger(spans.rest, condition, {"lender": "lender_id", "pool": "pool_id"}):
        yield values["lender"], values["pool"], spent


# Guaranteed and idle --------------------------------------------------------------------------------------------------


def _promised(reader: Reader, table: Table, spans: Cover, own: By, lent: By) -> None:
    """Fill in what was guaranteed, lent and idle."""
    promised = defaultdict[tuple[int, int], int](int)
    condition = reader.of_pool()
    if reader.owned is not None:
        condition &= Q(department__in=reader.owned)
    for metered_rows, _at in metered(spans, UsageDay, UsageHour):
        sums = metered_rows.filter(condition).values_list("department", "pool").annotate(sum=Sum("guaranteed"))
        for department, pool, spent in sums:
            promised[department, pool] += spent
    if spans.rest:  # part of an hour has the same part of its guarantee
        parts = any_of(Q(hour__gt=begin - HOUR, hour__lt=end) for begin, end in spans.rest)
        rows = UsageHour.objects.filter(parts, guaranteed__gt=0, seconds__gt=0).filter(condition)
        for department, pool, hour, seconds, guaranteed in rows.values_list(
            "department", "pool", "hour", "seconds", "guaranteed"
        ):
            within_it = sum(seconds_within(hour, hour + HOUR, *span) for span in spans.rest)
            promised[department, pool] += guaranteed // seconds * within_it
    for department, pool in promised.keys() | lent.keys() | own.keys():
        key = (department, pool)
        if reader.owned is not None and department not in reader.owned:
            continue
        row = table.row(reader.key({"department": department, "pool": pool}), reader.pools[pool].unit)
        row.add("guaranteed", promised[key])
        row.add("lent", lent[key])
        row.add("idle", idle(promised[key], own[key], lent[key]))


# Waits and recalls ----------------------------------------------------------------------------------------------------


def _started(reader: Reader) -> QuerySet[Claim]:
    within = Q(started_at__gte=reader.asked.start, started_at__lt=reader.asked.end, pods__gt=0)
    return Claim.objects.order_by().filter(within).filter(reader.narrowed())


def _percentiles(claims: QuerySet[Claim], names: Collection[str]) -> Iterator[tuple[dict[str, Any], int, float, float]]:
    """(values, starts, median wait, 95th percentile) of each group and unit, in seconds: one query, ranked by the database."""
    by = [*names, "pool__unit"]
    ranked = claims.annotate(
        began=Case(When(queued_at__gt=F("started_at"), then=F("started_at")), default=F("queued_at"),
                   output_field=DateTimeField()),
    ).annotate(wait=F("started_at") - F("began"))  # fmt: skip
    ranked = ranked.annotate(
        count=Window(Count("pk"), partition_by=by),
        rank=Window(RowNumber(), partition_by=by, order_by=[F("wait"), F("pk")]),
    )
    chosen = Q(rank=(F("count") * 50 + 99) / 100) | Q(rank=(F("count") * 95 + 99) / 100)
    waits: dict[tuple[Any, ...], dict[int, float]] = defaultdict(dict)
    counts: dict[tuple[Any, ...], int] = {}
    for *values, count, number, wait in ranked.filter(chosen).values_list(*by, "count", "rank", "wait"):
        waits[tuple(values)][number] = wait.total_seconds()
        counts[tuple(values)] = count
    for group, by_rank in waits.items():
        count = counts[group]
        yield dict(zip(by, group, strict=True)), count, by_rank[rank(50, count)], by_rank[rank(95, count)]


def _waits(reader: Reader, table: Table) -> None:
    for values, count, median, long in _percentiles(_started(reader), list(reader.asked.by)):
        row = table.row(reader.key(values), values["pool__unit"])
        row.starts, row.median_wait, row.long_wait = count, median, long


def _waits_of_all(reader: Reader, sums: list[Row]) -> None:
    by_unit = {row.unit: row for row in sums}
    for values, _count, median, long in _percentiles(_started(reader), []):
        row = by_unit[values["pool__unit"]]
        row.median_wait, row.long_wait = median, long


def _recalls(reader: Reader, table: Table) -> None:
    """A recalled claim counts once as suffered by its own group, and once as caused by each group that it was recalled for."""
    recalls = Decision.victims.through.objects.filter(
        decision__kind="reclaim", decision__at__gte=reader.asked.start, decision__at__lt=reader.asked.end
    ).order_by()
    for column, path in (("suffered", "claim"), ("caused", "decision__claim")):
        at = {name: f"{path}__{name}" for name in FIELDS}
        rows = recalls.filter(reader.narrowed(**at)).values_list(
            *(at[name] for name in reader.asked.by), f"{path}__pool__unit"
        )
        for *values, unit, count in rows.annotate(count=Count("claim", distinct=True)):
            group = dict(zip(reader.asked.by, values, strict=True))
            table.row(reader.key(group), unit).add(column, count)


# Words ----------------------------------------------------------------------------------------------------------------


def names_of(rows: Iterable[Row], by: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Group → value → display name, for the values of these rows. Users whose account was deleted are missing."""
    values = {name: {row.key[at] for row in rows} for at, name in enumerate(by)}
    names: dict[str, dict[str, str]] = {}
    if "department" in values:
        names["department"] = dict(Department.objects.filter(slug__in=values["department"]).values_list("slug", "name"))
    if "pool" in values:
        names["pool"] = dict(Pool.objects.filter(slug__in=values["pool"]).values_list("slug", "name"))
    if "person" in values:
        people = User.objects.filter(username__in=values["person"])
        names["person"] = {user.username: user.label for user in people}
    return names

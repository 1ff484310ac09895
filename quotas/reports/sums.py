"""The arithmetic of reports. Pure: whole seconds, whole unit-seconds, and Decimal money.

Amounts of different units are never added up: each row has one unit, and each unit has its own total.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")

PER_HOUR = {"MiB": 1024, "percent": 100}
"""How many units make one of what hours are counted in, if more than one: GiB-hours, hours of a whole card."""


def unit_seconds_an_hour(unit: str) -> int:
    """Unit-seconds in one hour of a report: an hour of one card, replica, slice, GiB or 100 %."""
    return 3600 * PER_HOUR.get(unit, 1)


def hours(unit_seconds: int, unit: str) -> Decimal:
    return Decimal(unit_seconds) / unit_seconds_an_hour(unit)


# Prices ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Price:
    """The price of an hour, own and borrowed, since a time. None: no charge."""

    since: dt.datetime
    own: Decimal | None
    borrowed: Decimal | None


class Prices:
    """The prices of each pool in a span of time, which is cut into periods without a change."""

    def __init__(self, history: Mapping[int, Sequence[Price]], start: dt.datetime, end: dt.datetime) -> None:
        """`history`: pool id → its prices, oldest first."""
        self.history = history
        self.cuts = sorted(
            {price.since for prices in history.values() for price in prices if start < price.since < end}
        )
        self.begins = [start, *self.cuts]

    def period(self, moment: dt.datetime) -> int:
        return bisect_right(self.cuts, moment)

    def of(self, pool: int, period: int, *, own: bool) -> Decimal | None:
        """The price of an hour in a period; None: no charge."""
        prices = self.history.get(pool, ())
        valid = [price for price in prices if price.since <= self.begins[period]]
        return None if not valid else valid[-1].own if own else valid[-1].borrowed


# Rows -----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Row:
    """One line. `key`: the values of its groups; `unit`: the unit of its pools. Amounts are in unit-seconds.

    None means not applicable (persons lend nothing) or unknown, not zero. Waits are in seconds, from queued to started.
    """

    key: tuple[str, ...]
    unit: str
    own: int = 0
    borrowed: int = 0
    lent: int | None = None
    guaranteed: int | None = None
    idle: int | None = None
    measured: int | None = None  # the part of `covered` in which cards computed (quotas/reports/measured.py)
    covered: int | None = None  # the part of what was allocated that was measured
    starts: int = 0
    median_wait: float | None = None
    long_wait: float | None = None  # 95 of 100 waited no longer
    suffered: int = 0
    caused: int = 0
    exact_cost: Decimal | None = None

    @property
    def allocated(self) -> int:
        return self.own + self.borrowed

    @property
    def is_partly(self) -> bool:
        """Whether more than 5 % of what was allocated was not measured."""
        return self.covered is not None and self.covered < 0.95 * self.allocated

    @property
    def cost(self) -> Decimal | None:
        """The cost rounded to cents as on an invoice. Totals add up these rounded costs."""
        return None if self.exact_cost is None else self.exact_cost.quantize(CENT, ROUND_HALF_UP)

    def add(self, column: str, value: int | Decimal | None) -> None:
        """Add to a column. None adds nothing, so an unknown column stays unknown."""
        if value is not None:
            setattr(self, column, (getattr(self, column) or 0) + value)


@dataclass(slots=True)
class Table:
    rows: dict[tuple[tuple[str, ...], str], Row] = field(default_factory=dict)

    def row(self, key: tuple[str, ...], unit: str) -> Row:
        return self.rows.setdefault((key, unit), Row(key, unit))

    def sorted(self) -> list[Row]:
        """Rows by unit, cards first; within a unit, the largest use first."""
        return sorted(self.rows.values(), key=lambda row: (row.unit != "card", row.unit, -row.allocated, row.key))


SUMMED = ("own", "borrowed", "lent", "guaranteed", "idle", "measured", "covered", "starts", "suffered", "caused")


def totals(rows: Iterable[Row]) -> list[Row]:
    """One row for each unit, without waits, which cannot be added up: the caller fills them in."""
    table = Table()
    for row in rows:
        total = table.row((), row.unit)
        for column in SUMMED:
            total.add(column, getattr(row, column))
        total.add("exact_cost", row.cost)
    return table.sorted()


def idle(guaranteed: int, own: int, lent: int) -> int:
    """The part of a guarantee that nobody used. It would be negative if the guarantee was lowered meanwhile."""
    return max(0, guaranteed - own - lent)


def rank(percent: int, count: int) -> int:
    """The position, from 1, of this percentile among `count` sorted values, by nearest rank."""
    return max(1, -(-count * percent // 100))

"""The arithmetic of reports. Pure: whole seconds, whole unit-seconds, and Decimal money.

Amounts of different units are never added up: a row is of one unit, and every unit has its own total.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")

PER_HOUR = {"MiB": 1024, "percent": 100}
"""Units that are one of what an hour is counted in, where that is more than one: GiB-hours, hours of a whole card."""


def unit_seconds_an_hour(unit: str) -> int:
    """Unit-seconds that make one hour in which reports count: a card, replica, slice, GiB or 100 % for an hour."""
    return 3600 * PER_HOUR.get(unit, 1)


def hours(unit_seconds: int, unit: str) -> Decimal:
    return Decimal(unit_seconds) / unit_seconds_an_hour(unit)


# Prices ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Price:
    """Of an hour, from a time on. None: it has none."""

    since: dt.datetime
    own: Decimal | None
    borrowed: Decimal | None


class Prices:
    """The prices of each pool over a time, which is cut into periods without a change."""

    def __init__(self, history: Mapping[int, Sequence[Price]], start: dt.datetime, end: dt.datetime) -> None:
        """`history`: pool → its prices, oldest first."""
        self.history = history
        self.cuts = sorted(
            {price.since for prices in history.values() for price in prices if start < price.since < end}
        )
        self.begins = [start, *self.cuts]

    def period(self, moment: dt.datetime) -> int:
        return bisect_right(self.cuts, moment)

    def of(self, pool: int, period: int, *, own: bool) -> Decimal | None:
        """What an hour costs in a period."""
        prices = self.history.get(pool, ())
        valid = [price for price in prices if price.since <= self.begins[period]]
        return None if not valid else valid[-1].own if own else valid[-1].borrowed


# Rows -----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Row:
    """One line: `key` are the values it is grouped by, `unit` the pools' unit. Amounts in unit-seconds.

    None is not applicable (persons lend nothing) or not known, which is not zero. Waits in seconds, from queued to started.
    """

    key: tuple[str, ...]
    unit: str
    own: int = 0
    borrowed: int = 0
    lent: int | None = None
    guaranteed: int | None = None
    idle: int | None = None
    measured: int | None = None  # in which cards computed, of `covered` (quotas/reports/measured.py)
    covered: int | None = None  # of what was allocated, as far as it was measured
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
        """Whether some of what was allocated was not measured."""
        return self.covered is not None and self.covered < 0.95 * self.allocated

    @property
    def cost(self) -> Decimal | None:
        """Rounded as on an invoice: totals add up what the lines show."""
        return None if self.exact_cost is None else self.exact_cost.quantize(CENT, ROUND_HALF_UP)

    def add(self, column: str, value: int | Decimal | None) -> None:
        """Adds to a column; None adds nothing and leaves one that is not known as it is."""
        if value is not None:
            setattr(self, column, (getattr(self, column) or 0) + value)


@dataclass(slots=True)
class Table:
    rows: dict[tuple[tuple[str, ...], str], Row] = field(default_factory=dict)

    def row(self, key: tuple[str, ...], unit: str) -> Row:
        return self.rows.setdefault((key, unit), Row(key, unit))

    def sorted(self) -> list[Row]:
        """Unit by unit; within one, who used most first."""
        return sorted(self.rows.values(), key=lambda row: (row.unit != "card", row.unit, -row.allocated, row.key))


SUMMED = ("own", "borrowed", "lent", "guaranteed", "idle", "measured", "covered", "starts", "suffered", "caused")


def totals(rows: Iterable[Row]) -> list[Row]:
    """One row for each unit. Waits are not sums: whoever knows all of them fills those in."""
    table = Table()
    for row in rows:
        total = table.row((), row.unit)
        for column in SUMMED:
            total.add(column, getattr(row, column))
        total.add("exact_cost", row.cost)
    return table.sorted()


def idle(guaranteed: int, own: int, lent: int) -> int:
    """What nobody used of a guarantee. Not below zero where the guarantee was lowered meanwhile."""
    return max(0, guaranteed - own - lent)


def rank(percent: int, count: int) -> int:
    """Which of `count` sorted values is this percentile, by nearest rank, from 1."""
    return max(1, -(-count * percent // 100))

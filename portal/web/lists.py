"""Lists that people live in: what is searched, of which days, in which order, with which columns.

All of it is in the address (`q`, `from`, `to`, `sort`, `columns`, beside the filters of facets.py), so a link shows the same
list to everybody who may see its rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_date

from portal.web.facets import address

M = TypeVar("M", bound=Model)
LONGEST = 100  # letters that are searched for


@dataclass(frozen=True, slots=True)
class Column:
    """`order`: what it is sorted by; () cannot be sorted by. `fixed` ones cannot be hidden, `extra` ones are at first."""

    name: str
    label: str
    order: tuple[str, ...] = ()
    number: bool = False
    fixed: bool = False
    extra: bool = False


@dataclass(frozen=True, slots=True)
class Heading:
    """A column on this page. `sorts`: the address that sorts by it, the other way round if it does already."""

    column: Column
    is_shown: bool
    direction: str  # ascending, descending or ""
    sorts: str
    toggles: str


class ListState:
    """What the address asks of a list. What cannot be read is as if it were not there."""

    def __init__(self, query: QueryDict, columns: Sequence[Column], *, newest: str = "-pk") -> None:
        self.query, self.columns, self.newest = query, columns, newest
        self.words = query.get("q", "").replace("\0", "").strip()[:LONGEST]
        self.first, self.last = (_day(query.get(name, "")) for name in ("from", "to"))
        asked = {name for name in query.get("columns", "").split(",") if name}
        known = {column.name for column in columns}
        chosen = asked & known or {column.name for column in columns if not column.extra}
        self.shown = {column.name for column in columns if column.fixed or column.name in chosen}
        sort = query.get("sort", "")
        self.sorted_by = next((each for each in columns if each.order and each.name == sort.removeprefix("-")), None)
        self.is_descending = sort.startswith("-")

    @property
    def headings(self) -> list[Heading]:
        return [self._heading(column) for column in self.columns]

    @property
    def choices(self) -> list[Heading]:
        """Columns that can be hidden."""
        return [heading for heading in self.headings if not heading.column.fixed]

    @property
    def carried(self) -> list[tuple[str, str]]:
        """What a form for words and days has to take along."""
        return [(name, str(value)) for name, value in self.query.items() if name not in ("q", "from", "to", "page")]

    @property
    def is_narrowed(self) -> bool:
        return bool(self.words or self.first or self.last)

    def within(self, rows: QuerySet[M], moment: str) -> QuerySet[M]:
        """Those of the asked days, in the reader's zone."""
        if self.first:
            rows = rows.filter(**{f"{moment}__gte": _midnight(self.first)})
        if self.last and self.last < dt.date.max:
            rows = rows.filter(**{f"{moment}__lt": _midnight(self.last + dt.timedelta(days=1))})
        return rows

    def ordered(self, rows: QuerySet[M]) -> QuerySet[M]:
        """In the asked order; of equals, and where none is asked, the newest first."""
        if self.sorted_by is None:
            return rows.order_by(self.newest)
        sign = "-" if self.is_descending else ""
        return rows.order_by(*(f"{sign}{path}" for path in self.sorted_by.order), self.newest)

    def _heading(self, column: Column) -> Heading:
        is_this = column is self.sorted_by
        direction = ("descending" if self.is_descending else "ascending") if is_this else ""
        # Numbers and times begin with the largest: that is what one looks for.
        turned = not self.is_descending if is_this else column.number
        sorts = address(self.query, "sort", f"-{column.name}" if turned else column.name) if column.order else ""
        names = self.shown ^ {column.name}
        toggles = address(self.query, "columns", ",".join(each.name for each in self.columns if each.name in names))
        return Heading(column, column.name in self.shown, direction, sorts, toggles)


def _day(text: str) -> dt.date | None:
    try:
        return parse_date(text)
    except ValueError:  # 2026-02-31
        return None


def _midnight(day: dt.date) -> dt.datetime:
    zone: Any = timezone.get_current_timezone()
    return dt.datetime.combine(day, dt.time.min, tzinfo=zone)

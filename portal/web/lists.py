"""The large lists: their search, days, order and columns.

All of it is in the URL (`q`, `from`, `to`, `sort`, `columns`, and the filters of facets.py), so a link shows the same list to
everybody who may see its rows. With `format=csv` the URL returns all of its rows as CSV.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import Any, TypeVar

from django.core.paginator import Paginator
from django.db.models import F, Model, Q, QuerySet
from django.http import QueryDict, StreamingHttpResponse
from django.utils import timezone
from django.utils.dateparse import parse_date

from portal.web.facets import Filter, address, facet, narrow
from portal.web.spreadsheets import download

M = TypeVar("M", bound=Model)
LONGEST = 100  # characters of the search text
MOST_WORDS = 8
PER_PAGE = 50


@dataclass(frozen=True, slots=True)
class Column:
    """`order`: the fields to sort by; () if the list cannot be sorted by it. A `fixed` column cannot be hidden, an `extra` one
    is hidden by default. `gaps`: some rows have no value; these come last."""

    name: str
    label: str
    order: tuple[str, ...] = ()
    number: bool = False
    fixed: bool = False
    extra: bool = False
    gaps: bool = False


@dataclass(frozen=True, slots=True)
class Heading:
    """A column on this page. `sorts`: the URL that sorts by it, in reverse if the list is already sorted by it; `toggles`: the
    URL that shows or hides it."""

    column: Column
    is_shown: bool
    direction: str  # ascending, descending or ""
    sorts: str
    toggles: str


class ListState:
    """What the URL selects of a list. Invalid parameters are ignored.

    `searched`: the fields in which each word is searched (at the beginning for "^path"), or a function from a word to a Q;
    `moment`: the field that the days refer to; `default`: the order of equal rows, and without a chosen order; `shown_as`: the
    column, with "-" if it is descending, by which rows in that order are sorted as people see them.
    """

    def __init__(
        self,
        query: QueryDict,
        columns: Sequence[Column],
        *,
        searched: Sequence[str] | Callable[[str], Q],
        moment: str = "",
        filters: Sequence[Filter] = (),
        default: Sequence[str] = ("-pk",),
        shown_as: str = "",
    ) -> None:
        self.query, self.columns, self.default = query, columns, default
        self.searched = searched if callable(searched) else _anywhere(*searched)
        self.moment, self.filters = moment, filters
        self.words = query.get("q", "").replace("\0", "").strip()[:LONGEST]
        self.first, self.last = (_day(query.get(name, "")) for name in ("from", "to"))
        asked = {name for name in query.get("columns", "").split(",") if name}
        known = {column.name for column in columns}
        chosen = asked & known or {column.name for column in columns if not column.extra}
        self.shown = {column.name for column in columns if column.fixed or column.name in chosen}
        sortable = {column.name: column for column in columns if column.order}
        sort = query.get("sort", "")
        self.is_chosen = sort.removeprefix("-") in sortable
        if not self.is_chosen:
            sort = shown_as
        self.sorted_by = sortable.get(sort.removeprefix("-"))
        self.is_descending = sort.startswith("-")

    @property
    def headings(self) -> list[Heading]:
        return [self._heading(column) for column in self.columns]

    @cached_property
    def labels(self) -> dict[str, str]:
        """Column → label, which narrow screens show in each cell."""
        return {column.name: column.label for column in self.columns}

    @property
    def choices(self) -> list[Heading]:
        """Columns that can be hidden."""
        return [heading for heading in self.headings if not heading.column.fixed]

    @property
    def carried(self) -> list[tuple[str, str]]:
        """Parameters that the form for words and days must keep, as hidden fields."""
        names = ["sort", "columns", *(each.name for each in self.filters)]
        return [(name, str(self.query[name])) for name in names if self.query.get(name)]

    @property
    def moment_label(self) -> str:
        """The label of the column that the days refer to."""
        return next((each.label for each in self.columns if each.order == (self.moment,)), "")

    @property
    def is_narrowed(self) -> bool:
        return bool(self.words or self.first or self.last) or any(self.query.get(each.name) for each in self.filters)

    @property
    def is_sheet(self) -> bool:
        """Whether the URL requests CSV."""
        return self.query.get("format") == "csv"

    def context(self, rows: QuerySet[Any], *, above: Collection[Model] = ()) -> dict[str, Any]:
        """The context of list_tools.html, list_head.html and pager.html; `any`: whether there are rows at all. `above`: rows that
        the page has in a section of its own, so that the list does not repeat them; the filters count them."""
        matches = self.matching(rows)
        listed = self.chosen(rows)
        if above:
            listed = listed.exclude(pk__in=[row.pk for row in above])
        page = Paginator(listed, PER_PAGE).get_page(self.query.get("page"))
        offered = [each for each in self.filters if each.label]
        facets = [facet(self.query, matches, self.filters, each) for each in offered]
        return {"list": self, "page": page, "facets": facets, "any": bool(page.paginator.count) or rows.exists()}

    def sheet(self, name: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> StreamingHttpResponse:
        """The rows as streamed CSV; the file name has `name` and the time."""
        return download(f"{name}-{timezone.now():%Y%m%d-%H%M%S}.csv", columns, rows)

    def chosen(self, rows: QuerySet[M]) -> QuerySet[M]:
        """All rows that the URL selects, in its order."""
        return self._ordered(narrow(self.query, self.matching(rows), self.filters))

    def matching(self, rows: QuerySet[M]) -> QuerySet[M]:
        """The rows with every searched word, of the chosen days in the reader's time zone."""
        for word in self.words.split()[:MOST_WORDS]:
            rows = rows.filter(self.searched(word))
        if self.moment and self.first:
            rows = rows.filter(**{f"{self.moment}__gte": _midnight(self.first)})
        if self.moment and self.last and self.last < dt.date.max:
            rows = rows.filter(**{f"{self.moment}__lt": _midnight(self.last + dt.timedelta(days=1))})
        return rows

    def _ordered(self, rows: QuerySet[M]) -> QuerySet[M]:
        if self.sorted_by is None or not self.is_chosen:
            return rows.order_by(*self.default)
        last = {"nulls_last": True} if self.sorted_by.gaps else {}  # only if needed: an index sorts nulls differently
        paths = [F(path) for path in self.sorted_by.order]
        order: list[Any] = [path.desc(**last) if self.is_descending else path.asc(**last) for path in paths]
        return rows.order_by(*order, *self.default)

    def _heading(self, column: Column) -> Heading:
        is_this = column is self.sorted_by
        direction = ("descending" if self.is_descending else "ascending") if is_this else ""
        # Numbers begin with the largest, which are usually of interest.
        turned = not self.is_descending if is_this else column.number
        sorts = address(self.query, "sort", f"-{column.name}" if turned else column.name) if column.order else ""
        names = self.shown ^ {column.name}
        toggles = address(self.query, "columns", ",".join(each.name for each in self.columns if each.name in names))
        return Heading(column, column.name in self.shown, direction, sorts, toggles)


def _anywhere(*paths: str) -> Callable[[str], Q]:
    """A function from a word to the Q that finds it in one of these paths."""
    lookups = [f"{path[1:]}__istartswith" if path.startswith("^") else f"{path}__icontains" for path in paths]
    return lambda word: reduce(or_, (Q(**{lookup: word}) for lookup in lookups))


def _day(text: str) -> dt.date | None:
    try:
        return parse_date(text)
    except ValueError:  # 2026-02-31
        return None


def _midnight(day: dt.date) -> dt.datetime:
    zone: Any = timezone.get_current_timezone()
    return dt.datetime.combine(day, dt.time.min, tzinfo=zone)

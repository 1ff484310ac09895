"""Filters of lists that are kept in the URL, each choice with the number of rows that it would select."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, QuerySet
from django.http import QueryDict
from django.utils.translation import gettext as _


@dataclass(frozen=True)
class Filter:
    """`name` is the key in the query string, `path` the lookup to filter by, `labels` the labels of its values. Without a
    `label` the filter is not shown: only links use it."""

    name: str
    label: str
    path: str
    labels: Mapping[str, str] | Callable[[str], str] | None = None

    def called(self, value: str) -> str:
        if self.labels is None:
            return value
        return self.labels(value) if callable(self.labels) else self.labels.get(value, value)


def department_filter(rows: QuerySet[Any], path: str = "department") -> Filter:
    """A filter by department. It has only names of departments in the rows: a URL with another slug must not reveal that one's
    name."""
    names = rows.order_by().exclude(**{path: None}).values_list(f"{path}__slug", f"{path}__name").distinct()
    return Filter("department", _("Department"), f"{path}__slug", dict(names))


@dataclass(frozen=True)
class Choice:
    value: str
    label: str
    count: int
    selected: bool
    url: str


@dataclass(frozen=True)
class Facet:
    name: str
    label: str
    choices: tuple[Choice, ...]
    selected: str
    clear_url: str

    @property
    def selected_label(self) -> str:
        return next((choice.label for choice in self.choices if choice.selected), self.selected)


def narrow(
    query: QueryDict, rows: QuerySet[Any], filters: Sequence[Filter], skip: Filter | None = None
) -> QuerySet[Any]:
    """The rows that the filters in the URL select; the filter `skip` is not applied."""
    return rows.filter(**{each.path: query[each.name] for each in filters if each is not skip and query.get(each.name)})


def facet(query: QueryDict, rows: QuerySet[Any], filters: Sequence[Filter], this: Filter) -> Facet:
    """One filter with its choices, counted over the rows that all *other* filters select."""
    counts = narrow(query, rows, filters, skip=this).order_by().values_list(this.path).annotate(n=Count("pk"))
    selected = query.get(this.name, "")
    rows_by_value = {str(value): count for value, count in counts if value not in (None, "")}
    if selected:
        rows_by_value.setdefault(selected, 0)
    choices = tuple(
        Choice(value, this.called(value), count, value == selected, address(query, this.name, value))
        for value, count in sorted(rows_by_value.items(), key=lambda item: (-item[1], item[0]))
    )
    return Facet(this.name, this.label, choices, selected, address(query, this.name, ""))


def address(query: QueryDict, name: str, value: str) -> str:
    """The same URL with this filter set (or cleared), on the first page."""
    new = query.copy()
    new.pop("page", None)
    new.pop(name, None)
    if value:
        new[name] = value
    return "?" + new.urlencode()

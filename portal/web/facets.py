"""List filters that are kept in the address, each choice with the number of rows it would leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, QuerySet
from django.http import HttpRequest, QueryDict


@dataclass(frozen=True)
class Choice:
    value: str
    label: str
    count: int
    selected: bool
    url: str


@dataclass(frozen=True)
class Facet:
    """`name` is the key in the address, `path` the lookup it filters by."""

    name: str
    label: str
    choices: tuple[Choice, ...]
    selected: str
    clear_url: str

    @property
    def selected_label(self) -> str:
        return next((choice.label for choice in self.choices if choice.selected), self.selected)


def narrow(request: HttpRequest, rows: QuerySet[Any], paths: Mapping[str, str], skip: str = "") -> QuerySet[Any]:
    """The rows that the address's filters select; the filter `skip` is not applied."""
    chosen = {path: request.GET[name] for name, path in paths.items() if name != skip and request.GET.get(name)}
    return rows.filter(**chosen)


def facet(
    request: HttpRequest,
    rows: QuerySet[Any],
    paths: Mapping[str, str],
    name: str,
    label: str,
    labels: Mapping[str, str] | None = None,
) -> Facet:
    """One filter with its choices, counted over the rows that all *other* filters select; `labels`: value → label."""
    path = paths[name]
    counts = narrow(request, rows, paths, skip=name).order_by().values_list(path).annotate(n=Count("pk"))
    selected = request.GET.get(name, "")
    rows_by_value = {str(value): count for value, count in counts if value not in (None, "")}
    if selected:
        rows_by_value.setdefault(selected, 0)
    words = labels or {}
    choices = tuple(
        Choice(value, words.get(value, value), count, value == selected, address(request.GET, name, value))
        for value, count in sorted(rows_by_value.items(), key=lambda item: (-item[1], item[0]))
    )
    return Facet(name, label, choices, selected, address(request.GET, name, ""))


def address(query: QueryDict, name: str, value: str) -> str:
    """The same address with this filter set (or cleared), on the first page."""
    new = query.copy()
    new.pop("page", None)
    new.pop(name, None)
    if value:
        new[name] = value
    return "?" + new.urlencode()

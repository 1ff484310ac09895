"""Queries that Django compiles once for each thread: to compile one costs several times what it costs to run it.

Nothing is kept of what a query finds; each call asks the database. For the few reads that every submission makes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet
from django.db.models.query import ModelIterable

M = TypeVar("M", bound=Model)
VALUE = "\x01the value\x01"  # stands in the compiled query for what is asked for
NUMBER = -8_404_404_404  # the same where a number is asked for


class Prepared(Generic[M]):
    """`rows` gives the query for one value, its only varying parameter: a text, or a number where NUMBER stands for it."""

    def __init__(self, rows: Callable[[Any], QuerySet[M]], stands: str | int = VALUE) -> None:
        self._rows, self._stands, self._own = rows, stands, threading.local()

    def all(self, value: str | int) -> list[M]:
        own = self._own.__dict__
        if not own:
            rows = self._rows(self._stands)
            compiler = rows.query.get_compiler(rows.db)
            own["sql"], own["params"] = compiler.as_sql()
            own["compiler"], own["rows"] = compiler, rows
            rows.query.get_compiler = lambda *_, **__: compiler  # type: ignore[method-assign]
        params = tuple(value if each == self._stands else each for each in own["params"])
        own["compiler"].as_sql = lambda *_, **__: (own["sql"], params)
        return list(ModelIterable(own["rows"]))

    def first(self, value: str | int) -> M | None:
        return next(iter(self.all(value)), None)

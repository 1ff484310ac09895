"""Statements that Django compiles once, because compiling them takes several times as long as running them.

Results are not cached: each call queries the database. For the few reads and inserts that every submission makes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.db.models import Field, Model, QuerySet
from django.db.models.expressions import DatabaseDefault
from django.db.models.query import ModelIterable
from django.db.models.sql import InsertQuery

M = TypeVar("M", bound=Model)
VALUE = "\x01the value\x01"  # placeholder for the value in the compiled query
NUMBER = -8_404_404_404  # the same for a number


class Prepared(Generic[M]):
    """`rows` builds the query for one value, its only parameter: a text, or a number if `placeholder` is NUMBER."""

    def __init__(self, rows: Callable[[Any], QuerySet[M]], placeholder: str | int = VALUE) -> None:
        self._rows, self._placeholder, self._own = rows, placeholder, threading.local()

    def all(self, value: str | int) -> list[M]:
        own = self._own.__dict__
        if not own:
            rows = self._rows(self._placeholder)
            compiler = rows.query.get_compiler(rows.db)
            own["sql"], own["params"] = compiler.as_sql()
            own["compiler"], own["rows"] = compiler, rows
            rows.query.get_compiler = lambda *_, **__: compiler  # type: ignore[method-assign]
        params = tuple(value if each == self._placeholder else each for each in own["params"])
        own["compiler"].as_sql = lambda *_, **__: (own["sql"], params)
        return list(ModelIterable(own["rows"]))

    def first(self, value: str | int) -> M | None:
        return next(iter(self.all(value)), None)


def insert(row: M) -> M:
    """Inserts the row and sets its key, as `row.save(force_insert=True)` would, but without signals. Database
    defaults are supported, other expressions are not. Raises what `save` raises."""
    made = _insertion(type(row))
    if made is None:
        row.save(force_insert=True)
        return row
    sql, given, returned = made
    own = connections[DEFAULT_DB_ALIAS]  # not the proxy, which would be called for every column
    values = [field.get_db_prep_save(field.pre_save(row, add=True), own) for field in given]
    with transaction.mark_for_rollback_on_error(own.alias), own.cursor() as cursor:
        cursor.execute(sql, values)
        for field, value in zip(returned, cursor.fetchone(), strict=True):
            setattr(row, field.attname, value)
    row._state.adding, row._state.db = False, own.alias
    return row


def write_each(
    model: type[Model], names: Sequence[str], rows: Iterable[tuple[Any, Sequence[Any]]], **still: Any
) -> None:
    """Updates the fields `names` of each row, given as (key, values), if its fields in `still` still have these values.

    One statement for all rows: compiling the one of `bulk_update` takes longer than as many single updates.
    """
    field_of = {field.name: field for field in model._meta.local_concrete_fields}
    own, quote = connections[DEFAULT_DB_ALIAS], connection.ops.quote_name
    columns = {name: f"{quote(field.column or name)} = %s" for name, field in field_of.items()}
    given = ", ".join(columns[name] for name in names)
    where = " AND ".join(columns[name] for name in ("id", *still))

    def prepared(values: Iterable[tuple[str, Any]]) -> Iterator[Any]:
        return (field_of[name].get_db_prep_save(value, own) for name, value in values)

    known = [*prepared(still.items())]
    parameters = [(*prepared(zip(names, values, strict=True)), key, *known) for key, values in rows]
    if parameters:
        with transaction.mark_for_rollback_on_error(own.alias), own.cursor() as cursor:
            cursor.executemany(f"UPDATE {quote(model._meta.db_table)} SET {given} WHERE {where}", parameters)  # noqa: S608


@cache
def _insertion(model: type[Model]) -> tuple[str, list[Field[Any, Any]], list[Field[Any, Any]]] | None:
    """(statement, fields given, fields returned by the database); None if the database cannot return any."""
    if not connection.features.can_return_columns_from_insert:
        return None
    blank = model()
    fields = [field for field in model._meta.local_concrete_fields if field is not model._meta.auto_field]
    query = InsertQuery(model)
    query.insert_values(fields, [blank], raw=True)
    compiler = query.get_compiler(connection.alias)
    compiler.returning_fields = model._meta.db_returning_fields
    ((sql, _),) = compiler.as_sql()
    given = [field for field in fields if not isinstance(getattr(blank, field.attname), DatabaseDefault)]
    return sql, given, compiler.returning_fields

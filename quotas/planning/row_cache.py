"""Rows that read as they did: what this process has made of rows before is used again while they are unchanged.

A pass over a large pool reads the same thousands of cards and running claims each time, and makes the same objects of them.
PostgreSQL stamps every version of a row: `xmin` is the transaction that wrote it, `ctid` where that version lies; no two
versions of a row share both. So a statement under the lock asks for the stamps alone, and only rows whose stamp is new are
read. Nothing has to tell this process of a change, and nobody can forget to.

SQLite has no such stamps: there every row is read each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import connection
from django.db.models import CharField, Func, Model, QuerySet
from django.db.models.expressions import RawSQL

from portal.garbage import nothing_collected

T = TypeVar("T")
Stamp = tuple[Any, ...]
Column = str | Func

Question = tuple[str, Sequence[Any]]
"""A statement and its parameters."""
WANTED: list[int] = []
"""Stands in a question for the keys that are asked for."""


@dataclass(frozen=True, slots=True)
class Questions:
    """For the rows of one query: their stamps, all that is read of them, and of some. Compiled once: Django takes longer
    for that than PostgreSQL for the answer."""

    stamps: Question
    all: Question
    some: Question


def questions(rows: QuerySet[Any], columns: Sequence[Column]) -> Questions | None:
    """None where the database has no stamps."""
    if connection.vendor != "postgresql":
        return None
    table = connection.ops.quote_name(rows.model._meta.db_table)
    stamp = RawSQL(f"{table}.xmin::text || {table}.ctid::text", (), CharField())  # noqa: S611 no input in it
    some = rows.extra(where=[f"{table}.id = ANY(%s)"], params=[WANTED])  # noqa: S610 no input in it
    asked = (
        rows.annotate(stamp=stamp).values_list("pk", "stamp"),
        *(r.values_list("pk", *columns) for r in (rows, some)),
    )
    return Questions(*(query.query.sql_with_params() for query in asked))


def answer(question: Question, wanted: Sequence[int] = ()) -> list[tuple[Any, ...]]:
    statement, parameters = question
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(wanted) if each is WANTED else each for each in parameters])
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def digest(*rows: tuple[type[Model], str, Sequence[int]]) -> Stamp | None:
    """One stamp for all rows of some tables that a condition (SQL with its numbers) names, in one query: of each table,
    how many they are and the sum of 64-bit hashes of their keys with their stamps."""
    if connection.vendor != "postgresql":
        return None
    parts: list[str] = []
    numbers: list[int] = []
    for model, condition, given in rows:
        table = connection.ops.quote_name(model._meta.db_table)
        each = "hashtextextended(id::text || xmin::text || ctid::text, 0)"
        parts.append(f"(SELECT count(*)::text || ' ' || sum({each})::text FROM {table} WHERE {condition})")  # noqa: S608
        numbers += given
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(parts)}", numbers)
        return tuple(cursor.fetchone())


MANY = 1000


class Rows:
    """What was made of the rows of one query, each beside its stamp. Safe to share between threads: replaced, not changed.

    `context` is what else the objects depend on: when it differs, nothing is known, not even that the query is the same."""

    def __init__(self) -> None:
        self._known: tuple[Stamp, dict[int, tuple[str, Any]]] = ((), {})
        self._asked: tuple[Stamp, Questions | None] | None = None

    def read(
        self, rows: QuerySet[Any], context: Stamp, columns: Sequence[Column], make: Callable[..., T]
    ) -> tuple[T, ...]:
        """`make` gets a row's primary key and `columns`, as the driver gives them, and gives the object."""
        if self._asked is None or self._asked[0] != context:
            self._asked = context, questions(rows, columns)
        asked = self._asked[1]
        if asked is None:
            return tuple(make(*row) for row in rows.values_list("pk", *columns))
        now: dict[int, str] = dict(answer(asked.stamps))
        before, known = self._known
        if before != context:
            known = {}
        new = [pk for pk, stamp in now.items() if pk not in known or known[pk][0] != stamp]
        with nothing_collected():  # a list of thousands of keys costs more than the rows that it leaves out
            found = answer(asked.all) if len(new) >= MANY else answer(asked.some, new) if new else []
            fresh: dict[int, T] = {row[0]: make(*row) for row in found}
        # One that was freed between the two statements is in neither; a row changed between them keeps its old stamp,
        # and is so read again the next time.
        kept = {pk: (stamp, fresh[pk] if pk in fresh else known[pk][1]) for pk, stamp in now.items()
                if pk in fresh or (pk in known and known[pk][0] == stamp)}  # fmt: skip
        self._known = (context, kept)
        return tuple(made for _, made in kept.values())


class Whole:
    """What was made of several tables together, beside their digest."""

    def __init__(self) -> None:
        self._known: tuple[Stamp, Any] | None = None

    def read(self, stamp: Stamp | None, make: Callable[[], T]) -> T:
        if stamp is None:
            return make()
        if self._known is None or self._known[0] != stamp:
            self._known = (stamp, make())
        made: T = self._known[1]
        return made

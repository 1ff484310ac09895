"""Rows that read as they did: what this process has made of rows before is used again while they are unchanged.

A pass over a large pool reads the same thousands of cards and running claims each time, and makes the same objects of them.
PostgreSQL stamps every version of a row: `xmin` is the transaction that wrote it, `ctid` where that version lies; no two
versions of a row share both. So a statement under the lock asks for the stamps alone, and only rows whose stamp is new are
read. Nothing has to tell this process of a change, and nobody can forget to.

SQLite has no such stamps: there every row is read each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from django.db import connection
from django.db.models import CharField, Model, QuerySet
from django.db.models.expressions import RawSQL

from portal.garbage import nothing_collected

T = TypeVar("T")
Stamp = tuple[Any, ...]


Question = tuple[str, Sequence[Any]]
"""A statement and its parameters."""


def stamps(question: Question) -> dict[int, str]:
    """Primary key → stamp, in the order of the query."""
    with connection.cursor() as cursor:
        cursor.execute(*question)
        return dict(cursor.fetchall())


def asking_for_stamps(rows: QuerySet[Any]) -> Question | None:
    """For the stamps of the rows; None where the database has none."""
    if connection.vendor != "postgresql":
        return None
    table = connection.ops.quote_name(rows.model._meta.db_table)
    stamp = RawSQL(f"{table}.xmin::text || {table}.ctid::text", (), CharField())  # noqa: S611 no input in it
    statement, parameters = rows.annotate(stamp=stamp).values_list("pk", "stamp").query.sql_with_params()
    return statement, parameters


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
        self._question: tuple[Stamp, Question | None] | None = None  # compiled once for each context

    def read(
        self, rows: QuerySet[Any], context: Stamp, make: Callable[[QuerySet[Any]], Iterable[tuple[int, T]]]
    ) -> tuple[T, ...]:
        """`make` gives primary key and object for each row of a query, in its order."""
        if self._question is None or self._question[0] != context:
            self._question = context, asking_for_stamps(rows)
        question = self._question[1]
        if question is None:
            return tuple(made for _, made in make(rows))
        now = stamps(question)
        before, known = self._known
        if before != context:
            known = {}
        new = [pk for pk, stamp in now.items() if pk not in known or known[pk][0] != stamp]
        if len(new) < MANY:
            fresh: Mapping[int, T] = dict(make(rows.filter(pk__in=new))) if new else {}
        else:  # a list of thousands of keys costs more than the rows that it leaves out
            with nothing_collected():
                fresh = dict(make(rows))
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

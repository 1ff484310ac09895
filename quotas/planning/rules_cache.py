"""A cache in each process of a pool group's rules: pools, departments, quotas, caps, budgets, nodes and cards.

They are thousands of rows that hardly ever change, and reading them would take two thirds of an idle pass (docs/adr/0041).
PostgreSQL stamps every version of a row: `xmin` is the transaction that wrote it, `ctid` its location; no two versions of a row
share both. So a pass queries, under the lock and in one statement, a hash of all stamps, and reads the rows again only if the
hash has changed. No code has to notify this process of a change.

SQLite has no such stamps, so there the rows are read each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Model

T = TypeVar("T")
Stamp = tuple[Any, ...]
_last: dict[int, tuple[Stamp, Any]] = {}  # by the pool group's id; replaced, never changed, so threads may share it


def stamp(*rows: tuple[type[Model], str, Sequence[int]]) -> Stamp | None:
    """One stamp for selected rows of several tables, in one query. `rows`: (model, SQL condition, its parameters).

    It has, for each table, the number of rows and the sum of 64-bit hashes of their keys and row stamps. None if the
    database has no row stamps.
    """
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


def read(group_id: int, stamp: Stamp | None, make: Callable[[], T]) -> T:
    """The result of `make`, or the last one for this group if the stamp is unchanged."""
    if stamp is None:
        return make()
    last = _last.get(group_id)
    if last is None or last[0] != stamp:
        last = _last[group_id] = stamp, make()
    made: T = last[1]
    return made

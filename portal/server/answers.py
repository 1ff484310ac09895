"""Counts of responses by status and response time. Each process counts its own and adds them every few seconds to rows that all
processes share, from which `/metrics` reads them. The last seconds of a killed process are lost."""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from django.db import DatabaseError, close_old_connections, connection
from prometheus_client.core import HistogramMetricFamily

from portal.models import AnswerCount

BOUNDS = (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
"""Upper bounds of the buckets, in ms."""
LONGER = 2**31 - 1  # upper bound of the last bucket
KINDS, STATUSES = ("api", "page"), ("2xx", "3xx", "4xx", "5xx")
EVERY = 5.0  # s
NOT_COUNTED = ("/static/", "/metrics", "/livez", "/readyz")

Key = tuple[str, str, int]  # kind, status, bound
_counts: Counter[Key] = Counter()
_milliseconds: Counter[Key] = Counter()
_guard = threading.Lock()


def count(path: str, status: int, seconds: float) -> None:
    """Counts one response. `seconds`: until it began, so that streams count without their duration."""
    if path.startswith(NOT_COUNTED):
        return
    milliseconds = round(seconds * 1000)
    place = bisect_left(BOUNDS, milliseconds)
    key = ("api" if path.startswith("/api/") else "page"), f"{status // 100}xx", (*BOUNDS, LONGER)[place]
    with _guard:
        _counts[key] += 1
        _milliseconds[key] += milliseconds


def keep() -> None:
    """Adds the counts since the last call to the rows, in one statement; if that fails, the next call adds them."""
    with _guard:
        counts, milliseconds = Counter(_counts), Counter(_milliseconds)
        _counts.clear()
        _milliseconds.clear()
    if not counts:
        return
    rows = [(*key, counts[key], milliseconds[key]) for key in sorted(counts)]  # in a fixed order, against deadlocks
    table = AnswerCount._meta.db_table
    places = ", ".join(["(%s, %s, %s, %s, %s)"] * len(rows))
    statement = (
        f"INSERT INTO {table} (kind, status, bound, answers, milliseconds) VALUES {places} "  # noqa: S608
        f"ON CONFLICT (kind, status, bound) DO UPDATE SET answers = {table}.answers + EXCLUDED.answers, "
        f"milliseconds = {table}.milliseconds + EXCLUDED.milliseconds"
    )
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement, [value for row in rows for value in row])
    except DatabaseError:
        with _guard:
            _counts.update(counts)
            _milliseconds.update(milliseconds)
    finally:
        close_old_connections()


def keep_regularly() -> None:
    """Calls `keep` every few seconds: the body of one thread in each web process."""
    while True:
        time.sleep(EVERY)
        keep()


def collect() -> Iterator[HistogramMetricFamily]:
    times = HistogramMetricFamily(
        "portal_request_seconds", "From a request's arrival until its answer began.", labels=["kind", "status"]
    )
    rows = list(AnswerCount.objects.values_list("kind", "status", "bound", "answers", "milliseconds"))
    # Also those that never occurred: a rate needs the 0 before the 1.
    for kind, status in itertools.product(KINDS, STATUSES):
        answers = {bound: each for k, s, bound, each, _ in rows if (k, s) == (kind, status)}
        total, buckets = 0, []
        for bound in (*BOUNDS, LONGER):
            total += answers.get(bound, 0)
            buckets.append(("+Inf" if bound == LONGER else str(bound / 1000), total))
        spent = sum(each for k, s, _, _, each in rows if (k, s) == (kind, status))
        times.add_metric([kind, status], buckets, spent / 1000)
    yield times

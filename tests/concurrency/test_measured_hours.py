"""Two rounds sum the same hour at once, and it is stored once. A negative control shows that this is due to the lock."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet

from tests.workloads.measurement import bed
from workloads.measurement import buckets
from workloads.measurement.series import Use
from workloads.models import Attempt, MeasuredWork, MetricsSource

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer"),
]
BEGIN = dt.datetime(2026, 5, 4, 10, 0, tzinfo=dt.UTC)


@pytest.mark.parametrize(("locked", "rows"), [(True, 1), (False, 2)])
def test_hour_that_is_summed_twice_at_once_is_stored_once(
    monkeypatch: pytest.MonkeyPatch, locked: bool, rows: int
) -> None:
    world = bed.world("http://127.0.0.1:9")
    job = bed.attempt(world)
    Attempt.objects.update(started_at=BEGIN)
    buckets.write(buckets.Window(BEGIN, BEGIN + buckets.BUCKET, whole=True), {(job.pk, 0): Use(gpu=0.5)})
    barrier = threading.Barrier(2)
    insert = QuerySet.bulk_create

    def meet(query: Any, *args: Any, **kwargs: Any) -> Any:
        """Between deleting and inserting each waits for the other, which a lock keeps out."""
        if query.model is MeasuredWork:
            with contextlib.suppress(threading.BrokenBarrierError):
                barrier.wait(2)
        return insert(query, *args, **kwargs)

    monkeypatch.setattr(QuerySet, "bulk_create", meet)
    if not locked:
        lock = QuerySet.select_for_update
        monkeypatch.setattr(
            QuerySet, "select_for_update", lambda q, **how: q if q.model is MetricsSource else lock(q, **how)
        )

    def work() -> None:
        buckets.sum_hour(world.cluster, BEGIN)
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert MeasuredWork.objects.count() == rows

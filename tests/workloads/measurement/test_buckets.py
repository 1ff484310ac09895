"""Buckets of five minutes and hours: requested and summed again at any time, any number of times, after a kill at any point."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from portal.access import SYSTEM
from portal.models import Role
from quotas.models import Claim, LedgerEntry
from quotas.reports.asked import Asked
from quotas.reports.queries import report
from tests import builders as make
from tests.workloads.measurement import bed
from tests.workloads.measurement.bed import World
from workloads.measurement import buckets, sample
from workloads.measurement.buckets import BUCKET, HOUR, Window, floor, windows_due
from workloads.measurement.series import Use, parse
from workloads.models import Attempt, MeasuredBucket, MeasuredHour, MetricsSource

BEGIN = dt.datetime(2026, 5, 4, 10, 0, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


def window(number: int) -> Window:
    return Window(BEGIN + number * BUCKET, BEGIN + (number + 1) * BUCKET, whole=True)


@pytest.fixture
def here(db: None) -> World:
    return bed.world("http://127.0.0.1:9")


@pytest.fixture
def job(here: World) -> Attempt:
    created = bed.attempt(here)
    Attempt.objects.update(started_at=BEGIN - HOUR)
    created.refresh_from_db()
    return created


@given(st.integers(0, 600), st.lists(st.integers(1, 400), min_size=1, max_size=40))
def test_every_bucket_of_the_last_hour_is_completed_whatever_the_pauses(first: int, pauses: list[int]) -> None:
    """With any pauses (in seconds) between rounds: two windows a round at most, and none is left out."""
    now = BEGIN + dt.timedelta(seconds=first)
    complete: dt.datetime | None = floor(now, BUCKET)
    done = []
    for pause in pauses:
        now += dt.timedelta(seconds=pause)
        due = windows_due(complete, now)
        assert 1 <= len(due) <= 2
        assert all(each.begin < each.end for each in due)
        assert now - due[-1].end < dt.timedelta(seconds=30), "the last window reaches the present"
        whole = [each for each in due if each.whole]
        assert all(each.end <= now and each.seconds == 300 for each in whole)
        done += [each.begin for each in whole]
        complete = max([each.end for each in whole], default=complete)
    assert done == sorted(set(done))
    assert all(later - earlier == BUCKET for earlier, later in pairwise(done))


def test_one_hour_is_caught_up_after_a_long_pause() -> None:
    due = windows_due(BEGIN - 5 * HOUR, BEGIN + MINUTE)
    assert [each.begin for each in due] == [BEGIN - HOUR, BEGIN]


def test_bucket_written_twice_is_stored_once_with_the_newer_values(job: Attempt) -> None:
    buckets.write(window(0), {(job.pk, 0): Use(gpu=0.25, gpu_mib=5.4, cards=1)})
    buckets.write(window(0), {(job.pk, 0): Use(gpu=0.5, cpu_milli=1500.0)})
    row = MeasuredBucket.objects.get()
    assert (row.gpu, row.gpu_mib, row.cpu_milli, row.cards) == (500, None, 1500, 0)


def test_hour_is_the_mean_of_its_measured_buckets(here: World, job: Attempt) -> None:
    for number, gpu in enumerate([0.2, None, 0.4]):
        buckets.write(window(number), {(job.pk, 0): Use(gpu=gpu, memory_mib=100.0 * number, cards=2)})
    buckets.write(window(12), {(job.pk, 0): Use(gpu=1.0)})
    for _ in range(2):
        assert buckets.sum_hour(here.cluster, BEGIN) == 1
    row = MeasuredHour.objects.get()
    assert (row.at, row.gpu, row.seconds, row.memory_mib, row.cards, row.watts) == (BEGIN, 300, 600, 100, 2, None)


def answers(monkeypatch: pytest.MonkeyPatch, job: Attempt, share: str = "0.5") -> list[Any]:
    """A Prometheus with always the same values; returns the windows that are requested."""
    windows: list[Any] = []

    def ask(_server: object, queries: Any, *, at: dt.datetime, seconds: int) -> dict[str, Any]:
        windows.append((at, seconds))
        labels = {"pod": job.run_name, "namespace": "gqp-vision", "UUID": "GPU-1"}
        return {query.key: parse(bed.vector((labels, share))) for query in queries}

    monkeypatch.setattr(sample, "ask", ask)
    return windows


@pytest.mark.parametrize("killed_at", ["write", "sum_hour", "update"])
def test_next_rounds_complete_what_a_killed_round_has_left(
    here: World, job: Attempt, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    answers(monkeypatch, job)
    MetricsSource.objects.update(complete_until=BEGIN)

    class Killed(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    now = BEGIN + 60 * MINUTE
    for minute in range(1, 60):
        sample.measure_all(now=BEGIN + minute * MINUTE)
    with monkeypatch.context() as patch:
        if killed_at == "update":
            patch.setattr("django.db.models.query.QuerySet.update", die)
        else:
            patch.setattr(buckets, killed_at, die)
        with pytest.raises(Killed):
            sample.measure_all(now=now)
    for minute in (61, 62):
        sample.measure_all(now=BEGIN + minute * MINUTE)
    hour = MeasuredHour.objects.get(at=BEGIN)
    assert (hour.gpu, hour.seconds) == (500, 3600)
    assert MeasuredBucket.objects.filter(at__lt=BEGIN + HOUR).count() == 12


def test_only_attempts_that_ran_in_a_window_are_measured_in_it(
    here: World, job: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query looks back two minutes at least; an attempt that ended before the bucket began is not in it."""
    windows = answers(monkeypatch, job)
    Attempt.objects.update(finished_at=BEGIN - dt.timedelta(seconds=10))
    MetricsSource.objects.update(complete_until=BEGIN)
    sample.measure_all(now=BEGIN + MINUTE)
    assert windows == [(BEGIN + MINUTE, 60)]
    assert not MeasuredBucket.objects.exists()


def test_attempt_of_another_cluster_is_not_measured(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = bed.attempt(here)
    other = make.cluster("other")
    Attempt.objects.filter(pk=job.pk).update(cluster=other)
    answers(monkeypatch, job)
    MetricsSource.objects.update(complete_until=floor(job.started_at or BEGIN, BUCKET) + HOUR)
    sample.measure_all(now=(job.started_at or BEGIN) + HOUR + 2 * MINUTE)
    assert not MeasuredBucket.objects.exists()


def test_only_rows_past_their_retention_are_deleted(job: Attempt) -> None:
    for model, age in ((MeasuredBucket, buckets.BUCKETS_KEPT), (MeasuredHour, buckets.HOURS_KEPT)):
        for beyond in (-HOUR, HOUR):
            model._default_manager.create(attempt=job, rank=0, at=BEGIN - age - beyond, gpu=1)
    for deleted in (1, 0):
        counts = buckets.forget_old(now=BEGIN)
        assert (counts["buckets"], counts["hours"]) == (deleted, deleted)
    assert MeasuredBucket.objects.get().at > BEGIN - buckets.BUCKETS_KEPT
    assert MeasuredHour.objects.get().at > BEGIN - buckets.HOURS_KEPT


def test_measurements_are_deleted_with_their_attempt(job: Attempt) -> None:
    buckets.write(window(0), {(job.pk, 0): Use(gpu=0.5)})
    job.delete()
    assert not MeasuredBucket.objects.exists()


def test_bucket_counts_with_the_minutes_that_the_attempt_ran_in_it(here: World, job: Attempt) -> None:
    Attempt.objects.update(finished_at=BEGIN + 6 * MINUTE)
    buckets.write(window(0), {(job.pk, 0): Use(gpu=0.2)})
    buckets.write(window(1), {(job.pk, 0): Use(gpu=0.8)})
    buckets.sum_hour(here.cluster, BEGIN)
    row = MeasuredHour.objects.get()
    assert (row.seconds, row.gpu) == (360, 300)  # (5 × 0.2 + 1 × 0.8) / 6


def test_reports_show_the_measured_use_of_allocated_time(here: World, job: Attempt) -> None:
    """By department, person and pool; partly measured work is marked, and unmeasured work is None, not 0."""
    other = make.pool("other", cards=2)
    unmeasured = make.holding(here.vision, other, own=2, person="mia", kind="job", started_at=BEGIN)
    Claim.objects.filter(pk=job.claim_id).update(person="alice", kind="job", started_at=BEGIN)
    LedgerEntry.objects.filter(claim=job.claim_id).update(started_at=BEGIN, ended_at=BEGIN + HOUR)
    LedgerEntry.objects.filter(claim=unmeasured).update(started_at=BEGIN, ended_at=BEGIN + HOUR)
    for number in range(6):
        buckets.write(window(number), {(job.pk, 0): Use(gpu=0.25)})
    for _ in range(2):
        buckets.sum_hour(here.cluster, BEGIN)
    for group, key in (("department", "vision"), ("person", "alice"), ("pool", "a100")):
        result = report(SYSTEM, Asked(BEGIN, BEGIN + HOUR, (group,)))
        rows = {row.key[0]: row for row in result.rows}
        assert (rows[key].measured, rows[key].covered) == (450, 1800), group
        assert rows[key].is_partly
        assert result.totals[0].measured == 450
    by_person = {row.key[0]: row for row in report(SYSTEM, Asked(BEGIN, BEGIN + HOUR, ("person",))).rows}
    assert (by_person["mia"].measured, by_person["mia"].covered) == (None, None)


def test_measured_use_never_exceeds_allocated_time(here: World, job: Attempt) -> None:
    """A measured hour counts as a whole; a report may end within it."""
    LedgerEntry.objects.filter(claim=job.claim_id).update(started_at=BEGIN, ended_at=BEGIN + 10 * MINUTE)
    for number in range(12):
        buckets.write(window(number), {(job.pk, 0): Use(gpu=0.5)})
    buckets.sum_hour(here.cluster, BEGIN)
    (row,) = report(SYSTEM, Asked(BEGIN, BEGIN + HOUR, ("pool",), pool=here.pool)).rows
    assert (row.allocated, row.measured, row.covered) == (600, 300, 600)


def test_pages_of_department_and_pool_show_measured_use(client: Client, here: World, job: Attempt) -> None:
    last = floor(timezone.now(), HOUR) - HOUR
    LedgerEntry.objects.filter(claim=job.claim_id).update(started_at=last)
    Attempt.objects.update(started_at=last)
    for number in range(12):
        begin = last + number * BUCKET
        buckets.write(Window(begin, begin + BUCKET, whole=True), {(job.pk, 0): Use(gpu=0.25)})
    buckets.sum_hour(here.cluster, last)
    client.force_login(make.member(here.vision, Role.OWNER, "olga"))
    for path in ("/d/vision/use/", "/pools/a100/use/"):
        text = client.get(path).content.decode()
        assert "0.25" in text, path
        assert "25 %" in text
    client.force_login(make.member(make.department("biology"), Role.OWNER, "bea"))
    assert client.get("/d/vision/use/").status_code == 404
    assert client.get("/pools/a100/use/").status_code == 200
    assert client.get("/pools/none/use/").status_code == 404

"""Workers act on what the watch and listings report: many runs together, each run in one worker at a time."""

# ruff: noqa: F811 fixtures of the bed are imported, and arguments of the tests
from __future__ import annotations

import dataclasses
import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from portal.access import Actor
from portal.background import hint_queue
from portal.models import Event as EventRow
from quotas.models import Claim, ClaimState, Pool
from tests.clusters.fakes import Life
from tests.workloads.reconciler_bed import (  # noqa: F401 some are fixtures
    Watched,
    admitted,
    alice,
    at_work,
    cluster,
    creators,
    eventually,
    pool,
    running,
    start_all,
    state,
    submit,
    tell,
)
from workloads import actions, tasks
from workloads.models import Workload
from workloads.reconciler import deadlines
from workloads.reconciler.next_steps import Seen
from workloads.reconciler.reconcile import reconcile_claim, reconcile_cluster
from workloads.runtime.base import LogChunk, Observed, Phase, RunSpec

pytestmark = pytest.mark.django_db(transaction=True)


def test_many_runs_observed_running_are_recorded_in_one_transaction(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    workloads = [submit(alice, pool) for _ in range(6)]
    start_all(admitted(pool), creators)
    with CaptureQueriesContext(connection) as queries:
        assert tell(*map(running, cluster.specs)) == []
    assert len(queries) <= 10, [query["sql"][:60] for query in queries]
    for workload in workloads:
        workload.refresh_from_db()
        attempt = workload.attempts.get()
        assert (workload.state, attempt.node, attempt.cards) == ("running", "a100-n1", [1])
        assert attempt.started_at == attempt.claim.started_at is not None
        events = (
            EventRow.objects.filter(workload=workload.public_id).order_by("pk").values_list("data__event", flat=True)
        )
        assert list(events)[-1] == "started"


def test_planner_and_watch_identify_an_attempt_by_the_same_id(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    submit(alice, pool)
    [claim] = admitted(pool)
    start_all([claim], creators)
    assert cluster.specs[0].ref.submission_id == claim


def test_run_observed_before_its_creation_is_recorded_is_handled_afterwards(
    alice: Actor, pool: Pool, cluster: Watched, with_redis: Any
) -> None:
    ensure = cluster.ensure
    with at_work() as workers:

        def ensure_and_observe(spec: RunSpec) -> None:
            ensure(spec)
            workers.sighted(pool.group.cluster, running(spec))

        cluster.ensure = ensure_and_observe  # type: ignore[method-assign]
        workload = submit(alice, pool)
        eventually(lambda: state(workload) == "running")
    assert len(cluster.specs) == 1, "the run was created only once"


def test_ended_attempt_releases_its_capacity_before_it_is_cleaned_up(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = submit(alice, pool)
    [claim] = admitted(pool)
    start_all([claim], creators)
    calls: list[tuple[str, bool, str]] = []

    def record(call: str) -> None:
        disconnected = connection.connection is None
        calls.append((call, disconnected, Claim.objects.get().state))

    monkeypatch.setattr(cluster, "logs", lambda ref, **_: record("logs") or LogChunk(b"all of it", 0, end=True))
    monkeypatch.setattr(cluster, "remove", lambda ref: record("remove"))
    ended = dataclasses.replace(running(cluster.specs[0]), phase=Phase.SUCCEEDED, exit_code=0)
    assert tell(ended) == [claim]
    for _ in range(2):  # nothing is requested again after the cleanup
        reconcile_claim(claim, Seen(timezone.now(), ended))
        assert calls == [("logs", True, ClaimState.RELEASED), ("remove", True, ClaimState.RELEASED)]
    assert state(workload) == "succeeded"
    assert workload.attempts.get().removed_at is not None


def test_submission_is_started_within_moments_and_follows_observations(
    alice: Actor, pool: Pool, cluster: Watched, with_redis: Any
) -> None:
    with at_work() as workers:
        workload = submit(alice, pool)
        eventually(lambda: cluster.specs)
        eventually(lambda: state(workload) == "starting")
        ref = cluster.specs[0].ref
        workers.sighted(pool.group.cluster, Observed(ref, workload.public_id, 1, Phase.RUNNING, node="a100-n1"))
        eventually(lambda: state(workload) == "running")
        actions.cancel(actor=alice, workload=workload)
        eventually(lambda: [run for run in cluster.observe() if run.stopping or run.exit_code is not None])
        assert state(workload) == "stopping"


def test_run_that_could_not_be_created_is_retried_by_itself(
    alice: Actor, pool: Pool, cluster: Watched, with_redis: Any
) -> None:
    with at_work():
        workload = submit(alice, pool, "away")
        eventually(lambda: cluster.specs)
        cluster.answers = True
        eventually(lambda: state(workload) == "starting")


def test_tick_leaves_the_listing_to_a_live_watcher(alice: Actor, pool: Pool, cluster: Watched, with_redis: Any) -> None:
    workload = submit(alice, pool)
    admitted(pool)
    hint_queue.take(0.1)  # marks a watcher as alive
    tasks.converge_all(tick=True)
    assert not cluster.specs
    assert ("workloads.converge_all", {}) in hint_queue.take(1)
    with_redis.delete(hint_queue.TAKEN)  # the watcher is gone
    tasks.converge_all()
    assert len(cluster.specs) == 1
    assert state(workload) == "starting"


def test_expired_deadline_is_left_to_a_live_watcher(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor, with_redis: Any
) -> None:
    workload = submit(alice, pool)
    [claim] = admitted(pool)
    start_all([claim], creators)
    tell(running(cluster.specs[0]))
    Workload.objects.update(max_runtime=60)
    late = timezone.now() + dt.timedelta(minutes=2)
    hint_queue.take(0.1)  # marks a watcher as alive
    assert deadlines.keep(now=timezone.now()) == 0, "its maximum runtime is not reached"
    assert deadlines.keep(now=late) == 1
    assert ("workloads.converge", {"claim": claim}) in hint_queue.take(1)
    assert state(workload) == "running"
    with_redis.delete(hint_queue.TAKEN)  # the watcher is gone
    workload.attempts.update(started_at=timezone.now() - dt.timedelta(minutes=2))
    assert deadlines.keep(now=timezone.now()) == 1
    assert state(workload) == "stopping"


def test_workers_handle_the_runs_of_a_listing(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor, with_redis: Any
) -> None:
    workloads = [submit(alice, pool) for _ in range(6)]
    start_all(admitted(pool), creators)
    with at_work() as workers:
        workers.look("workloads.converge_all")
        eventually(lambda: {state(workload) for workload in workloads} == {"running"})


def test_listing_starts_admitted_workloads_without_a_watcher(alice: Actor, pool: Pool, cluster: Watched) -> None:
    workload = submit(alice, pool)
    admitted(pool)
    reconcile_cluster(pool.group.cluster)
    assert len(cluster.specs) == 1
    assert state(workload) == "starting"


def test_listing_records_all_started_runs_together(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    workloads = [submit(alice, pool) for _ in range(6)]
    start_all(admitted(pool), creators)
    with CaptureQueriesContext(connection) as queries:
        assert reconcile_cluster(pool.group.cluster) == 6
    assert len(queries) <= 24, [query["sql"][:60] for query in queries]
    assert {state(workload) for workload in workloads} == {"running"}


@pytest.mark.parametrize(
    ("since", "removed"),
    [(dt.timedelta(0), 0), (-dt.timedelta(hours=1), 1), (dt.timedelta(hours=1), 1)],  # the last: a clock was ahead
)
def test_run_cleaned_up_since_the_listing_is_not_treated_as_an_orphan(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch,
    since: dt.timedelta, removed: int,
) -> None:  # fmt: skip
    cluster.life_of = lambda spec: Life(runs=0)
    workload = submit(alice, pool)
    start_all(admitted(pool), creators)
    observe, removals = cluster.observe, list[str]()

    def listed() -> tuple[Observed, ...]:
        found = observe()
        workload.attempts.update(finished_at=timezone.now() + since, removed_at=timezone.now() + since)
        return found

    monkeypatch.setattr(cluster, "observe", listed)
    monkeypatch.setattr(cluster, "remove", lambda ref: removals.append(ref.name))
    reconcile_cluster(pool.group.cluster)
    assert len(removals) == removed


def test_listing_older_than_the_end_of_an_attempt_stops_nothing(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = submit(alice, pool)
    [claim] = admitted(pool)
    start_all([claim], creators)
    run, stopped = running(cluster.specs[0]), list[str]()
    tell(run)
    ended = dataclasses.replace(run, phase=Phase.FAILED, exit_code=1, finished_at=timezone.now())

    def listed() -> tuple[Observed, ...]:
        reconcile_claim(claim, Seen(timezone.now(), ended))  # while the listing is on its way
        return (run,)

    monkeypatch.setattr(cluster, "observe", listed)
    monkeypatch.setattr(cluster, "remove", lambda ref: None)
    monkeypatch.setattr(cluster, "logs", lambda ref, **_: LogChunk(b"", 0, end=True))
    monkeypatch.setattr(cluster, "stop", lambda ref, grace: stopped.append(ref.name))
    reconcile_cluster(pool.group.cluster)
    assert (state(workload), stopped) == ("failed", [])
    monkeypatch.setattr(cluster, "observe", lambda: (run,))
    workload.attempts.update(removed_at=None)
    reconcile_cluster(pool.group.cluster)
    assert stopped == [], "the listing may be older than the recorded end, by another machine's clock"
    workload.attempts.update(finished_at=timezone.now() - dt.timedelta(seconds=5), removed_at=None)
    reconcile_cluster(pool.group.cluster)
    assert stopped, "a run that outlives its attempt must not run beside the next attempt"

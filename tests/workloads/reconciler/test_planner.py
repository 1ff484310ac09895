"""The planner takes all waiting hints at once, and starts the claims that a pass admitted in batches."""

# ruff: noqa: F811 fixtures of the bed are imported, and arguments of the tests
from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from portal.access import Actor
from portal.background import hint_queue, hints
from portal.models import Event as EventRow
from quotas.models import Claim, ClaimState, Pool
from quotas.planning.lock import locked_group
from tests.workloads.reconciler_bed import (  # noqa: F401 some are fixtures
    Watched,
    admitted,
    alice,
    at_work,
    cluster,
    creators,
    eventually,
    pool,
    start_all,
    state,
    submit,
)
from workloads.models import Workload
from workloads.reconciler import planner
from workloads.reconciler.planner import Planner
from workloads.reconciler.workers import Workers
from workloads.runtime.base import RunSpec

pytestmark = pytest.mark.django_db(transaction=True)


def test_admitted_workloads_start_in_a_batch_with_the_same_events_as_single_starts(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    workloads = [submit(alice, pool) for _ in range(5)]
    claims = admitted(pool)
    assert start_all(claims, creators) == {}
    assert sorted(spec.workload_id for spec in cluster.specs) == sorted(w.public_id for w in workloads)
    assert all(spec.untried and spec.placement for spec in cluster.specs)
    for workload in workloads:
        workload.refresh_from_db()
        attempt = workload.attempts.get()
        assert (workload.state, workload.version) == ("starting", 3)
        assert None not in (attempt.admitted_at, attempt.created_at)
        assert attempt.placement == attempt.claim.placement
        events = EventRow.objects.filter(workload=workload.public_id).order_by("pk").values_list("kind", "data__event")
        assert list(events)[-2:] == [("workload.admitted", "admit"), ("workload.starting", "created")]


def test_batch_skips_workloads_that_are_started_already_or_cancelled(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    first, second = submit(alice, pool), submit(alice, pool)
    claims = admitted(pool)
    Workload.objects.filter(pk=second.pk).update(cancel_requested_at=timezone.now())
    for _ in range(2):
        assert start_all(claims, creators) == {second.attempts.get().claim.public_id: True}
    assert [spec.workload_id for spec in cluster.specs] == [first.public_id]


def test_refused_run_and_unreachable_cluster_do_not_delay_the_others(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    workloads = {name: submit(alice, pool, name) for name in ("refused", "away", "train")}
    left = start_all(admitted(pool), creators)
    assert left == {workloads["away"].attempts.get().claim.public_id: False}, "it is tried again"
    states = {name: Workload.objects.get(pk=workload.pk).state for name, workload in workloads.items()}
    assert states == {"refused": "failed", "away": "admitted", "train": "starting"}
    assert workloads["refused"].attempts.get().claim.state == ClaimState.RELEASED


def test_two_concurrent_starts_of_the_same_claims_create_each_run_once(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    for _ in range(8):
        submit(alice, pool)
    claims = admitted(pool)
    together = threading.Barrier(2)

    def start() -> None:
        together.wait()
        start_all(claims, creators)
        connection.close()

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cluster.specs) == 8
    assert set(Workload.objects.values_list("state", flat=True)) == {"starting"}


def test_next_pass_is_not_delayed_while_a_batch_is_created(
    alice: Actor, pool: Pool, cluster: Watched, with_redis: Any
) -> None:
    go, ensure = threading.Event(), cluster.ensure

    def slow(spec: RunSpec) -> None:
        go.wait(20)
        ensure(spec)

    cluster.ensure = slow  # type: ignore[method-assign]
    with at_work():
        try:
            submit(alice, pool)
            eventually(lambda: Claim.objects.filter(state=ClaimState.HOLDING).count() == 1)
            second = submit(alice, pool)
            eventually(lambda: Claim.objects.filter(state=ClaimState.HOLDING).count() == 2)
            assert with_redis.exists(hint_queue.TAKEN), "the planner keeps taking hints"
            go.set()
            eventually(lambda: state(second) == "starting")
        finally:
            go.set()


def test_planner_waits_in_a_burst_while_more_hints_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = iter([3, 7, 7, 9])
    monkeypatch.setattr(hint_queue, "waiting", lambda: next(gathered))
    runner = Planner(threading.Event(), Workers())
    runner._burst = True
    runner._gather()
    assert next(gathered) == 9, "it stops waiting as soon as no other hint arrives"
    runner._gather()  # the burst is over: reading the queue again would fail


def test_endless_burst_is_planned_after_a_maximum_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "LONGEST_BURST", 0.2)
    monkeypatch.setattr(hint_queue, "waiting", itertools.count().__next__)
    runner = Planner(threading.Event(), Workers())
    runner._burst = True
    runner._gather()
    assert hint_queue.waiting() > 1


def test_planner_expects_a_burst_after_taking_many_hints(alice: Actor, pool: Pool, with_redis: Any) -> None:
    runner = Planner(threading.Event(), Workers())
    hint_queue.take(0.1)
    submit(alice, pool)
    runner.act(hint_queue.take(1))
    assert not runner._burst
    for _ in range(4):
        submit(alice, pool)
    runner.act(hint_queue.take(1))
    assert runner._burst


def test_pass_that_waited_for_a_lock_is_not_followed_by_a_long_pause(pool: Pool) -> None:
    runner = Planner(threading.Event(), Workers())

    def plan() -> None:
        runner.act([("quotas.plan", {"group_id": pool.group_id})])
        connection.close()

    with ThreadPoolExecutor(1) as other:
        with transaction.atomic():
            locked_group(pool.group_id)
            planned = other.submit(plan)
            eventually(lambda: a_session_has_waited_for_a_lock(3 * planner.SHORT))
        planned.result()
    assert 0 < runner._rest < planner.SHORT


def a_session_has_waited_for_a_lock(seconds: float) -> bool:
    """Whether a database session has waited for a lock for at least this long."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # otherwise a transaction keeps seeing its first snapshot
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            " AND clock_timestamp() - query_start > make_interval(secs => %s)",
            [seconds],
        )
        return bool(cursor.fetchone()[0])


def test_duplicate_hints_are_taken_once_and_in_order(with_redis: Any) -> None:
    assert hint_queue.take(0.1) == []
    for group in (1, 2, 1, 1):
        assert hint_queue.put("quotas.plan", {"group_id": group})
    assert hint_queue.take(1) == [("quotas.plan", {"group_id": 1}), ("quotas.plan", {"group_id": 2})]
    assert hint_queue.take(0.1) == []


def test_hints_go_to_the_workers_when_no_planner_takes_them(with_redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(hints, "_send", lambda name, ids: sent.append(name))
    hints.wake("quotas.plan", group_id=1)
    assert sent == ["quotas.plan"]
    hint_queue.take(0.1)
    hints.wake("quotas.plan", group_id=1)
    assert sent == ["quotas.plan"]
    hints.wake("portal.deliver")
    assert sent == ["quotas.plan", "portal.deliver"]


def test_planner_that_only_fails_is_not_considered_alive(with_redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    closing = threading.Event()
    runner, failed = Planner(closing, Workers()), threading.Event()

    def fails(hints: object) -> None:
        failed.set()
        raise OSError("the database is unreachable for this process only")

    monkeypatch.setattr(runner, "act", fails)
    runner.start()
    try:
        assert failed.wait(20)
        eventually(lambda: runner._well_from)
        with_redis.delete(hint_queue.TAKEN)  # as if it had expired
        failed.clear()
        assert failed.wait(20), "it keeps trying"
        assert not hint_queue.alive(), "the workers do everything themselves"
    finally:
        closing.set()
        runner.join(5)

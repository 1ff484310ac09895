"""What the watch and listings tell, acted on together, and what is left to tidy up."""

# ruff: noqa: F811 fixtures of the bed are imported, and arguments of the tests
from __future__ import annotations

import dataclasses
import datetime as dt
import threading
from collections.abc import Callable
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
from tests.workloads.express_bed import (  # noqa: F401 some are fixtures
    Watched,
    admitted,
    alice,
    at_once,
    cluster,
    creators,
    eventually,
    pool,
    running,
    state,
    submit,
)
from workloads import actions
from workloads.reconciler import starting
from workloads.reconciler.express import Express
from workloads.reconciler.reconcile import STARTED_WITHIN, TIDIED_IN_A_ROW, TIDIED_WITHIN, converge_cluster
from workloads.reconciler.sightings import Sightings
from workloads.runtime.base import LogChunk, Observed, Phase, RunSpec

pytestmark = pytest.mark.django_db(transaction=True)


def test_sightings_of_many_that_began_to_run_are_one_transaction(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    made = [submit(alice, pool) for _ in range(6)]
    starting.start(admitted(pool), creators)
    told = Sightings(threading.Event(), at_once, at_once)
    for spec in cluster.specs:
        told.tell(*running(pool, spec))
    with CaptureQueriesContext(connection) as queries:
        told.act()
    assert len(queries) <= 10, [query["sql"][:60] for query in queries]
    for workload in made:
        workload.refresh_from_db()
        attempt = workload.attempts.get()
        assert (workload.state, attempt.node, attempt.cards) == ("running", "a100-n1", [1])
        assert attempt.started_at == attempt.claim.started_at is not None
        told_of = (
            EventRow.objects.filter(workload=workload.public_id).order_by("pk").values_list("data__event", flat=True)
        )
        assert list(told_of)[-1] == "started"


def test_a_sighting_before_its_creation_is_noted_is_acted_on_after_it(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    workload = submit(alice, pool)
    [claim] = admitted(pool)
    told = Sightings(threading.Event(), at_once, at_once)
    ensure, looked = cluster.ensure, []

    def seen_meanwhile(spec: RunSpec) -> None:
        ensure(spec)
        told.tell(*running(pool, spec))
        told.act()
        connection.close()  # this thread's own
        looked.append(len(cluster.specs))

    cluster.ensure = seen_meanwhile  # type: ignore[method-assign]
    starting.start([claim], creators)
    assert state(workload) == "starting"
    told.act()
    assert state(workload) == "running"
    assert looked == [1], "nobody else asked the cluster for it meanwhile"


def test_what_ended_frees_its_capacity_before_anybody_tidies_up_after_it(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = submit(alice, pool)
    starting.start(admitted(pool), creators)
    left: dict[object, Callable[[], object]] = {}
    asked: list[str] = []

    def ask(what: str) -> None:
        asked.append(what if connection.connection is None else f"{what}, while it held a connection to the database")

    monkeypatch.setattr(cluster, "logs", lambda ref, **_: ask("logs") or LogChunk(b"all of it", 0, end=True))
    monkeypatch.setattr(cluster, "remove", lambda ref: ask("remove"))
    told = Sightings(threading.Event(), at_once, left.__setitem__)
    where, run = running(pool, cluster.specs[0])
    told.tell(where, dataclasses.replace(run, phase=Phase.SUCCEEDED, exit_code=0))
    told.act()
    claim = Claim.objects.get()
    assert (state(workload), claim.state, asked) == ("succeeded", ClaimState.RELEASED, [])
    [tidy] = left.values()
    tidy()
    assert asked == ["logs", "remove"], "the end of a log is not asked for once more"
    tidy()
    assert asked == ["logs", "remove"], "nor anything after somebody has tidied up"
    assert workload.attempts.get().removed_at is not None


def test_a_submission_is_a_run_moments_later_and_a_sighting_moves_it_on(
    alice: Actor, pool: Pool, cluster: Watched, with_redis: Any
) -> None:
    closing = threading.Event()
    hint_queue.take(0.1)  # somebody takes
    runner = Express(closing)
    runner.start()
    try:
        workload = submit(alice, pool)
        eventually(lambda: cluster.specs)
        eventually(lambda: state(workload) == "starting")
        ref = cluster.specs[0].ref
        runner.seen(pool.group.cluster, Observed(ref, workload.public_id, 1, Phase.RUNNING, node="a100-n1"))
        eventually(lambda: state(workload) == "running")
        actions.cancel(actor=alice, workload=workload)
        eventually(lambda: [run for run in cluster.observe() if run.stopping or run.exit_code is not None])
        assert state(workload) == "stopping"
    finally:
        closing.set()
        runner.join(5)


@pytest.mark.parametrize("late", [-STARTED_WITHIN, dt.timedelta(hours=1)])
def test_a_listing_leaves_to_the_watcher_what_was_admitted_a_moment_ago(
    alice: Actor, pool: Pool, cluster: Watched, with_redis: Any, late: dt.timedelta
) -> None:
    workload = submit(alice, pool)
    admitted(pool)
    hint_queue.take(0.1)  # a watcher lives
    assert converge_cluster(pool.group.cluster) == 0
    assert not cluster.specs
    Claim.objects.update(
        answered_at=timezone.now() + late
    )  # it does not get to it, has died since, or has another clock
    converge_cluster(pool.group.cluster)
    assert len(cluster.specs) == 1
    assert state(workload) == "starting"


def test_without_a_watcher_a_listing_starts_what_was_admitted(alice: Actor, pool: Pool, cluster: Watched) -> None:
    workload = submit(alice, pool)
    admitted(pool)
    converge_cluster(pool.group.cluster)
    assert len(cluster.specs) == 1
    assert state(workload) == "starting"


def test_a_listing_notes_together_all_that_began_to_run(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    made = [submit(alice, pool) for _ in range(6)]
    starting.start(admitted(pool), creators)
    with CaptureQueriesContext(connection) as queries:
        assert converge_cluster(pool.group.cluster) == 6
    assert len(queries) <= 24, [query["sql"][:60] for query in queries]
    assert {state(workload) for workload in made} == {"running"}


@pytest.mark.parametrize(("goes_on", "within"), [(False, TIDIED_WITHIN), (True, TIDIED_IN_A_ROW)])
def test_a_listing_leaves_it_to_the_watcher_to_tidy_up_after_what_ended_a_moment_ago(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor, with_redis: Any, goes_on: bool,
    within: dt.timedelta,
) -> None:  # fmt: skip
    cluster.life_of = lambda spec: Life(runs=0)
    workload = submit(alice, pool)
    starting.start(admitted(pool), creators)
    hint_queue.take(0.1)  # a watcher lives
    attempts, [ended] = workload.attempts.all(), cluster.observe()
    told = Sightings(threading.Event(), at_once, lambda key, act: None)
    told.tell(pool.group.cluster, ended)
    told.act()
    assert state(workload) == "succeeded"
    if goes_on:
        hint_queue.tidied()  # after others
    for late, removed in ((dt.timedelta(0), False), (within - dt.timedelta(seconds=5), False), (within, True)):
        attempts.update(finished_at=timezone.now() - late)
        converge_cluster(pool.group.cluster)
        assert (attempts.get().removed_at is not None) is removed


@pytest.mark.parametrize(("since", "removed"), [(dt.timedelta(0), 0), (-dt.timedelta(hours=1), 1)])
def test_what_somebody_tidied_up_after_since_the_listing_is_no_orphan_of_it(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch,
    since: dt.timedelta, removed: int,
) -> None:  # fmt: skip
    cluster.life_of = lambda spec: Life(runs=0)
    workload = submit(alice, pool)
    starting.start(admitted(pool), creators)
    observe, asked = cluster.observe, list[str]()

    def listed() -> tuple[Observed, ...]:
        found = observe()
        workload.attempts.update(finished_at=timezone.now() + since, removed_at=timezone.now() + since)
        return found

    monkeypatch.setattr(cluster, "observe", listed)
    monkeypatch.setattr(cluster, "remove", lambda ref: asked.append(ref.name))
    converge_cluster(pool.group.cluster)
    assert len(asked) == removed


def test_a_listing_that_is_older_than_an_end_stops_nothing(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch,
    with_redis: Any,
) -> None:  # fmt: skip
    workload = submit(alice, pool)
    starting.start(admitted(pool), creators)
    hint_queue.take(0.1)  # a watcher lives
    told, stopped = Sightings(threading.Event(), at_once, lambda key, act: None), list[str]()
    where, run = running(pool, cluster.specs[0])
    told.tell(where, run)
    told.act()
    ended = dataclasses.replace(run, phase=Phase.SUCCEEDED, exit_code=0, finished_at=timezone.now())

    def listed() -> tuple[Observed, ...]:
        told.tell(where, ended)  # while the listing is on its way
        told.act()
        return (run,)

    monkeypatch.setattr(cluster, "observe", listed)
    monkeypatch.setattr(cluster, "stop", lambda ref, grace: stopped.append(ref.name))
    converge_cluster(pool.group.cluster)
    assert (state(workload), stopped) == ("succeeded", [])
    workload.attempts.update(finished_at=timezone.now() - TIDIED_WITHIN)
    converge_cluster(pool.group.cluster)
    assert stopped, "one that lives on when its attempt is over must not live beside the next"

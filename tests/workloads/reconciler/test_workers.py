"""What the watch and listings tell: of many acted on together, of one in one hand at a time."""

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


def test_sightings_of_many_that_began_to_run_are_one_transaction(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    made = [submit(alice, pool) for _ in range(6)]
    start_all(admitted(pool), creators)
    with CaptureQueriesContext(connection) as queries:
        assert tell(*map(running, cluster.specs)) == []
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


def test_the_plan_and_the_watch_name_an_attempt_alike(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    submit(alice, pool)
    [claim] = admitted(pool)
    start_all([claim], creators)
    assert cluster.specs[0].ref.submission_id == claim


def test_a_sighting_before_its_creation_is_noted_is_acted_on_after_it(
    alice: Actor, pool: Pool, cluster: Watched, with_redis: Any
) -> None:
    ensure = cluster.ensure
    with at_work() as workers:

        def seen_meanwhile(spec: RunSpec) -> None:
            ensure(spec)
            workers.sighted(pool.group.cluster, running(spec))

        cluster.ensure = seen_meanwhile  # type: ignore[method-assign]
        workload = submit(alice, pool)
        eventually(lambda: state(workload) == "running")
    assert len(cluster.specs) == 1, "nobody else asked the cluster for it meanwhile"


def test_what_ended_frees_its_capacity_before_it_is_tidied_up_after(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = submit(alice, pool)
    [claim] = admitted(pool)
    start_all([claim], creators)
    asked: list[tuple[str, bool, str]] = []

    def ask(what: str) -> None:
        lent = connection.connection is None
        asked.append((what, lent, Claim.objects.get().state))

    monkeypatch.setattr(cluster, "logs", lambda ref, **_: ask("logs") or LogChunk(b"all of it", 0, end=True))
    monkeypatch.setattr(cluster, "remove", lambda ref: ask("remove"))
    ended = dataclasses.replace(running(cluster.specs[0]), phase=Phase.SUCCEEDED, exit_code=0)
    assert tell(ended) == [claim]
    for _ in range(2):  # nothing is asked for once more after somebody has tidied up
        reconcile_claim(claim, Seen(timezone.now(), ended))
        assert asked == [("logs", True, ClaimState.RELEASED), ("remove", True, ClaimState.RELEASED)]
    assert state(workload) == "succeeded"
    assert workload.attempts.get().removed_at is not None


def test_a_submission_is_a_run_moments_later_and_a_sighting_moves_it_on(
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


def test_one_that_could_not_be_created_is_tried_again_without_anybody_asking(
    alice: Actor, pool: Pool, cluster: Watched, with_redis: Any
) -> None:
    with at_work():
        workload = submit(alice, pool, "away")
        eventually(lambda: cluster.specs)
        cluster.answers = True
        eventually(lambda: state(workload) == "starting")


def test_a_tick_only_tells_the_watcher_to_look_while_there_is_one(
    alice: Actor, pool: Pool, cluster: Watched, with_redis: Any
) -> None:
    workload = submit(alice, pool)
    admitted(pool)
    hint_queue.take(0.1)  # a watcher lives
    tasks.converge_all(tick=True)
    assert not cluster.specs
    assert ("workloads.converge_all", {}) in hint_queue.take(1)
    with_redis.delete(hint_queue.TAKEN)  # it has died
    tasks.converge_all()
    assert len(cluster.specs) == 1
    assert state(workload) == "starting"


def test_a_deadline_only_gives_its_attempt_to_the_watcher_while_there_is_one(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor, with_redis: Any
) -> None:
    workload = submit(alice, pool)
    [claim] = admitted(pool)
    start_all([claim], creators)
    tell(running(cluster.specs[0]))
    Workload.objects.update(max_runtime=60)
    late = timezone.now() + dt.timedelta(minutes=2)
    hint_queue.take(0.1)  # a watcher lives
    assert deadlines.keep(now=timezone.now()) == 0, "it may still run"
    assert deadlines.keep(now=late) == 1
    assert ("workloads.converge", {"claim": claim}) in hint_queue.take(1)
    assert state(workload) == "running"
    with_redis.delete(hint_queue.TAKEN)  # it has died
    workload.attempts.update(started_at=timezone.now() - dt.timedelta(minutes=2))
    assert deadlines.keep(now=timezone.now()) == 1
    assert state(workload) == "stopping"


def test_what_a_listing_shows_is_given_to_the_workers(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor, with_redis: Any
) -> None:
    made = [submit(alice, pool) for _ in range(6)]
    start_all(admitted(pool), creators)
    with at_work() as workers:
        workers.look("workloads.converge_all")
        eventually(lambda: {state(workload) for workload in made} == {"running"})


def test_without_a_watcher_a_listing_starts_what_was_admitted(alice: Actor, pool: Pool, cluster: Watched) -> None:
    workload = submit(alice, pool)
    admitted(pool)
    reconcile_cluster(pool.group.cluster)
    assert len(cluster.specs) == 1
    assert state(workload) == "starting"


def test_a_listing_notes_together_all_that_began_to_run(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    made = [submit(alice, pool) for _ in range(6)]
    start_all(admitted(pool), creators)
    with CaptureQueriesContext(connection) as queries:
        assert reconcile_cluster(pool.group.cluster) == 6
    assert len(queries) <= 24, [query["sql"][:60] for query in queries]
    assert {state(workload) for workload in made} == {"running"}


@pytest.mark.parametrize(
    ("since", "removed"),
    [(dt.timedelta(0), 0), (-dt.timedelta(hours=1), 1), (dt.timedelta(hours=1), 1)],  # the last: a clock was ahead
)
def test_what_somebody_tidied_up_after_since_the_listing_is_no_orphan_of_it(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch,
    since: dt.timedelta, removed: int,
) -> None:  # fmt: skip
    cluster.life_of = lambda spec: Life(runs=0)
    workload = submit(alice, pool)
    start_all(admitted(pool), creators)
    observe, asked = cluster.observe, list[str]()

    def listed() -> tuple[Observed, ...]:
        found = observe()
        workload.attempts.update(finished_at=timezone.now() + since, removed_at=timezone.now() + since)
        return found

    monkeypatch.setattr(cluster, "observe", listed)
    monkeypatch.setattr(cluster, "remove", lambda ref: asked.append(ref.name))
    reconcile_cluster(pool.group.cluster)
    assert len(asked) == removed


def test_a_listing_that_is_older_than_an_end_stops_nothing(
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
    assert stopped == [], "it may have begun before the end was noted, by another machine's clock"
    workload.attempts.update(finished_at=timezone.now() - dt.timedelta(seconds=5), removed_at=None)
    reconcile_cluster(pool.group.cluster)
    assert stopped, "one that lives on when its attempt is over must not live beside the next"

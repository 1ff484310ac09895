"""Hints taken in a heap, and workloads started in batches: what makes the portal quick."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from portal import lane, wake
from portal.access import Actor
from portal.models import Event as EventRow
from quotas.admission import run_pass
from quotas.models import Claim, ClaimState, Cluster, Pool
from tests import builders as make
from workloads import actions, express, sightings, starting
from workloads.clusters.base import LogChunk, Observed, Phase, Refused, RunSpec, Unreachable
from workloads.clusters.doubles import InMemoryCluster, Life
from workloads.converge import STARTED_WITHIN, converge_cluster
from workloads.express import Express
from workloads.models import Image, Workload
from workloads.requests import WorkloadRequest
from workloads.sightings import Sightings

pytestmark = pytest.mark.django_db(transaction=True)


class Watched(InMemoryCluster):
    """Remembers what it was asked for, and refuses or is away for those named so."""

    def __init__(self) -> None:
        super().__init__("memory", (), lambda spec: Life())
        self.specs: list[RunSpec] = []

    def ensure(self, spec: RunSpec) -> None:
        self.specs.append(spec)
        if "refused" in spec.command:
            raise Refused("no", code="refused")
        if "away" in spec.command:
            raise Unreachable("away")
        super().ensure(spec)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Watched:
    made = Watched()
    for module in (starting, sightings):
        monkeypatch.setattr(module, "driver_for", lambda row: made)
    monkeypatch.setattr("workloads.converge.driver_for", lambda row: made)
    return made


@pytest.fixture
def pool(db: None) -> Pool:
    Image.objects.create(name="python:3.11", title="Python")
    return make.pool("a100", cards=8, notice=0, grace=0)


@pytest.fixture
def alice(pool: Pool) -> Actor:
    vision = make.department("vision")
    make.quota(vision, pool, 8)
    return Actor(make.member(vision))


def submit(alice: Actor, pool: Pool, command: str = "train") -> Workload:
    assert alice.user is not None
    request = WorkloadRequest(kind="job", name=command, pool=pool, image=Image.objects.get(), command=(command,))
    return actions.submit(actor=alice, department=alice.user.memberships.get().department, request=request)


def admitted(pool: Pool) -> list[str]:
    with lane.kept() as hints:
        run_pass(group_id=pool.group_id)
    return [str(ids["claim"]) for _name, ids in hints if "claim" in ids]


@pytest.fixture
def creators() -> Any:
    with ThreadPoolExecutor(4) as made:
        yield made


def test_what_was_admitted_is_started_together_and_told_as_if_one_by_one(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    made = [submit(alice, pool) for _ in range(5)]
    claims = admitted(pool)
    assert starting.start(claims, creators) == []
    assert sorted(spec.workload_id for spec in cluster.specs) == sorted(w.public_id for w in made)
    assert all(spec.untried and spec.placement for spec in cluster.specs)
    for workload in made:
        workload.refresh_from_db()
        attempt = workload.attempts.get()
        assert (workload.state, workload.version) == ("starting", 3)
        assert None not in (attempt.admitted_at, attempt.created_at)
        assert attempt.placement == attempt.claim.placement
        told = EventRow.objects.filter(workload=workload.public_id).order_by("pk").values_list("kind", "data__event")
        assert list(told)[-2:] == [("workload.admitted", "admit"), ("workload.starting", "created")]


def test_who_is_started_already_or_cancelled_is_left_to_a_closer_look(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    first, second = submit(alice, pool), submit(alice, pool)
    claims = admitted(pool)
    Workload.objects.filter(pk=second.pk).update(cancel_requested_at=timezone.now())
    assert starting.start(claims, creators) == [second.attempts.get().claim.public_id]
    assert set(starting.start(claims, creators)) == set(claims)
    assert [spec.workload_id for spec in cluster.specs] == [first.public_id]


def test_one_that_is_refused_and_one_whose_cluster_is_away_do_not_hold_up_the_others(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    made = {name: submit(alice, pool, name) for name in ("refused", "away", "train")}
    starting.start(admitted(pool), creators)
    states = {name: Workload.objects.get(pk=workload.pk).state for name, workload in made.items()}
    assert states == {"refused": "failed", "away": "admitted", "train": "starting"}
    assert made["refused"].attempts.get().claim.state == ClaimState.RELEASED


def test_two_who_start_the_same_claims_create_each_run_once(
    alice: Actor, pool: Pool, cluster: Watched, creators: ThreadPoolExecutor
) -> None:
    for _ in range(8):
        submit(alice, pool)
    claims = admitted(pool)
    together = threading.Barrier(2)

    def go() -> None:
        from django.db import connection

        together.wait()
        starting.start(claims, creators)
        connection.close()

    threads = [threading.Thread(target=go) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cluster.specs) == 8
    assert set(Workload.objects.values_list("state", flat=True)) == {"starting"}


def running(pool: Pool, spec: RunSpec) -> tuple[Cluster, Observed]:
    return pool.group.cluster, Observed(spec.ref, spec.workload_id, 1, Phase.RUNNING, node="a100-n1", cards=(1,))


def at_once(key: object, act: Callable[[], object]) -> None:
    act()


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
    monkeypatch.setattr(cluster, "logs", lambda ref, **_: asked.append("logs") or LogChunk(b"all of it", 0, end=True))
    monkeypatch.setattr(cluster, "remove", lambda ref: asked.append("remove"))
    told = Sightings(threading.Event(), at_once, left.__setitem__)
    where, run = running(pool, cluster.specs[0])
    told.tell(where, dataclasses.replace(run, phase=Phase.SUCCEEDED, exit_code=0))
    told.act()
    claim = Claim.objects.get()
    assert (state(workload), claim.state, asked) == ("succeeded", ClaimState.RELEASED, [])
    [tidy] = left.values()
    tidy()
    assert asked == ["logs", "remove"], "the end of a log is not asked for once more"
    assert workload.attempts.get().removed_at is not None


def test_while_a_batch_is_created_the_next_pass_is_not_held_up(
    alice: Actor, pool: Pool, cluster: Watched, with_redis: Any
) -> None:
    closing, go = threading.Event(), threading.Event()
    lane.take(0.1)
    ensure = cluster.ensure

    def slow(spec: RunSpec) -> None:
        go.wait(20)
        ensure(spec)

    cluster.ensure = slow  # type: ignore[method-assign]
    runner = Express(closing)
    runner.start()
    try:
        submit(alice, pool)
        eventually(lambda: Claim.objects.filter(state=ClaimState.HOLDING).count() == 1)
        second = submit(alice, pool)
        eventually(lambda: Claim.objects.filter(state=ClaimState.HOLDING).count() == 2)
        assert with_redis.exists(lane.TAKEN), "hints keep coming here"
        go.set()
        eventually(lambda: state(second) == "starting")
    finally:
        go.set()
        closing.set()
        runner.join(5)


def test_in_a_burst_hints_gather_while_more_come(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = iter([3, 7, 7, 9])
    monkeypatch.setattr(lane, "waiting", lambda: next(gathered))
    runner = Express(threading.Event())
    runner._burst = True
    runner._gather()
    assert next(gathered) == 9, "as soon as no other has come"
    runner._gather()  # the burst is over: it would fail if it looked


def test_a_burst_without_end_is_planned_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(express, "LONGEST_BURST", 0.2)
    monkeypatch.setattr(lane, "waiting", itertools.count().__next__)
    runner = Express(threading.Event())
    runner._burst = True
    runner._gather()
    assert lane.waiting() > 1


def test_who_plans_for_many_expects_more(
    alice: Actor, pool: Pool, with_redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Express(threading.Event())
    monkeypatch.setattr(runner, "_begin", list)  # no thread of it outlives this test
    lane.take(0.1)
    submit(alice, pool)
    runner.act(lane.take(1))
    assert not runner._burst
    for _ in range(4):
        submit(alice, pool)
    runner.act(lane.take(1))
    assert runner._burst


@pytest.fixture
def with_redis(settings: Any) -> Any:
    if not os.environ["TEST_REDIS_URL"]:
        pytest.skip("needs Redis")
    settings.REDIS_URL = os.environ["TEST_REDIS_URL"].rpartition("/")[0] + "/5"
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
        yield client


def test_equal_hints_are_taken_once_and_in_order(with_redis: Any) -> None:
    assert lane.take(0.1) == []
    for group in (1, 2, 1, 1):
        assert lane.put("quotas.plan", {"group_id": group})
    assert lane.take(1) == [("quotas.plan", {"group_id": 1}), ("quotas.plan", {"group_id": 2})]
    assert lane.take(0.1) == []


def test_hints_go_to_the_workers_when_nobody_takes_them(with_redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(wake, "_send", lambda name, ids: sent.append(name))
    wake.wake("quotas.plan", group_id=1)
    assert sent == ["quotas.plan"]
    lane.take(0.1)
    wake.wake("quotas.plan", group_id=1)
    assert sent == ["quotas.plan"]
    wake.wake("portal.deliver")
    assert sent == ["quotas.plan", "portal.deliver"]


def test_a_submission_is_a_run_moments_later_and_a_sighting_moves_it_on(
    alice: Actor, pool: Pool, cluster: Watched, with_redis: Any
) -> None:
    closing = threading.Event()
    lane.take(0.1)  # somebody takes
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
    lane.take(0.1)  # a watcher lives
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


def state(workload: Workload) -> str:
    return Workload.objects.get(pk=workload.pk).state


def eventually(fact: Any, seconds: float = 20) -> None:
    end = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if fact():
            return
        end.wait(0.05)
    pytest.fail("it did not happen")

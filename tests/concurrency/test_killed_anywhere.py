"""A process is killed at every line that calls the cluster or commits, one after another; the next beat continues.

At every such line: the borrower releases its capacity and finishes later, the owner runs, no run exists twice, and no claim
remains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.utils import timezone

from portal.access import Actor
from portal.infra import locks
from quotas.models import OCCUPYING, Claim, ClaimState, LedgerEntry, Pool
from quotas.planning import run_pass
from tests import builders as make
from tests.clusters.fakes import InMemoryCluster, Life
from workloads import actions
from workloads.models import Attempt, Image, Workload
from workloads.reconciler import deadlines, reconcile, transitions
from workloads.requests.request import WorkloadRequest
from workloads.runtime.base import RunSpec

pytestmark = pytest.mark.django_db
CALLS = ("ensure", "announce", "stop", "remove", "observe", "logs")


class Killed(BaseException):
    """Not an Exception: the product must not catch it."""


class Killer:
    """Kills the process at the `at`-th dangerous line, once."""

    def __init__(self, at: int) -> None:
        self.at, self.passed, self.died = at, 0, False

    def line(self) -> None:
        if not self.died and self.passed == self.at:
            self.died = True
            raise Killed
        self.passed += 1


class Deadly(InMemoryCluster):
    """A cluster where the process is killed before a call reaches it, or after the call, before its result is returned."""

    killer: Killer

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name not in CALLS:
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self.killer.line()
            result = value(*args, **kwargs)
            self.killer.line()
            return result

        return call


def life_of(spec: RunSpec) -> Life:
    """The borrower's first attempt and the owner run until stopped; the second attempt ends well."""
    return Life(runs=0) if spec.user.startswith("bob") and spec.attempt > 1 else Life(stopped_code=0)


class World:
    def __init__(self, number: int, killer: Killer) -> None:
        self.pool = make.pool(f"pool-{number}", cards=4, notice=0, grace=0)
        self.cluster = Deadly(life_of=life_of)
        self.cluster.killer = killer
        self.vision, self.nlp = make.department(f"vision-{number}"), make.department(f"nlp-{number}")
        make.quota(self.vision, self.pool, 2)
        make.quota(self.nlp, self.pool, 2)
        self.image, _ = Image.objects.get_or_create(name="python:3.11", defaults={"title": "Python"})
        self.alice = Actor(make.member(self.vision))
        self.bob = Actor(make.member(self.nlp, username=f"bob-{number}"))

    def submit(self, actor: Actor, department: Any, cards: int) -> Workload:
        request = WorkloadRequest(
            kind="job", name="job", pool=self.pool, image=self.image, command=("true",), units_per_pod=cards
        )
        return actions.submit(actor=actor, department=department, request=request)

    def turn(self) -> None:
        run_pass.run_pass(group_id=self.pool.group_id)
        reconcile.reconcile_cluster(self.pool.group.cluster)
        deadlines.keep(now=timezone.now())

    def until(self, workload: Workload, state: str) -> None:
        for _ in range(40):
            try:
                self.turn()
            except Killed:
                continue
            self.check()
            workload.refresh_from_db()
            if workload.state == state:
                return
        pytest.fail(f"{workload} is {workload.state}, not {state}: {list(Attempt.objects.values())}")

    def check(self) -> None:
        """After every turn: no card is given out twice, no workload runs twice."""
        occupied = Claim.objects.filter(pool=self.pool, state__in=OCCUPYING)
        assert sum(claim.units for claim in occupied) <= 4
        alive = [run.workload_id for run in self.cluster.look_at_all() if run.exit_code is None]
        assert len(alive) == len(set(alive))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Killer], World]:
    worlds: list[World] = []
    monkeypatch.setattr(transitions, "BACKOFF", 0)
    monkeypatch.setattr(reconcile, "driver_for", lambda cluster: worlds[-1].cluster)

    @contextmanager
    def durable() -> Iterator[None]:
        killer = worlds[-1].cluster.killer
        killer.line()
        with locks.durable():
            yield
            killer.line()
        killer.line()

    def make_world(number: int, killer: Killer) -> World:
        worlds.append(World(number, killer))
        return worlds[-1]

    for module in (run_pass, transitions):
        monkeypatch.setattr(module, "durable", durable)
    monkeypatch.setattr(Deadly, "look_at_all", InMemoryCluster.observe, raising=False)
    return make_world


def live(number: int, killer: Killer, world: Callable[[int, Killer], World]) -> None:
    """Borrow, be recalled, resume, finish."""
    env = world(number, killer)
    borrower = env.submit(env.bob, env.nlp, 4)
    env.until(borrower, "running")
    owner = env.submit(env.alice, env.vision, 2)
    env.until(owner, "running")
    Workload.objects.filter(pk=owner.pk).update(cancel_requested_at=timezone.now())
    env.until(owner, "cancelled")
    env.until(borrower, "succeeded")
    killer.at = -1
    for _ in range(3):
        env.turn()
    assert [a.outcome for a in borrower.attempts.all()] == ["recalled", "succeeded"]
    assert borrower.reclaims == 1
    assert not env.cluster.runs
    assert not Claim.objects.filter(pool=env.pool).exclude(state=ClaimState.RELEASED).exists()
    assert not LedgerEntry.objects.filter(pool=env.pool, ended_at=None).exists()
    assert Pool.objects.filter(pk=env.pool.pk).exists()


LINES = 160  # more than a whole run has; the last ones are not killed
EVERY = 1 if os.environ.get("NIGHTLY") else 4  # each run takes most of a second


@pytest.mark.parametrize("first", range(0, 2 * EVERY, EVERY))
def test_kill_at_any_line_loses_nothing_and_duplicates_nothing(
    first: int, world: Callable[[int, Killer], World]
) -> None:
    for at in range(first, LINES, 2 * EVERY):
        killer = Killer(at)
        live(at, killer, world)
        if not killer.died:
            assert at > 60, "there were too few dangerous lines for this test to prove anything"
            return
    pytest.fail(f"a run has more than {LINES} dangerous lines: raise LINES")

"""An unreachable cluster does not affect the others."""

from __future__ import annotations

import datetime as dt

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from portal.access import Actor
from portal.background import hint_queue
from portal.models import InboxItem, User
from quotas.models import Claim, ClaimState, Cluster, Pool
from quotas.planning.run_pass import run_pass
from tests import builders as make
from tests.clusters.fakes import InMemoryCluster, Life
from workloads import actions, tasks
from workloads.models import Image, Workload
from workloads.reconciler.reconcile import reconcile_claim
from workloads.requests.request import WorkloadRequest
from workloads.runtime.base import Observed, RunRef, RunSpec, Unreachable

pytestmark = pytest.mark.django_db(transaction=True)


class CountingCluster(InMemoryCluster):
    """Can be unreachable, and counts how often it is listed."""

    unreachable, listings = False, 0

    def observe(self) -> tuple[Observed, ...]:
        self.listings += 1
        self._require_reachable()
        return super().observe()

    def ensure(self, spec: RunSpec) -> None:
        self._require_reachable()
        super().ensure(spec)

    def announce(self, ref: RunRef, reclaim_at: dt.datetime | None) -> None:
        self._require_reachable()
        super().announce(ref, reclaim_at)

    def _require_reachable(self) -> None:
        if self.unreachable:
            raise Unreachable("no response")


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> dict[str, CountingCluster]:
    clusters = {name: CountingCluster(name, (), lambda spec: Life()) for name in ("here-cluster", "there-cluster")}
    monkeypatch.setattr("workloads.reconciler.reconcile.driver_for", lambda row: clusters[row.name])
    return clusters


@pytest.fixture
def alice(clusters: dict[str, CountingCluster]) -> User:
    Image.objects.create(name="python:3.11", title="Python")
    vision = make.department("vision")
    for name in ("here", "there"):
        make.quota(vision, make.pool(name, cards=8), 8)
    return make.member(vision)


def submit(alice: User, pool: str) -> Workload:
    request = WorkloadRequest(
        kind="job", name=pool, pool=Pool.objects.get(slug=pool), image=Image.objects.get(), command=("train",)
    )
    department = alice.memberships.get().department
    return actions.submit(actor=Actor(alice), department=department, request=request)


def admit(workload: Workload) -> str:
    with hint_queue.collected():
        run_pass(group_id=workload.pool.group_id)
    return Claim.objects.get(attempt__workload=workload).public_id


def test_unreachable_cluster_is_probed_by_a_separate_job_until_it_responds(
    alice: User, clusters: dict[str, CountingCluster]
) -> None:
    here, there = clusters["here-cluster"], clusters["there-cluster"]
    there.unreachable = True
    tasks.converge_all()
    assert Cluster.objects.get(name="there-cluster").unreachable_since is not None
    for _ in range(3):
        tasks.converge_all()
    assert (here.listings, there.listings) == (4, 1)
    tasks.knock()
    assert (here.listings, there.listings) == (4, 2)
    there.unreachable = False
    tasks.knock()
    assert Cluster.objects.get(name="there-cluster").unreachable_since is None
    tasks.knock()
    tasks.converge_all()
    assert (here.listings, there.listings) == (5, 4)


def test_admitted_workload_starts_when_its_cluster_responds_again(
    alice: User, clusters: dict[str, CountingCluster]
) -> None:
    there = clusters["there-cluster"]
    workload = submit(alice, "there")
    claim = admit(workload)
    there.unreachable = True
    tasks.converge_all()
    reconcile_claim(claim)
    workload.refresh_from_db()
    assert (workload.state, there.runs) == ("admitted", {})
    there.unreachable = False
    tasks.knock()
    tasks.converge_all()
    workload.refresh_from_db()
    assert workload.state in ("starting", "running")
    assert len(there.runs) == 1


def test_recall_is_notified_although_the_cluster_is_unreachable(
    alice: User, clusters: dict[str, CountingCluster]
) -> None:
    workload = submit(alice, "there")
    claim = admit(workload)
    reconcile_claim(claim)
    tasks.converge_all()
    clusters["there-cluster"].unreachable = True
    tasks.converge_all()
    by = timezone.now() + dt.timedelta(minutes=10)
    Claim.objects.filter(public_id=claim).update(state=ClaimState.LEAVING, leave_by=by)
    reconcile_claim(claim)
    workload.refresh_from_db()
    assert workload.state == "recalled"
    assert InboxItem.objects.filter(user=alice, kind="workload.recalled").exists()


def test_page_says_since_when_the_cluster_is_unreachable(alice: User, clusters: dict[str, CountingCluster]) -> None:
    workload = submit(alice, "there")
    claim = admit(workload)

    client = Client()
    client.force_login(alice)

    def page(shown: Workload) -> str:
        return client.get(reverse("workloads:detail", args=["vision", shown.public_id])).content.decode()

    assert "Capacity is assigned; it starts in a moment." in page(workload)
    reconcile_claim(claim)
    assert "has been unreachable since" not in page(workload)
    Cluster.objects.filter(name="there-cluster").update(unreachable_since=timezone.now())
    assert "Its cluster has been unreachable since" in page(workload)
    assert "It keeps its cards" not in page(submit(alice, "there")), "a queued workload has no cards"

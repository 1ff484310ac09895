"""Idle work on a real node: pods run by a kubelet, measured by a real Prometheus, in a pool that lends.

No GPU is involved: the test's exporter reports what NVIDIA's DCGM exporter would, and Prometheus scrapes it. The samples of the
hour before are written into its database with its own tool (promtool), and the rounds go through that hour in steps of five
minutes; the last round is at the present time and decides by scraped samples.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.access import SYSTEM, Actor
from portal.infra.crypt import encrypt
from portal.models import Department, InboxItem, Role, User
from quotas.models import Claim, Cluster, ClusterKind, Decision, LedgerEntry, Pool
from quotas.previews.recall import preview_recall
from tests import builders as make
from tests.clusters import realcluster
from tests.clusters.node_bed import MERGE
from tests.clusters.realcluster import Admin
from tests.workloads.conftest import Bed
from tests.workloads.idle.labs import asked_of, compute, written
from tests.workloads.measurement.bed import Prometheus, dcgm, prometheus
from workloads import actions
from workloads.clusters.drivers import driver_for
from workloads.idle import spells
from workloads.idle.policies import set_policy
from workloads.idle.rule import Action, Rule
from workloads.measurement import buckets
from workloads.measurement.sample import measure_all
from workloads.models import Attempt, Image, MeasuredBucket, MetricsSource, Workload
from workloads.nodes import inventory
from workloads.notebooks import activity
from workloads.reconciler import idle_rounds
from workloads.requests.request import WorkloadRequest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

MINUTE = dt.timedelta(minutes=1)
STEP = 5 * MINUTE
UNWRITTEN = 10 * MINUTE
"""Prometheus has no written samples for this long before the present: its current values are scraped."""


@dataclass(kw_only=True)
class RealNode(Bed):
    """The test cluster's real node; all its eight cards are guaranteed to vision, none to nlp and speech."""

    patience = 90

    admin: Admin
    speech: Department
    sue: User

    def program(self, text: str) -> tuple[str, ...]:
        return ("python3", "-c", text)

    def notebook(self, user: User, department: Department, name: str) -> Workload:
        image = Image.objects.get_or_create(name="test.local/jupyter:4", title="Jupyter", kinds=["notebook"])[0]
        request = WorkloadRequest(
            kind="notebook", name=name, pool=self.pool, image=image, units_per_pod=1, cpu_milli=350, memory_mib=384
        )
        workload = actions.submit(actor=Actor(user), department=department, request=request)
        self.made.append(workload)
        return workload

    def job(self, user: User, department: Department, name: str, cards: int) -> Workload:
        request = WorkloadRequest(
            kind="job", name=name, pool=self.pool, image=self.image, command=self.program("import time; time.sleep(600)"),
            units_per_pod=cards, cpu_milli=100, memory_mib=64,
        )  # fmt: skip
        workload = actions.submit(actor=Actor(user), department=department, request=request)
        self.made.append(workload)
        return workload

    def running(self, *workloads: Workload) -> list[Attempt]:
        self.until(lambda: all(self.state(each) == "running" for each in workloads))
        return [each.attempts.select_related("workload", "cluster", "claim").get() for each in workloads]

    def pod(self, attempt: Attempt) -> Any:
        return self.admin.call("GET", f"/api/v1/namespaces/{attempt.namespace}/pods/{attempt.run_name}")

    def is_untouched(self, attempt: Attempt) -> bool:
        """Whether its pod runs, is not being stopped, and got no idle warning."""
        pod = self.pod(attempt)
        assert (pod["status"]["phase"], pod["metadata"].get("deletionTimestamp")) == ("Running", None)
        assert self.state(attempt.workload) == "running"
        return not attempt.idle_spells.exists()


@pytest.fixture
def bed(
    transactional_db: None, admin: Admin, portal_account: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RealNode]:  # fmt: skip
    monkeypatch.setattr(activity, "DEADLINE", 60.0)  # the node is part of a machine that may be busy
    name = realcluster.unique("idle")
    options = {"namespace_prefix": f"{name}-", "volume": "emptyDir", "image_pull_policy": "Never"}
    cluster = Cluster.objects.create(
        name=name, kind=ClusterKind.KUBERNETES, connection=encrypt(portal_account), options=options
    )
    inventory.refresh(cluster)
    pool = Pool.objects.get(product="Pretended-GPU")
    Pool.objects.filter(pk=pool.pk).update(notice=1, grace=2)
    vision, nlp, speech = (make.department(slug) for slug in ("vision", "nlp", "speech"))
    make.quota(vision, pool, 8)
    people = [make.member(each, username=who) for each, who in ((vision, "alice"), (nlp, "ned"), (speech, "sue"))]
    image = Image.objects.create(name="test.local/python:3", title="Python")
    real_node = RealNode(
        cluster, pool, vision, nlp, people[0], people[1], image, tmp_path, admin=admin, speech=speech, sue=people[2]
    )
    yield real_node
    driver = driver_for(cluster)
    for run in driver.observe():
        path = f"/api/v1/namespaces/{run.ref.namespace}/pods/{run.ref.name}"
        admin.call("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
        admin.call("DELETE", f"{path}?gracePeriodSeconds=0")
    for department in ("vision", "nlp", "speech"):
        admin.call("DELETE", f"/api/v1/namespaces/{name}-{department}")
    driver.api.close()  # type: ignore[attr-defined]


@contextmanager
def measuring(bed: RealNode, shares: dict[Attempt, float], now: dt.datetime) -> Iterator[Prometheus]:
    """A Prometheus with samples of the hour until ten minutes before `now`; it then scrapes and is connected to the cluster."""
    folder = bed.programs / "prometheus"
    (folder / "data").mkdir(parents=True)
    series = [
        dcgm("PROF_GR_ENGINE_ACTIVE", value, attempt.run_name, card, namespace=attempt.namespace)
        for card, (attempt, value) in enumerate(shares.items())
    ]
    written(folder, series, now - 80 * MINUTE, now - UNWRITTEN)
    Attempt.objects.update(started_at=now - dt.timedelta(hours=2))
    with prometheus(folder) as server:
        server.lines += series
        MetricsSource.objects.create(cluster=bed.cluster, url=server.url, exporters=["dcgm"])
        yield server


def rounds(until: dt.datetime, *, minutes: int, each: Callable[[dt.datetime], object]) -> None:
    """Runs measurement and idle review every five minutes over the last `minutes`, and calls `each` after every round."""
    now = until - minutes * MINUTE
    while now <= until:
        measure_all(now=now)
        idle_rounds.review(now=now)
        each(now)
        now += STEP


def present(server: Prometheus, attempts: list[Attempt]) -> dt.datetime:
    """A round at the present time, after every pod was scraped; missed buckets are made up for, one per turn.

    It waits until the current bucket is long enough: the one before may end before anything was scraped."""
    for attempt in attempts:
        server.until(f'count_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{{pod="{attempt.run_name}"}}[1m]) > 2')
    while (now := timezone.now()) - buckets.floor(now, buckets.BUCKET) < buckets.TOO_SHORT:
        time.sleep(0.5)
    for _ in range(4):
        measure_all(now=now)
    assert MetricsSource.objects.get().failing_since is None
    idle_rounds.review(now=now)
    return now


def labs(bed: RealNode) -> list[Attempt]:
    """Four running JupyterLabs: two of vision, two of nlp on borrowed cards; a kernel of the last one computes."""
    brought = realcluster.kit("bring", "jupyter", timeout=300)
    assert brought.returncode == 0, brought.stderr
    own = [bed.notebook(bed.alice, bed.vision, name) for name in ("asleep", "training")]
    borrowed = [bed.notebook(bed.bob, bed.nlp, name) for name in ("borrower", "computing")]
    attempts = bed.running(*own, *borrowed)
    for attempt in attempts:
        bed.until(lambda attempt=attempt: asked_of(attempt, "GET", "kernels") == [])  # type: ignore[misc]
    compute(attempts[-1])
    return attempts


def test_idle_notebooks_are_warned_can_be_kept_once_and_are_stopped_but_busy_ones_never(bed: RealNode) -> None:
    """The pool's policy stops only idle borrowers; then the quota owner sets a stricter policy for their own department."""
    borrowed = Rule(below=5, minutes=30, action=Action.BORROWED, countdown=10, keep=15)
    stop = Rule(below=5, minutes=30, action=Action.STOP, countdown=10, keep=15)
    set_policy(actor=SYSTEM, pool=bed.pool, department=None, rules={"notebook": borrowed}, expected_version=0)
    own, busy, lent, kernel = labs(bed)
    asleep, borrower = own.workload, lent.workload
    begun = timezone.now()
    first_notices: dict[str, dt.datetime] = {}

    def record_notices(now: dt.datetime) -> None:
        for kind, name in InboxItem.objects.values_list("kind", "data__name"):
            first_notices.setdefault(f"{kind.removeprefix('workload.idle_')} {name}", now)

    def record_and_keep(now: dt.datetime) -> None:
        record_notices(now)
        if "warned asleep" in first_notices and not own.idle_spells.exclude(kept_at=None).exists():
            spells.keep(actor=Actor(bed.alice), workload=asleep, now=now)
            with pytest.raises(spells.CannotKeep):
                spells.keep(actor=Actor(bed.alice), workload=asleep, now=now)

    with measuring(bed, {own: 0.01, busy: 0.8, lent: 0.0, kernel: 0.0}, begun) as server:
        rounds(begun - 30 * MINUTE, minutes=45, each=record_notices)
        assert set(first_notices) == {"warned borrower"}, "notebooks within the guarantee are not warned"
        bed.until(lambda: bed.state(borrower) == "cancelled")
        assert not LedgerEntry.objects.filter(own=False, ended_at=None, claim=lent.claim_id).exists()
        olivia = make.member(bed.vision, Role.OWNER, "olivia")
        set_policy(
            actor=Actor(olivia), pool=bed.pool, department=bed.vision, rules={"notebook": stop}, expected_version=0
        )  # fmt: skip
        rounds(begun - 15 * MINUTE, minutes=5, each=record_and_keep)
        assert first_notices["warned asleep"] == begun - 20 * MINUTE
        assert bed.is_untouched(busy)
        spell = own.idle_spells.get()
        assert (spell.kept_by, spell.stops_at) == (bed.alice, begun - 5 * MINUTE)
        assert spell.reminded_at == begun - 15 * MINUTE, (
            "the reminder comes as long before the end as the first warning"
        )
        asleep_line, busy_line, _stopped, kernel_line = server.lines
        server.lines[:] = [asleep_line, busy_line.replace(" 0.8", " 0.6"), kernel_line]
        server.until(f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{pod="{busy.run_name}"}} == 0.6')
        present(server, [own, busy, kernel])
    assert MeasuredBucket.objects.filter(attempt=busy).latest("at").gpu in range(600, 800), "scraped, not written"
    assert bed.state(asleep) == "stopping"
    bed.until(lambda: bed.state(asleep) == "cancelled")
    for stopped, attempt in ((asleep, own), (borrower, lent)):
        stopped.refresh_from_db()
        assert (stopped.reason, stopped.reclaims) == ("idle", 0)
        assert bed.pod(attempt).get("code") == 404
    for attempt in (busy, kernel):
        assert bed.is_untouched(attempt)
        assert asked_of(attempt, "GET", "kernels") is not None
    assert set(InboxItem.objects.values_list("user__username", "data__name")) == {
        ("alice", "asleep"),
        ("ned", "borrower"),
    }


def test_borrower_measured_as_idle_is_preempted_before_a_busy_one(bed: RealNode, client: Client) -> None:
    """The owner's preview agrees once it is measured; before that, the victim would be the one that has run for less time."""
    idle = bed.job(bed.bob, bed.nlp, "old-asr", 4)
    busy = bed.job(bed.sue, bed.speech, "young-llm", 4)
    attempts = bed.running(idle, busy)
    begun = timezone.now()

    def predicted_victims() -> list[str]:
        preview = preview_recall(actor=SYSTEM, department=bed.vision, pool=bed.pool, units=4)
        return [side.name for side in preview.stopped]

    with measuring(bed, dict(zip(attempts, (0.0, 0.9), strict=True)), begun) as server:
        Claim.objects.filter(pk=attempts[0].claim_id).update(started_at=begun - dt.timedelta(hours=20))
        Claim.objects.filter(pk=attempts[1].claim_id).update(started_at=begun - dt.timedelta(hours=2))
        assert predicted_victims() == ["young-llm"]
        rule = Rule(below=5, minutes=30, action=Action.NOTHING)
        set_policy(actor=SYSTEM, pool=bed.pool, department=None, rules={"job": rule}, expected_version=0)
        rounds(begun - 15 * MINUTE, minutes=45, each=lambda _now: None)
        present(server, attempts)
    assert not InboxItem.objects.exists()
    assert predicted_victims() == ["old-asr"]
    mine = bed.job(bed.alice, bed.vision, "mine", 4)
    [started] = bed.running(mine)
    decision = Decision.objects.filter(claim=started.claim_id, victims__isnull=False).get()
    assert [victim.name for victim in decision.victims.all()] == ["old-asr"]
    assert bed.is_untouched(attempts[1])
    assert bed.state(idle) == "queued"
    client.force_login(bed.bob)
    alternatives = client.get(f"/decisions/{decision.public_id}/alternatives/").content.decode()
    assert "by measurement, so stopping it loses only its restart." in alternatives

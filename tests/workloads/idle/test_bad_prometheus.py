"""A faulty Prometheus stops no workload: missing and wrong values do not count as idle."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.utils import timezone

from portal.access import SYSTEM
from portal.models import InboxItem
from quotas.models import Claim, LedgerEntry, Quarantine
from tests.workloads.measurement import bed
from tests.workloads.measurement.bed import Mood, World, vector
from workloads.idle.policies import set_policy
from workloads.idle.rule import Action, Rule
from workloads.measurement import buckets, prometheus, sources
from workloads.measurement.sample import measure_all
from workloads.models import Attempt, IdleSpell, MeasuredBucket, MetricsSource, Workload
from workloads.reconciler import gpu_faults, idle_rounds

pytestmark = pytest.mark.django_db(transaction=True)

STEP, SECOND = buckets.BUCKET, dt.timedelta(seconds=1)
POLICY = Rule(below=5, minutes=30, action=Action.STOP, countdown=10, keep=20)


@dataclass
class Watched:
    """`idle` does nothing on its card and is warned; `busy` computes."""

    here: World
    mood: Mood
    idle: Attempt
    busy: Attempt
    now: dt.datetime

    def series(self, idle: object = "0", busy: object = "0.8", **labels: str) -> bytes:
        values = ((self.idle, "GPU-1", idle), (self.busy, "GPU-2", busy))
        return vector(*(
            ({"pod": row.run_name, "namespace": row.namespace, "UUID": card} | labels, value) for row, card, value in values
        ))  # fmt: skip

    def advance(self, minutes: int) -> None:
        """Runs the scheduled jobs every five minutes."""
        for _ in range(minutes // 5):
            self.now += STEP
            measure_all(now=self.now)
            idle_rounds.review(now=self.now)
            gpu_faults.judge_all(now=self.now)
        self.here.source.refresh_from_db()

    def snapshot(self) -> dict[str, Any]:
        """Everything that wrong values of a Prometheus must not change."""
        return {
            "workloads": list(
                Workload.objects.order_by("pk").values("state", "reason", "cancel_requested_at", "reclaims")
            ),
            "attempts": list(Attempt.objects.order_by("pk").values("stop_cause", "stopping_at", "finished_at")),
            "claims": list(Claim.objects.order_by("pk").values("state", "leave_by")),
            "ledger": list(LedgerEntry.objects.order_by("pk").values()),
            "quarantines": list(Quarantine.objects.values()),
            "measured": list(MeasuredBucket.objects.order_by("attempt", "at").values()),
            "messages": list(InboxItem.objects.order_by("pk").values_list("kind", "data__name")),
        }


@pytest.fixture
def mood() -> Iterator[Mood]:
    created = Mood()
    yield created
    created.over.set()


@pytest.fixture
def watched(mood: Mood, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(prometheus, "SECONDS", 0.5)
    with bed.serving(mood) as url:
        here = bed.world(url)
        MetricsSource.objects.update(exporters=["dcgm"])
        set_policy(actor=SYSTEM, pool=here.pool, department=None, rules={"job": POLICY}, expected_version=0)
        begin = buckets.floor(timezone.now(), STEP) + SECOND
        created = Watched(here, mood, bed.attempt(here), bed.attempt(here), begin)
        mood.answer = (200, {}, created.series())
        created.advance(35)
        assert list(IdleSpell.objects.values_list("attempt", flat=True)) == [created.idle.pk]
        yield created


def matrix(watched: Watched) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, watched.series().replace(b'"vector"', b'"matrix"')


def responding(idle: object, busy: object, **labels: str) -> Callable[[Watched], tuple[int, dict[str, str], bytes]]:
    return lambda watched: (200, {}, watched.series(idle, busy, **labels))


BAD: dict[str, Callable[[Watched], tuple[int, dict[str, str], bytes]]] = {
    "an error": lambda _watched: (500, {}, b"oops"),
    "a matrix": matrix,
    "no series": lambda _watched: (200, {}, vector()),
    "NaN": responding("NaN", "NaN"),
    "infinite": responding("+Inf", "-Inf"),
    "impossible": responding("-1", "1e300"),
    "another cluster's": responding("0", "0", namespace="elsewhere"),
    "another cluster's instances": responding("0", "0", GPU_I_ID="3"),
}


@pytest.mark.parametrize("kind", BAD)
def test_wrong_response_stops_no_workload_and_is_reported_as_a_failure(watched: Watched, kind: str) -> None:
    watched.mood.answer = BAD[kind](watched)
    check_that_nothing_changes(watched)


def test_slow_prometheus_stops_no_workload(watched: Watched) -> None:
    watched.mood.held = True
    check_that_nothing_changes(watched)


def test_unreachable_prometheus_stops_no_workload(watched: Watched) -> None:
    url = watched.here.source.url
    MetricsSource.objects.update(url="http://127.0.0.1:9")
    check_that_nothing_changes(watched, repair=lambda: MetricsSource.objects.update(url=url))


def check_that_nothing_changes(watched: Watched, minutes: int = 15, repair: Callable[[], object] = int) -> None:
    """Nothing changes for longer than the countdown; measured again, `idle` is still warned, and is stopped after a new one."""
    before, at = watched.snapshot(), watched.here.source.measured_at
    since = watched.now
    watched.advance(minutes)
    assert watched.snapshot() == before
    source = watched.here.source
    assert (source.measured_at, source.failing_since) == (at, since + STEP)
    assert sources.failure_text(source.failure)
    repair()
    watched.mood.over.set()
    watched.mood.held, watched.mood.answer = False, (200, {}, watched.series())
    watched.advance(5)
    assert watched.here.source.failing_since is None
    assert {row["state"] for row in watched.snapshot()["workloads"]} == {"running"}, "the countdown has started again"
    watched.advance(10)
    states = dict(Workload.objects.values_list("pk", "state"))
    assert states == {watched.idle.workload_id: "stopping", watched.busy.workload_id: "running"}


@pytest.mark.parametrize("idle", ["NaN", "-3"])
def test_invalid_value_of_one_workload_does_not_affect_another(watched: Watched, idle: str) -> None:
    watched.mood.answer = (200, {}, watched.series(idle))
    watched.advance(20)
    source = watched.here.source
    assert (source.failing_since, source.ranks) == (None, 1)
    assert {row["state"] for row in watched.snapshot()["workloads"]} == {"running"}
    assert (
        MeasuredBucket.objects.filter(attempt=watched.busy).count()
        > MeasuredBucket.objects.filter(attempt=watched.idle).count()
    )


def test_duplicate_series_and_those_of_another_cluster_change_nothing(watched: Watched) -> None:
    """Of two series that differ the mean counts; series of another cluster are ignored."""
    twice = [
        ({"pod": row.run_name, "namespace": row.namespace, "UUID": card, "job": job}, value)
        for row, card, value in ((watched.idle, "GPU-1", "0.01"), (watched.busy, "GPU-2", "0.6"))
        for job in ("a", "b")
    ]
    elsewhere = [({"pod": watched.idle.run_name, "namespace": "other-vision", "UUID": "GPU-9"}, "1")]
    watched.mood.answer = (200, {}, vector(*twice, *elsewhere))
    watched.advance(10)
    last = MeasuredBucket.objects.order_by("-at")
    assert [last.filter(attempt=row)[0].gpu for row in (watched.idle, watched.busy)] == [10, 600]
    assert [last.filter(attempt=row)[0].cards for row in (watched.idle, watched.busy)] == [1, 1]
    assert dict(Workload.objects.values_list("pk", "state")) == {
        watched.idle.workload_id: "stopping",
        watched.busy.workload_id: "running",
    }

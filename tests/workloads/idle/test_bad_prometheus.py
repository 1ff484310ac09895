"""Whatever is wrong with a Prometheus stops nobody: what it does not say is not idleness."""

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

    def go_on(self, minutes: int) -> None:
        """The job of each minute, every five minutes."""
        for _ in range(minutes // 5):
            self.now += STEP
            measure_all(now=self.now)
            idle_rounds.review(now=self.now)
            gpu_faults.judge_all(now=self.now)
        self.here.source.refresh_from_db()

    def stands(self) -> dict[str, Any]:
        """What must not change, whatever a Prometheus says that is not so."""
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
    made = Mood()
    yield made
    made.over.set()


@pytest.fixture
def watched(mood: Mood, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(prometheus, "SECONDS", 0.5)
    with bed.serving(mood) as url:
        here = bed.world(url)
        MetricsSource.objects.update(exporters=["dcgm"])
        set_policy(actor=SYSTEM, pool=here.pool, department=None, rules={"job": POLICY}, expected_version=0)
        begin = buckets.floor(timezone.now(), STEP) + SECOND
        made = Watched(here, mood, bed.attempt(here), bed.attempt(here), begin)
        mood.answer = (200, {}, made.series())
        made.go_on(35)
        assert list(IdleSpell.objects.values_list("attempt", flat=True)) == [made.idle.pk]
        yield made


def matrix(watched: Watched) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, watched.series().replace(b'"vector"', b'"matrix"')


def said(idle: object, busy: object, **labels: str) -> Callable[[Watched], tuple[int, dict[str, str], bytes]]:
    return lambda watched: (200, {}, watched.series(idle, busy, **labels))


BAD: dict[str, Callable[[Watched], tuple[int, dict[str, str], bytes]]] = {
    "an error": lambda _watched: (500, {}, b"oops"),
    "a matrix": matrix,
    "no series": lambda _watched: (200, {}, vector()),
    "NaN": said("NaN", "NaN"),
    "infinite": said("+Inf", "-Inf"),
    "impossible": said("-1", "1e300"),
    "another cluster's": said("0", "0", namespace="elsewhere"),
    "another cluster's instances": said("0", "0", GPU_I_ID="3"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_wrong_one_stops_nobody_and_is_said_not_to_measure(watched: Watched, kind: str) -> None:
    watched.mood.answer = BAD[kind](watched)
    check_that_nothing_changes(watched)


def test_nor_does_a_slow_one(watched: Watched) -> None:
    watched.mood.held = True
    check_that_nothing_changes(watched)


def test_nor_one_that_is_away(watched: Watched) -> None:
    url = watched.here.source.url
    MetricsSource.objects.update(url="http://127.0.0.1:9")
    check_that_nothing_changes(watched, well=lambda: MetricsSource.objects.update(url=url))


def check_that_nothing_changes(watched: Watched, minutes: int = 15, well: Callable[[], object] = int) -> None:
    """For longer than the countdown; then, measured again, it is warned still and stopped after a new one."""
    before, at = watched.stands(), watched.here.source.measured_at
    since = watched.now
    watched.go_on(minutes)
    assert watched.stands() == before
    source = watched.here.source
    assert (source.measured_at, source.failing_since) == (at, since + STEP)
    assert sources.failure_text(source.failure)
    well()
    watched.mood.over.set()
    watched.mood.held, watched.mood.answer = False, (200, {}, watched.series())
    watched.go_on(5)
    assert watched.here.source.failing_since is None
    assert {row["state"] for row in watched.stands()["workloads"]} == {"running"}, "there is a countdown again"
    watched.go_on(10)
    states = dict(Workload.objects.values_list("pk", "state"))
    assert states == {watched.idle.workload_id: "stopping", watched.busy.workload_id: "running"}


@pytest.mark.parametrize("idle", ["NaN", "-3"])
def test_what_is_not_known_of_one_is_not_known_of_it_alone(watched: Watched, idle: str) -> None:
    watched.mood.answer = (200, {}, watched.series(idle))
    watched.go_on(20)
    source = watched.here.source
    assert (source.failing_since, source.ranks) == (None, 1)
    assert {row["state"] for row in watched.stands()["workloads"]} == {"running"}
    assert (
        MeasuredBucket.objects.filter(attempt=watched.busy).count()
        > MeasuredBucket.objects.filter(attempt=watched.idle).count()
    )


def test_series_scraped_twice_and_another_clusters_beside_them_change_nothing(watched: Watched) -> None:
    """Of two that differ the mean counts; those of somebody else do not."""
    twice = [
        ({"pod": row.run_name, "namespace": row.namespace, "UUID": card, "job": job}, value)
        for row, card, value in ((watched.idle, "GPU-1", "0.01"), (watched.busy, "GPU-2", "0.6"))
        for job in ("a", "b")
    ]
    elsewhere = [({"pod": watched.idle.run_name, "namespace": "other-vision", "UUID": "GPU-9"}, "1")]
    watched.mood.answer = (200, {}, vector(*twice, *elsewhere))
    watched.go_on(10)
    last = MeasuredBucket.objects.order_by("-at")
    assert [last.filter(attempt=row)[0].gpu for row in (watched.idle, watched.busy)] == [10, 600]
    assert [last.filter(attempt=row)[0].cards for row in (watched.idle, watched.busy)] == [1, 1]
    assert dict(Workload.objects.values_list("pk", "state")) == {
        watched.idle.workload_id: "stopping",
        watched.busy.workload_id: "running",
    }

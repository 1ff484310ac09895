"""From the process to the stop: three real JupyterLabs of the embedded cluster, with the use of their cards in a real Prometheus.

There is no GPU: two hours of what NVIDIA's DCGM exporter would have reported of the notebooks are written into Prometheus by its
own tool (promtool), and the rounds walk through them in steps of five minutes.
"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import pytest
from django.utils import timezone

from portal.access import SYSTEM, Actor
from portal.models import InboxItem
from tests.workloads.conftest import Bed
from tests.workloads.idle.labs import asked_of, compute, written
from tests.workloads.measurement.bed import dcgm, prometheus
from workloads import actions
from workloads.clusters.drivers import driver_for
from workloads.clusters.run_spec import ref_of
from workloads.idle import spells
from workloads.idle.policies import set_policy
from workloads.idle.rule import Action, Rule
from workloads.measurement import buckets, sample
from workloads.measurement.prometheus import Server
from workloads.measurement.series import queries_of
from workloads.models import Attempt, Image, MetricsSource, Workload
from workloads.reconciler import idle_rounds
from workloads.requests.request import WorkloadRequest

STEP, SECOND = dt.timedelta(minutes=5), dt.timedelta(seconds=1)
POLICY = Rule(below=5, minutes=30, action=Action.STOP, countdown=10, keep=20)


def notebook(bed: Bed, name: str) -> Attempt:
    """A JupyterLab that responds."""
    image = Image.objects.get_or_create(name="lab", title="Lab", interpreter=str(Path(sys.executable).absolute()))[0]
    request = WorkloadRequest(
        kind="notebook", name=name, pool=bed.pool, image=image, units_per_pod=1, cpu_milli=1000, memory_mib=1024
    )
    workload = actions.submit(actor=Actor(bed.alice), department=bed.vision, request=request)
    bed.made.append(workload)
    bed.until(lambda: bed.state(workload) == "running")
    attempt = workload.attempts.select_related("workload", "cluster", "claim").get()
    bed.until(lambda: driver_for(bed.cluster).endpoint(ref_of(attempt)) is not None, 60)
    bed.until(lambda: asked_of(attempt, "GET", "kernels") == [], 60)
    return attempt


def measured(bed: Bed, url: str, now: dt.datetime) -> None:
    """A round of the measuring job that asks Prometheus, as for a cluster of Kubernetes."""
    source, _new = MetricsSource.objects.get_or_create(cluster=bed.cluster)
    asked = sample.Round(
        source, buckets.windows_due(source.complete_until, now), queries_of(["dcgm"]), Server(url)
    )  # fmt: skip
    sample.finish(asked, sample._answers(asked), now=now)
    source.refresh_from_db()
    assert source.failure == {}


@pytest.mark.timeout(400)
def test_idle_notebook_is_warned_kept_once_then_stopped_and_busy_ones_never(bed: Bed, tmp_path: Path) -> None:
    set_policy(actor=SYSTEM, pool=bed.pool, department=None, rules={"notebook": POLICY}, expected_version=0)
    asleep, training, computing = (notebook(bed, name) for name in ("asleep", "training", "computing"))
    compute(computing)
    end = buckets.floor(timezone.now(), STEP)
    Attempt.objects.update(started_at=end - dt.timedelta(hours=3))
    history = {asleep: 0.01, training: 0.8, computing: 0.0}
    folder = tmp_path / "prometheus"
    (folder / "data").mkdir(parents=True)
    series = [
        dcgm("PROF_GR_ENGINE_ACTIVE", value, each.run_name, card) for card, (each, value) in enumerate(history.items())
    ]
    written(folder, series, end - dt.timedelta(hours=2), end)
    warned = reminded = stopped = None
    with prometheus(folder) as server:
        now = end - dt.timedelta(minutes=110)
        while now < end and stopped is None:
            now += STEP
            measured(bed, server.url, now + SECOND)
            idle_rounds.review(now=now + SECOND)
            kinds = list(InboxItem.objects.order_by("pk").values_list("kind", flat=True))
            if warned is None and kinds:
                assert kinds == ["workload.idle_warned"]
                warned = now
                spells.keep(actor=Actor(bed.alice), workload=asleep.workload, now=now + SECOND)
                with pytest.raises(spells.CannotKeep):
                    spells.keep(actor=Actor(bed.alice), workload=asleep.workload, now=now + SECOND)
            if reminded is None and len(kinds) == 2:
                reminded = now
            if Workload.objects.get(pk=asleep.workload_id).state == "stopping":
                stopped = now
    assert warned is not None
    assert reminded is not None
    assert stopped is not None
    assert (reminded - warned, stopped - warned) == (2 * STEP, 4 * STEP), (
        "kept for 20 minutes, with a reminder 10 minutes before the end"
    )
    bed.until(lambda: bed.state(asleep.workload) == "cancelled", 60)
    asleep.workload.refresh_from_db()
    assert (asleep.workload.reason, asleep.workload.reclaims) == ("idle", 0)
    assert driver_for(bed.cluster).endpoint(ref_of(asleep)) is None
    for busy in (training, computing):
        assert bed.state(busy.workload) == "running"
        assert not busy.idle_spells.exists()
        assert asked_of(busy, "GET", "kernels") is not None
    names = set(InboxItem.objects.values_list("data__name", flat=True))
    assert names == {"asleep"}, "nobody was notified of the others"

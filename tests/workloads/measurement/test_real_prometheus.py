"""A real Prometheus scrapes an exporter that simulates the output of DCGM, HAMi and cAdvisor (bed.py)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from portal.access import SYSTEM
from portal.models import Event
from tests import builders as make
from tests.workloads.measurement import bed
from tests.workloads.measurement.bed import Prometheus, World, dcgm, line
from workloads.measurement import sources
from workloads.measurement.sample import measure_all
from workloads.models import Attempt, MeasuredBucket, MetricsSource

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with bed.prometheus(tmp_path_factory.mktemp("prometheus")) as created:
        yield created


@pytest.fixture
def here(server: Prometheus) -> World:
    server.lines[:] = []
    return bed.world(server.url)


def use_of(attempt: Attempt, rank: int = 0) -> MeasuredBucket:
    return MeasuredBucket.objects.filter(attempt=attempt, rank=rank).order_by("-at")[0]


def containers(server: Prometheus, pod: str, *, memory: int) -> None:
    """Counters that grow by half a core, as cAdvisor has them, with the pause container and duplicate series."""
    own = {"namespace": "gqp-vision", "pod": pod}
    server.lines += [
        line("container_cpu_usage_seconds_total", time.time() / 2, **own, container="main", id="/a"),
        line("container_cpu_usage_seconds_total", 5, **own, container="", id="/pod"),
        line("container_cpu_usage_seconds_total", 5, **own, container="POD", id="/pause"),
        line("container_memory_working_set_bytes", memory, **own, container="main", id="/a"),
        line("container_memory_working_set_bytes", memory, **own, container="main", id="/a", job="scraped-twice"),
        line("container_memory_working_set_bytes", 2 * memory, **own, container="", id="/pod"),
    ]


def test_a_job_of_two_cards_and_a_gang_are_measured(server: Prometheus, here: World) -> None:
    job, gang = bed.attempt(here, units=2), bed.attempt(here, kind="distributed", pods=2)
    server.lines += [
        dcgm("PROF_GR_ENGINE_ACTIVE", 0.9, job.run_name, 0), dcgm("PROF_GR_ENGINE_ACTIVE", 0.1, job.run_name, 1),
        dcgm("DEV_GPU_UTIL", 99, job.run_name, 0), dcgm("DEV_FB_USED", 30000, job.run_name, 0),
        dcgm("DEV_FB_USED", 10000, job.run_name, 1), dcgm("DEV_POWER_USAGE", 250.4, job.run_name, 0),
        dcgm("DEV_GPU_UTIL", 40, f"{gang.run_name}-1-abcde", 2), dcgm("DEV_GPU_UTIL", "NaN", f"{gang.run_name}-0-abcde", 3),
        dcgm("DEV_GPU_UTIL", 77, job.run_name, 5, namespace="elsewhere"),
    ]  # fmt: skip
    containers(server, job.run_name, memory=2**30)
    server.until(f'DCGM_FI_DEV_GPU_UTIL{{pod="{gang.run_name}-1-abcde"}}')
    server.until(f'rate(container_cpu_usage_seconds_total{{pod="{job.run_name}"}}[2m])')
    measure_all(now=timezone.now())
    found = use_of(job)
    assert (found.gpu, found.gpu_mib, found.watts, found.cards) == (500, 40000, 250, 2)
    assert found.memory_mib == 1024
    assert found.cpu_milli is not None
    assert use_of(gang, 1).gpu == 400
    assert not MeasuredBucket.objects.filter(attempt=gang, rank=0).exists()  # NaN is nothing, not 0
    here.source.refresh_from_db()
    assert (here.source.failing_since, here.source.ranks, here.source.gpu_ranks) == (None, 2, 2)


def test_cpu_is_the_rate_of_a_counter_that_grows(server: Prometheus, here: World) -> None:
    job = bed.attempt(here)
    own = {"namespace": "gqp-vision", "pod": job.run_name, "container": "main"}
    begun = time.monotonic()
    while server.value(f'count_over_time(container_cpu_usage_seconds_total{{pod="{job.run_name}"}}[1m]) > 8') is None:
        assert time.monotonic() < begun + 40
        server.lines[:] = [line("container_cpu_usage_seconds_total", 2 * (time.monotonic() - begun), **own)]
        time.sleep(0.05)
    measure_all(now=timezone.now())
    cpu = use_of(job).cpu_milli
    assert cpu is not None
    # The growth of 2 s is spread over the 2 min that are requested: Prometheus extrapolates only to the edges of the counter.
    assert 0 < cpu <= 2200


def test_mig_instances_and_parts_of_cards_are_attributed(server: Prometheus, here: World) -> None:
    slices = make.pool("mig", unit="slice", units_per_card=7, group=here.pool.group, sharing="mig")
    parts = make.pool("hami", unit="MiB", units_per_card=81920, group=here.pool.group, sharing="hami")
    mig = bed.attempt(here, pool=slices, profile="1g.10gb")
    part = bed.attempt(here, pool=parts, units=8192, cores_per_pod=50)
    instance = {"GPU_I_ID": "9", "GPU_I_PROFILE": "1g.10gb"}
    hami = {"podname": part.run_name, "podnamespace": "gqp-vision", "ctrname": "main", "deviceuuid": bed.CARD.format(4)}
    server.lines += [
        dcgm("PROF_GR_ENGINE_ACTIVE", 0.25, mig.run_name, **instance), dcgm("DEV_FB_USED", 700, mig.run_name, **instance),
        dcgm("DEV_POWER_USAGE", 300, mig.run_name, **instance), dcgm("DEV_GPU_UTIL", 100, part.run_name, 4),
        line("Device_utilization_desc_of_container", 20, **hami), line("vGPU_device_memory_usage_in_bytes", 2**32, **hami),
    ]  # fmt: skip
    server.until(f'vGPU_device_memory_usage_in_bytes{{podname="{part.run_name}"}}')
    measure_all(now=timezone.now())
    assert (use_of(mig).gpu, use_of(mig).gpu_mib, use_of(mig).watts) == (250, 700, None)
    assert (use_of(part).gpu, use_of(part).gpu_mib) == (400, 4096)  # 20 % of the card is 40 % of the half it may use


def test_selector_restricts_a_prometheus_of_several_clusters_to_one(server: Prometheus, here: World) -> None:
    job = bed.attempt(here)
    server.lines += [
        dcgm("DEV_GPU_UTIL", 10, job.run_name, cluster="a"), dcgm("DEV_GPU_UTIL", 90, job.run_name, cluster="b")
    ]  # fmt: skip
    MetricsSource.objects.update(selector='cluster="a"')
    server.until(f'DCGM_FI_DEV_GPU_UTIL{{pod="{job.run_name}",cluster="b"}}')
    measure_all(now=timezone.now())
    assert use_of(job).gpu == 100


def test_prometheus_without_series_of_any_pod_is_reported_as_not_measuring(server: Prometheus, here: World) -> None:
    job = bed.attempt(here, pods=1)
    measure_all(now=timezone.now())
    here.source.refresh_from_db()
    assert here.source.failing_since is not None
    assert "none" not in here.source.failure
    assert "no series of any of the 1 pods" in sources.failure_text(here.source.failure)
    server.lines += [dcgm("DEV_GPU_UTIL", 10, job.run_name)]
    server.until(f'DCGM_FI_DEV_GPU_UTIL{{pod="{job.run_name}"}}')
    measure_all(now=timezone.now())
    here.source.refresh_from_db()
    assert (here.source.failing_since, here.source.failure) == (None, {})
    assert list(Event.objects.order_by("id").values_list("kind", flat=True)) == [
        "cluster.not_measured",
        "cluster.measured",
    ]


def test_connection_test_reports_metrics_their_nodes_and_their_age(server: Prometheus, here: World) -> None:
    job = bed.attempt(here)
    here.cluster.nodes.create(name="n1", sharing="whole")
    server.lines += [dcgm("DEV_GPU_UTIL", 10, job.run_name, 0), dcgm("DEV_GPU_UTIL", 10, "", 1)]
    server.until(f'DCGM_FI_DEV_GPU_UTIL{{pod="{job.run_name}"}}')
    found = sources.try_source(actor=SYSTEM, cluster=here.cluster)
    by_metric = {each.metric: each for each in found.metrics}
    util = by_metric["DCGM_FI_DEV_GPU_UTIL"]
    assert (util.series, util.nodes) == (2, ("n1",))
    assert util.age is not None
    assert util.age < 60
    assert by_metric["DCGM_FI_DEV_FB_USED"].age is None
    assert found.pods == 1
    assert found.silent == ("a100-n1",)
    assert not found.is_nothing


def test_selector_that_prometheus_rejects_is_reported_at_its_field(server: Prometheus, here: World) -> None:
    wish = sources.Wish(server.url, selector='cluster=~"("')
    with pytest.raises(sources.Invalid) as refused:
        sources.try_source(actor=SYSTEM, cluster=here.cluster, wish=wish)
    assert refused.value.field == "selector"
    assert "parse error" in refused.value.detail


def test_saving_tests_the_connection_first_and_encrypts_the_secret(
    server: Prometheus, here: World, settings: Any
) -> None:
    wish = sources.Wish(server.url, auth="bearer", secret="t0ken")
    created = sources.set_source(actor=SYSTEM, cluster=here.cluster, wish=wish)
    assert MetricsSource.objects.get().pk == created.pk == here.source.pk
    assert "t0ken" not in MetricsSource.objects.get().secret

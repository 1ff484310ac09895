"""Real pods of a job, a gang and a service are recognised in the samples of a real Prometheus.

No GPU is involved: the test's exporter reports what NVIDIA's DCGM exporter would for pods of these names.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest

from portal.ids import new_id
from tests.clusters.beds import FOREVER, Bed, eventually
from tests.clusters.realcluster import Admin
from tests.clusters.test_gangs import SERVE, gang, service, until
from tests.workloads.measurement.bed import dcgm, prometheus
from workloads.measurement.prometheus import Server, ask
from workloads.measurement.series import EXPORTERS, Run, attribute, queries_of
from workloads.runtime.base import Phase, RunSpec

pytestmark = pytest.mark.cluster


def named(spec: RunSpec) -> RunSpec:
    """The spec with a run name as the portal gives it."""
    return replace(spec, ref=replace(spec.ref, name=f"w-{new_id()}-1"))


def test_measured_use_of_each_pod_is_attributed_to_its_rank(kubernetes_bed: Bed, admin: Admin, tmp_path: Path) -> None:
    job = named(kubernetes_bed.spec("forever"))
    pair, web = named(gang(kubernetes_bed, FOREVER)), named(service(kubernetes_bed, SERVE))
    specs = [job, pair, web]
    for spec in specs:
        kubernetes_bed.driver.ensure(spec)
    for spec in specs:
        until(kubernetes_bed, spec, Phase.RUNNING)
    namespace = job.ref.namespace

    def pods() -> list[tuple[str, str]]:
        """The name and the rank, as Kubernetes gives it, of all running pods."""
        items = admin.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        index = "batch.kubernetes.io/job-completion-index"
        ranked = [(pod["metadata"]["name"], pod["metadata"]["labels"].get(index, "0")) for pod in items]
        return sorted(each for each in ranked if each[0].startswith("w-"))

    listed = eventually(lambda: ranked if len(ranked := pods()) == 4 else None)
    assert listed is not None
    now = dt.datetime.now(dt.UTC)
    runs = {
        spec.ref.name: Run(number, namespace, spec.pods, spec.kind, "whole", now)
        for number, spec in enumerate(specs, start=1)
    }
    with prometheus(tmp_path) as server:
        server.lines += [
            dcgm("PROF_GR_ENGINE_ACTIVE", 0.2 + 0.1 * card, name, card, namespace=namespace)
            for card, (name, _rank) in enumerate(listed)
        ]
        server.until(f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{pod="{listed[-1][0]}"}}')
        answers = ask(Server(server.url), queries_of(EXPORTERS), at=dt.datetime.now(dt.UTC), seconds=60)
    uses = attribute(answers, runs)
    expected = {}
    for card, (name, rank) in enumerate(listed):
        run = next(run for run_name, run in runs.items() if name.startswith(run_name))
        expected[run.attempt, int(rank)] = pytest.approx(0.2 + 0.1 * card)
    assert {place: use.gpu for place, use in uses.items()} == expected
    assert set(expected) == {(1, 0), (2, 0), (2, 1), (3, 0)}

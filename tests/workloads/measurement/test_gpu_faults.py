"""XID errors as the DCGM exporter reports them, from series to quarantines. Labels are those of the exporter's own output."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from quotas.health.signs import AWAY
from quotas.models import Cluster, ClusterKind, Node, Quarantine
from tests import builders as make
from workloads.kubernetes.manifests import Options
from workloads.measurement.gpu_faults import faults_of
from workloads.measurement.prometheus import NotMeasured
from workloads.measurement.series import Sample
from workloads.models import MetricsSource
from workloads.reconciler import gpu_faults

XIDS = Options().health_xids


def series(xid: float, gpu: str = "GPU-1", node: str = "a100-n1", **labels: str) -> Sample:
    return Sample({"__name__": "DCGM_FI_DEV_XID_ERRORS", "gpu": "0", "UUID": gpu, "Hostname": node, **labels}, xid)


def test_hardware_errors_are_faults_and_program_errors_are_not() -> None:
    errors = faults_of([series(79), series(31, "GPU-2"), series(0, "GPU-3")], [], XIDS)["a100-n1"]
    assert {sign: str(note) for sign, note in errors.faults.items()} == {"gpu/xid/GPU-1": "XID 79 on GPU GPU-1"}
    assert errors.well == {"gpu/xid/GPU-3"}


def test_a_fault_counts_more_than_a_stale_series_of_the_same_gpu() -> None:
    errors = faults_of([series(0), series(48, err_code="48")], [], XIDS)["a100-n1"]
    assert (list(errors.faults), errors.well) == (["gpu/xid/GPU-1"], set())


@given(st.lists(st.tuples(st.floats(allow_nan=False), st.sampled_from(["GPU-1", ""]), st.sampled_from(["n", ""]))))
def test_faults_are_consistent_for_any_samples(values: list[tuple[float, str, str]]) -> None:
    samples = [Sample({"UUID": gpu, "Hostname": node}, value) for value, gpu, node in values]
    errors = faults_of(samples, samples, XIDS)
    for own in errors.values():
        assert not own.faults.keys() & own.well
        assert all(note.params.get("xid", XIDS[0]) in XIDS for note in own.faults.values())


@pytest.mark.parametrize("xids", [[0], [True], ["79"], [13], [31], [43], [45], [1000]])
def test_invalid_lists_of_xids_are_rejected(xids: list[Any]) -> None:
    with pytest.raises(ValueError, match="option health_xids"):
        Options.from_json({"health_xids": xids})


@pytest.fixture
def cluster(db: None) -> Cluster:
    cluster = make.pool("a100", cards=4).group.cluster
    Cluster.objects.update(kind=ClusterKind.KUBERNETES)
    MetricsSource.objects.create(cluster=cluster, url="https://prometheus.example.org", exporters=["dcgm"])
    return cluster


def look(
    monkeypatch: pytest.MonkeyPatch,
    *samples: Sample,
    health: tuple[Sample, ...] = (),
    after: dt.timedelta = dt.timedelta(),
) -> bool:
    """Runs one round; returns whether the node is quarantined afterwards."""
    monkeypatch.setattr(gpu_faults, "ask_texts", lambda server, texts, at: [samples, health])
    gpu_faults.judge_all(now=timezone.now() + after)
    return Node.objects.get().quarantined


def test_a_node_is_quarantined_until_its_gpu_was_reset(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not look(monkeypatch, series(31))
    assert look(monkeypatch, series(79))
    assert Quarantine.objects.get().reason["params"] == {"xid": 79, "gpu": "GPU-1"}
    for sample in (series(31), series(0, "GPU-2")):  # a program's error since; the GPU has fallen off the bus
        look(monkeypatch, sample)
        assert look(monkeypatch, sample, after=2 * AWAY)
    look(monkeypatch, after=2 * AWAY)
    assert look(monkeypatch, after=4 * AWAY), "nothing is known of the node"
    look(monkeypatch, series(0))
    assert not look(monkeypatch, series(0), after=2 * AWAY)
    assert Quarantine.objects.count() == 1


def test_a_failed_health_watch_quarantines_until_all_pass(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def watches(*values: int) -> tuple[Sample, ...]:
        names = ("PCIE", "MEM", "INFOROM")
        return tuple(series(value, health_watch=name) for value, name in zip(values, names, strict=False))

    assert not look(monkeypatch, health=watches(0, 10))
    assert look(monkeypatch, health=watches(0, 20))
    assert Quarantine.objects.get().sign == "gpu/health/GPU-1"
    look(monkeypatch, health=watches(0, 10))
    assert not look(monkeypatch, health=watches(0, 0), after=2 * AWAY)


def test_unreachable_prometheus_changes_no_quarantine(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    look(monkeypatch, series(79))

    def unreachable(server: Any, texts: Any, at: Any) -> Any:
        raise NotMeasured("unreachable")

    monkeypatch.setattr(gpu_faults, "ask_texts", unreachable)
    assert gpu_faults.judge_all(now=timezone.now() + 2 * AWAY) == 0
    assert Node.objects.get().quarantined


def test_operator_can_configure_which_errors_count(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster.objects.update(options={"health_xids": [48]})
    assert not look(monkeypatch, series(79))
    assert look(monkeypatch, series(48))

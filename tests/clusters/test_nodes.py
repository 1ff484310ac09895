"""Nodes that appear, disappear, are tainted, stop responding or lose devices, and the effect on pools and workloads."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from django.test import Client

from portal.access import Actor
from quotas.health.quarantines import put_back
from quotas.models import Card, Claim, ClaimState, Cluster, Pool, Quarantine
from tests import builders as make
from tests.clusters.node_bed import NodeBed, bed, ready  # noqa: F401 a fixture
from workloads.clusters.drivers import driver_for
from workloads.kubernetes.driver import KubernetesCluster
from workloads.models import Attempt
from workloads.nodes import inventory
from workloads.runtime.base import Look, Observed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def test_workload_on_a_removed_node_is_lost_and_requeued(bed: NodeBed) -> None:  # noqa: F811
    job = bed.running()
    bed.admin.call("DELETE", bed.node)
    inventory.refresh(bed.cluster)
    assert not bed.cluster.nodes.get(name=bed.name).present
    assert bed.state(job) == "running", "it may still run until the control plane has ended it"
    bed.until(lambda: bed.state(job) == "queued", 120)
    first, second = job.attempts.order_by("number")
    assert (first.outcome, first.exit_code, job.reclaims) == ("lost", None, 0)
    assert (second.claim.state, first.claim.state) == (ClaimState.PENDING, ClaimState.RELEASED)
    bed.until(lambda: bed.pod(job).get("code") == 404)


def test_unresponsive_node_keeps_its_workloads_until_the_operators_time_limit(bed: NodeBed) -> None:  # noqa: F811
    job = bed.running()
    bed.patch({"metadata": {"annotations": {"kwok.x-k8s.io/node": None}}})  # its kubelet is gone
    bed.patch({"status": {"conditions": [ready("Unknown", dt.timedelta(minutes=10))]}}, "/status")
    inventory.refresh(bed.cluster)
    assert "not ready" in bed.cluster.nodes.get(name=bed.name).held_back
    bed.turn()
    assert bed.state(job) == "running"
    options = bed.cluster.options | {"lost_after": 300}
    Cluster.objects.filter(pk=bed.cluster.pk).update(options=options)
    bed.until(lambda: bed.state(job) == "queued")
    first = job.attempts.order_by("number")[0]
    assert (first.outcome, first.reason) == ("lost", "NodeLost")
    assert "deletionTimestamp" in bed.pod(job)["metadata"], "if the node returns, the pod ends at once"
    bed.turn()
    assert Attempt.objects.get(pk=first.pk).removed_at is None, (
        "the attempt is watched until its pod is known to be gone"
    )
    assert Claim.objects.get(attempt__number=2).state == ClaimState.PENDING


def test_lost_device_makes_its_pool_short_until_it_is_repaired(bed: NodeBed) -> None:  # noqa: F811
    def healthy() -> int:
        return Card.objects.filter(pool=bed.pool, healthy=True).count()

    def board() -> str:
        page = Client()
        page.force_login(bed.alice)
        return page.get("/pools/").content.decode()

    assert healthy() == 4
    bed.patch({"status": {"allocatable": {"nvidia.com/gpu": "3"}}}, "/status")
    inventory.refresh(bed.cluster)
    assert healthy() == 3
    assert "1 card less than guaranteed" in board()
    late = bed.submit(bed.alice, bed.vision, "train", cards=4)
    bed.turn()
    assert bed.state(late) == "queued"
    bed.patch({"status": {"allocatable": {"nvidia.com/gpu": "4"}}}, "/status")
    inventory.refresh(bed.cluster)
    assert healthy() == 4
    assert "less than guaranteed" not in board()
    bed.until(lambda: bed.state(late) == "running")


def test_no_workload_is_placed_on_a_node_with_an_untolerated_taint(bed: NodeBed) -> None:  # noqa: F811
    bed.patch({"spec": {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]}})
    inventory.refresh(bed.cluster)
    assert bed.cluster.nodes.get(name=bed.name).held_back.startswith(
        "its taint dedicated=ml:NoSchedule keeps pods away"
    )
    late = bed.submit(bed.alice, bed.vision, "train")
    bed.turn()
    assert bed.state(late) == "queued"
    bed.patch({"spec": {"taints": None}})
    inventory.refresh(bed.cluster)
    bed.until(lambda: bed.state(late) == "running")


def test_nvsentinel_condition_quarantines_the_node_and_requeues_its_workloads(bed: NodeBed) -> None:  # noqa: F811
    Pool.objects.update(notice=1, grace=1)
    bed.pool.refresh_from_db()
    job = bed.running()
    fault = {"type": "SysLogsXIDError", "status": "True", "reason": "SysLogsXIDErrorIsNotHealthy", "message": "XID 79"}
    bed.patch({"status": {"conditions": [ready("True"), fault]}}, "/status")
    inventory.refresh(bed.cluster)
    row = Quarantine.objects.get()
    assert (row.node.name, row.sign) == (bed.name, "node/condition/SysLogsXIDError")
    assert row.reason["params"]["message"] == "XID 79"
    bed.until(lambda: bed.state(job) == "queued" and job.attempts.count() == 2, 60)
    assert (job.attempts.first().reason, job.reclaims) == ("out_of_service", 0)  # type: ignore[union-attr]
    put_back(actor=Actor(make.user("op", is_operator=True)), row=row)
    bed.until(lambda: bed.state(job) == "running", 60)
    inventory.refresh(bed.cluster)
    assert not bed.cluster.nodes.get(name=bed.name).quarantined, (
        "the condition is still set, but the operator has overruled it"
    )
    bed.patch({"status": {"conditions": [ready("True"), fault | {"status": "False"}]}}, "/status")
    inventory.refresh(bed.cluster)
    row.refresh_from_db()
    assert row.away_since is not None


def test_watch_reports_cordon_taint_device_and_run_changes_within_seconds(bed: NodeBed) -> None:  # noqa: F811
    driver, stop = driver_for(bed.cluster).driver, threading.Event()  # type: ignore[attr-defined]
    assert isinstance(driver, KubernetesCluster)
    reported: list[Observed | Look] = []
    threading.Thread(target=driver.watch, args=(reported.append, stop), daemon=True).start()
    time.sleep(2)
    with contextlib.closing(_Stop(stop)):
        for change in (
            lambda: bed.patch({"spec": {"unschedulable": True}}),
            lambda: bed.patch({"spec": {"unschedulable": None}}),
            lambda: bed.patch({"spec": {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]}}),
            lambda: bed.patch({"spec": {"taints": None}}),
            lambda: bed.patch({"status": {"allocatable": {"nvidia.com/gpu": "2"}}}, "/status"),
            lambda: bed.patch({"status": {"allocatable": {"nvidia.com/gpu": "4"}}}, "/status"),
        ):
            reported.clear()
            change()
            _soon(lambda: Look.NODES in reported)
        bed.patch({"metadata": {"labels": {"nobody": "cares"}}})
        job = bed.running()
        _soon(lambda: job.public_id in [run.workload_id for run in reported if isinstance(run, Observed)])


@dataclass
class _Stop:
    event: threading.Event

    def close(self) -> None:
        self.event.set()


def _soon(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "nothing was reported within 10 s"
        time.sleep(0.05)

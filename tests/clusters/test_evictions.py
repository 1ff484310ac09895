"""Pods removed by others – a drain, the cluster's scheduler, a taint, a person – count as lost, not failed, and are requeued."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from quotas.models import LedgerEntry
from tests.clusters.node_bed import NodeBed, bed  # noqa: F401 a fixture
from workloads.models import Workload
from workloads.reconciler import next_steps
from workloads.runtime.setups import Setup
from workloads.status.status_line import reason_word

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
Undo = Callable[[], object]


def path_of(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def evict(bed: NodeBed, pod: dict[str, Any]) -> Undo:  # noqa: F811
    """Evicts a pod as `kubectl drain` does."""
    name = {key: pod["metadata"][key] for key in ("name", "namespace")}
    response = bed.admin.call(
        "POST", f"{path_of(pod)}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": name}
    )
    assert response.get("status") == "Success", response
    return lambda: None


def preempt(bed: NodeBed, pod: dict[str, Any]) -> Undo:  # noqa: F811
    """A pod of higher priority, which the portal did not start, requests all cards of the node."""
    priority_class = {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": bed.name}, "value": 1000000,
    }  # fmt: skip
    bed.admin.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority_class)
    cards = {"nvidia.com/gpu": "4"}
    preemptor = {
        "metadata": {"name": bed.name},
        "spec": {
            "priorityClassName": bed.name,
            "nodeSelector": {"kubernetes.io/hostname": bed.name},
            "containers": [{"name": "main", "image": "theirs", "resources": {"limits": cards}}],
        },
    }
    assert bed.admin.call("POST", "/api/v1/namespaces/default/pods", preemptor)["kind"] == "Pod"

    def undo() -> None:
        bed.admin.call("DELETE", f"/api/v1/namespaces/default/pods/{bed.name}?gracePeriodSeconds=0")
        bed.admin.call("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{bed.name}")

    return undo


def taint(bed: NodeBed, pod: dict[str, Any]) -> Undo:  # noqa: F811
    bed.patch({"spec": {"taints": [{"key": "maintenance", "effect": "NoExecute"}]}})
    return lambda: bed.patch({"spec": {"taints": None}})


def delete(bed: NodeBed, pod: dict[str, Any]) -> Undo:  # noqa: F811
    bed.admin.call("DELETE", path_of(pod))
    return lambda: None


@pytest.mark.parametrize(
    ("remove", "reason"),
    [
        (evict, "EvictionByEvictionAPI"),
        (preempt, "PreemptionByScheduler"),
        (taint, "DeletionByTaintManager"),
        (delete, "Deleted"),
    ],
)
def test_removed_pod_is_lost_with_its_reason_and_its_workload_runs_again(
    bed: NodeBed,  # noqa: F811
    remove: Callable[[NodeBed, dict[str, Any]], Undo],
    reason: str,
) -> None:
    job = bed.running()
    undo = remove(bed, bed.pod(job))
    try:
        bed.until(lambda: job.attempts.count() == 2, 60)
    finally:
        undo()
    bed.until(lambda: bed.state(job) == "running", 60)
    first, second = job.attempts.order_by("number")
    assert (first.outcome, first.reason, first.exit_code) == ("lost", reason, None)
    assert (second.outcome, job.reclaims, job.restarts) == ("", 0, 0)
    assert LedgerEntry.objects.filter(ended_at=None).count() == 1
    page = Client()
    page.force_login(bed.alice)
    attempts = page.get(f"/d/vision/workloads/{job.public_id}/?tab=attempts").content.decode()
    assert reason_word(reason) in attempts


def test_eviction_of_one_rank_requeues_the_whole_gang(bed: NodeBed) -> None:  # noqa: F811
    gang = bed.submit(bed.alice, bed.vision, "train", kind="distributed", pods=2, setup=Setup(template="generic"))
    bed.until(lambda: bed.state(gang) == "running", 60)
    evict(bed, pods_of(bed, gang)[1])
    bed.until(lambda: gang.attempts.count() == 2, 60)
    first = gang.attempts.order_by("number")[0]
    assert (first.outcome, first.reason) == ("lost", "EvictionByEvictionAPI")
    bed.until(lambda: bed.state(gang) == "running", 60)
    assert len([pod for pod in pods_of(bed, gang) if pod["status"]["phase"] == "Running"]) == 2


def test_service_continues_after_an_eviction_and_moves_off_a_drained_node(
    bed: NodeBed,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same attempt continues while its node accepts pods; otherwise the next attempt is placed elsewhere."""
    monkeypatch.setattr(next_steps, "DISPLACED", dt.timedelta(seconds=2))
    service = bed.submit(bed.alice, bed.vision, "serve", kind="service", setup=Setup(port=8000))
    bed.until(lambda: bed.state(service) == "running", 60)
    first = pods_of(bed, service)[0]["metadata"]["uid"]
    evict(bed, pods_of(bed, service)[0])
    bed.until(lambda: [pod["metadata"]["uid"] for pod in pods_of(bed, service)] not in ([], [first]), 60)
    assert (bed.state(service), service.attempts.count()) == ("running", 1)
    bed.patch({"spec": {"unschedulable": True}})
    evict(bed, pods_of(bed, service)[-1])
    bed.until(lambda: service.attempts.count() == 2, 60)
    lost = service.attempts.order_by("number")[0]
    assert (lost.outcome, lost.reason) == ("lost", "Unschedulable")
    bed.patch({"spec": {"unschedulable": None}})
    bed.until(lambda: bed.state(service) == "running", 60)


def pods_of(bed: NodeBed, workload: Workload) -> list[dict[str, Any]]:  # noqa: F811
    """The pods of all its attempts, the oldest first."""
    attempt = workload.attempts.order_by("number")[0]
    path = (
        f"/api/v1/namespaces/{attempt.namespace}/pods?labelSelector=gpu-quota-portal%2Fworkload%3D{workload.public_id}"
    )
    found = bed.admin.call("GET", path)["items"]
    return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

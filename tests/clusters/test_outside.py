"""Pods outside quota on a real API server: they are counted on their node with the account of deploy/helm, the watch reports
their creation and deletion, and they are never touched."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quotas.board import usage_now
from quotas.board.invariants import violations
from quotas.models import Card, OutsidePod, Pool
from tests.clusters.node_bed import MERGE, NodeBed, bed  # noqa: F401 a fixture
from workloads.clusters.drivers import driver_for
from workloads.kubernetes.driver import KubernetesCluster
from workloads.nodes import inventory
from workloads.runtime.base import Look, Observed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.fixture
def legacy(bed: NodeBed) -> Iterator[str]:  # noqa: F811
    """A namespace that the portal does not manage."""
    name = f"legacy-{bed.name}"
    bed.admin.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield f"/api/v1/namespaces/{name}/pods"
    for pod in bed.admin.call("GET", f"/api/v1/namespaces/{name}/pods")["items"]:
        bed.admin.call("DELETE", f"/api/v1/namespaces/{name}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0")
    bed.admin.call("DELETE", f"/api/v1/namespaces/{name}")


def start(bed: NodeBed, pods: str, name: str, limits: dict[str, str], **spec: Any) -> str:  # noqa: F811
    """Creates an outside pod on the bed's node and returns its path."""
    body = {
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": bed.name},
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            "containers": [{"name": "main", "image": "any", "resources": {"limits": limits}}],
            **spec,
        },
    }
    created = bed.admin.call("POST", pods, body)
    assert created["kind"] == "Pod", created
    soon(lambda: bed.admin.call("GET", f"{pods}/{name}")["spec"].get("nodeName") == bed.name)
    return f"{pods}/{name}"


def soon(condition: Callable[[], bool], seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)


def free(bed: NodeBed) -> int:  # noqa: F811
    inventory.refresh(bed.cluster)
    return usage_now.free(usage_now.read(Pool.objects.filter(pk=bed.pool.pk)), bed.pool.pk)


def test_cards_of_an_outside_pod_are_not_allocated_and_the_pod_is_left_alone(bed: NodeBed, legacy: str) -> None:  # noqa: F811
    path = start(bed, legacy, "train-0", {"nvidia.com/gpu": "3", "cpu": "2", "memory": "1Gi"})
    assert free(bed) == 1
    [row] = OutsidePod.objects.filter(node__name=bed.name)
    assert (row.name, row.units, row.node.name) == ("train-0", 3, bed.name)
    assert row.node.outside["cpu_milli"] == 2_000
    small, large = (bed.submit(bed.alice, bed.vision, "train", cards=cards) for cards in (1, 2))
    bed.until(lambda: bed.state(small) == "running", 60)
    bed.turn()
    assert bed.state(large) == "queued"
    outside_pod = bed.admin.call("GET", path)
    assert outside_pod["status"]["phase"] == "Running"
    assert "deletionTimestamp" not in outside_pod["metadata"]
    [pod] = [bed.pod(small)]
    assert pod["status"]["phase"] == "Running", "the kubelet had a free card for it"
    assert not list(violations())
    bed.admin.call("DELETE", f"{path}?gracePeriodSeconds=0")
    soon(lambda: free(bed) == 3)
    bed.until(lambda: bed.state(large) == "running", 60)
    assert not Card.objects.filter(pool=bed.pool, outside__gt=0).exists()


def test_unscheduled_and_ended_outside_pods_occupy_no_cards(bed: NodeBed, legacy: str) -> None:  # noqa: F811
    body = {
        "metadata": {"name": "waits"},
        "spec": {
            "nodeSelector": {"no": "where"},
            "containers": [{"name": "main", "image": "any", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
    }
    assert bed.admin.call("POST", legacy, body)["kind"] == "Pod"
    path = start(bed, legacy, "ends", {"nvidia.com/gpu": "2"})
    assert free(bed) == 2
    bed.admin.call("PATCH", f"{path}/status", {"status": {"phase": "Succeeded"}}, MERGE)
    soon(lambda: free(bed) == 4)


def test_watch_reports_creation_and_deletion_of_outside_pods_within_seconds(bed: NodeBed, legacy: str) -> None:  # noqa: F811
    driver, stop = driver_for(bed.cluster).driver, threading.Event()  # type: ignore[attr-defined]
    assert isinstance(driver, KubernetesCluster)
    reported: list[Observed | Look] = []
    threading.Thread(target=driver.watch, args=(reported.append, stop), daemon=True).start()
    with contextlib.ExitStack() as over:
        over.callback(stop.set)
        soon(lambda: Look.NODES in reported)  # the first listing
        time.sleep(1)
        reported.clear()
        path = start(bed, legacy, "train-0", {"nvidia.com/gpu": "1"})
        soon(lambda: Look.NODES in reported)
        assert free(bed) == 3
        time.sleep(1)
        reported.clear()
        bed.admin.call("DELETE", f"{path}?gracePeriodSeconds=0")
        soon(lambda: Look.NODES in reported)
        soon(lambda: free(bed) == 4)
        assert Look.RUNS not in reported, "outside pods cause no listing of the portal's runs"


def test_pods_of_the_portal_are_not_counted_as_outside(bed: NodeBed) -> None:  # noqa: F811
    bed.running()
    assert free(bed) == 3
    assert not OutsidePod.objects.filter(node__name=bed.name).exists()

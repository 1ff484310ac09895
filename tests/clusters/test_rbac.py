"""deploy/kubernetes/rbac.yaml grants what the driver asks for: nothing is missing, nothing is left over."""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clusters.beds import PlainBed, ended, eventually, seen, up
from tests.clusters.test_files import asked as asked_again
from workloads.clusters.base import volume_of
from workloads.clusters.kubeapi import Api
from workloads.clusters.kubernetes import KubernetesCluster

pytestmark = pytest.mark.cluster

RBAC = Path(__file__).parents[2] / "deploy/kubernetes/rbac.yaml"
PATH = re.compile(
    r"/(?:api/v1|apis/resource\.k8s\.io/v1)(?:/namespaces/[^/]+(?=/))?/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?$"
)
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}


def granted() -> set[tuple[str, str]]:
    role = next(d for d in yaml.safe_load_all(RBAC.read_text()) if d["kind"] == "ClusterRole")
    assert {group for rule in role["rules"] for group in rule["apiGroups"]} == {"", "resource.k8s.io"}
    return {(r, verb) for rule in role["rules"] for r in rule["resources"] for verb in rule["verbs"]}


def right_of(method: str, path: str, query: dict[str, Any]) -> tuple[str, str]:
    """The resource and verb that the API server checks for a request."""
    found = PATH.match(path)
    assert found, path
    resource = found["resource"] + (f"/{found['sub']}" if found["sub"] else "")
    read = "watch" if "watch" in query else "get" if found["name"] else "list"
    return resource, VERBS.get(method, read)


def by_claims(bed: PlainBed) -> None:
    """Runs whose GPU is given out by DRA: one with a claim of its own, and two that share one."""
    shared = {"sharing": "dra", "extra": {"share": "card-1"}, "product": ""}
    specs = [bed.spec("forever", sharing="dra", product=""), *(bed.spec("forever", **shared) for _ in range(2))]
    for spec in specs:
        bed.driver.ensure(spec)
        bed.driver.ensure(spec)
    assert {run.ref.name for run in bed.driver.observe()} >= {spec.ref.name for spec in specs}
    for spec in specs:
        bed.driver.stop(spec.ref, 0)


def test_the_role_grants_exactly_what_a_runs_whole_life_asks_for(
    kubernetes_bed: PlainBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[tuple[str, str]] = set()
    send = Api._send

    def recorded(self: Api, method: str, path: str, query: dict[str, Any], *rest: Any) -> Any:
        asked.add(right_of(method, path, query))
        return send(self, method, path, query, *rest)

    monkeypatch.setattr(Api, "_send", recorded)
    driver, stop = kubernetes_bed.driver, threading.Event()
    assert isinstance(driver, KubernetesCluster)
    threading.Thread(target=driver.watch, args=(lambda: None, stop), daemon=True).start()
    spec = kubernetes_bed.spec("forever", kind="notebook", port=18888)
    driver.ensure(spec)
    up(driver, spec.ref)
    eventually(lambda: driver.endpoint(spec.ref))
    by_claims(kubernetes_bed)
    driver.announce(spec.ref, dt.datetime(2031, 1, 1, tzinfo=dt.UTC))
    driver.stop(spec.ref, spec.grace)
    ended(driver, spec.ref)
    driver.remove(spec.ref)
    eventually(lambda: seen(driver, spec.ref) is None)
    driver.discard(volume_of(spec))
    driver.nodes()
    files = driver.files(volume_of(kubernetes_bed.spec("hello")))
    assert files is not None
    asked_again(lambda: files.get(""))
    asked |= {("pods/exec", "create"), ("pods/exec", "get")}
    time.sleep(0.2)
    stop.set()
    assert asked == granted()

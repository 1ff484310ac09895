"""rights/cluster.yaml of deploy/helm grants exactly the rights that the driver uses."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
import threading
import time
from typing import Any

import pytest
import yaml

from tests.clusters.beds import FOREVER, PlainBed, ended, eventually, find_run, up
from tests.clusters.realcluster import CHART, Admin
from tests.clusters.test_files import when_open
from tests.clusters.test_gangs import OVER, gang, service, until
from workloads.kubernetes.api import Api
from workloads.kubernetes.driver import KubernetesCluster
from workloads.runtime.base import Home, Phase, volume_of

pytestmark = pytest.mark.cluster

GROUPS = {"", "resource.k8s.io", "batch", "apps", "networking.k8s.io", "gateway.networking.k8s.io",
          "scheduling.k8s.io"}  # fmt: skip
PATH = re.compile(
    r"/(?:api/v1|apis/[a-z0-9.]+/v1)(?:/namespaces/[^/]+(?=/))?/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?$"
)
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}


def rules() -> list[dict[str, Any]]:
    return list(yaml.safe_load((CHART / "rights/cluster.yaml").read_text()))


def granted() -> set[tuple[str, str]]:
    assert {group for rule in rules() for group in rule["apiGroups"]} == GROUPS
    return {(r, verb) for rule in rules() for r in rule["resources"] for verb in rule["verbs"]}


def right_of(method: str, path: str, query: dict[str, Any]) -> tuple[str, str]:
    """The resource and verb that the API server checks for a request."""
    found = PATH.match(path)
    assert found, path
    resource = found["resource"] + (f"/{found['sub']}" if found["sub"] else "")
    read = "watch" if "watch" in query else "get" if found["name"] else "list"
    return resource, VERBS.get(method, read)


def run_owned_pods(bed: PlainBed, admin: Admin) -> None:
    """Runs a gang, and services behind an Ingress and behind a Gateway."""
    admin.serve("HTTPRoute")
    driver = bed.driver
    assert isinstance(driver, KubernetesCluster)
    ranks = gang(bed, FOREVER)
    driver.ensure(ranks)
    until(bed, ranks, Phase.RUNNING)
    for option in ({"ingress_class": "nginx"}, {"gateway": "infra/public"}):
        spec = service(bed, FOREVER)
        options = dataclasses.replace(driver.options, service_domain="gpu.example.org", **option)
        driver.owners = dataclasses.replace(driver.owners, options=options)
        driver.ensure(spec)
        driver.stop(spec.ref, 1)
        until(bed, spec, *OVER)
        driver.remove(spec.ref)
    driver.announce(ranks.ref, None)
    driver.stop(ranks.ref, ranks.grace)
    until(bed, ranks, *OVER)
    driver.remove(ranks.ref)


def run_with_resource_claims(bed: PlainBed) -> None:
    """Starts runs that get their GPU by DRA: one with its own claim, and two that share a claim."""
    shared = {"sharing": "dra", "extra": {"share": "card-1"}, "product": ""}
    specs = [bed.spec("forever", sharing="dra", product=""), *(bed.spec("forever", **shared) for _ in range(2))]
    for spec in specs:
        bed.driver.ensure(spec)
        bed.driver.ensure(spec)
    assert {run.ref.name for run in bed.driver.observe()} >= {spec.ref.name for spec in specs}
    for spec in specs:
        bed.driver.stop(spec.ref, 0)


@pytest.mark.timeout(300)
def test_role_grants_exactly_the_rights_used_in_the_life_of_runs(
    kubernetes_bed: PlainBed, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[tuple[str, str]] = set()
    send = Api._send

    def recorded(self: Api, method: str, path: str, query: dict[str, Any], *rest: Any, **how: Any) -> Any:
        used.add(right_of(method, path, query))
        return send(self, method, path, query, *rest, **how)

    monkeypatch.setattr(Api, "_send", recorded)
    driver, stop = kubernetes_bed.driver, threading.Event()
    assert isinstance(driver, KubernetesCluster)
    threading.Thread(target=driver.watch, args=(lambda run: None, stop), daemon=True).start()
    spec = kubernetes_bed.spec("forever", kind="notebook", port=18888, token="its-secret")
    driver.ensure(spec)
    up(driver, spec.ref)
    eventually(lambda: driver.endpoint(spec.ref))
    run_with_resource_claims(kubernetes_bed)
    run_owned_pods(kubernetes_bed, admin)
    driver.announce(spec.ref, dt.datetime(2031, 1, 1, tzinfo=dt.UTC))
    driver.stop(spec.ref, spec.grace)
    ended(driver, spec.ref)
    driver.remove(spec.ref)
    eventually(lambda: find_run(driver, spec.ref) is None)
    driver.discard(volume_of(spec))
    driver.volumes()
    driver.nodes()
    driver.keep_home(Home(spec.ref.namespace, "vision", {}))
    # Created by apply, or once per cluster.
    applied = (
        "resourcequotas",
        "limitranges",
        "networkpolicies",
        "priorityclasses",
    )
    used |= {(each, "create") for each in applied}
    files = driver.files(volume_of(kubernetes_bed.spec("hello")))
    assert files is not None
    when_open(lambda: files.get(""))
    used |= {("pods/exec", "create"), ("pods/exec", "get")}
    time.sleep(0.2)
    stop.set()
    assert used == granted()

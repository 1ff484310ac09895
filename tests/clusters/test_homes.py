"""A department's namespace on a real API server: its objects, and that admitted runs can start in it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clusters.beds import PlainBed, eventually, in_phase
from tests.clusters.realcluster import Admin
from workloads.runtime.base import EXCEEDED, Home, Phase, Refused

pytestmark = pytest.mark.cluster
GPU = "requests.nvidia.com/gpu"


def hard(admin: Admin, namespace: str) -> Any:
    found = admin.call("GET", f"/api/v1/namespaces/{namespace}/resourcequotas/gpu-quota-portal")
    return found.get("spec", {}).get("hard")


def test_namespace_objects_are_created_and_updated(kubernetes_bed: PlainBed, admin: Admin) -> None:
    driver, spec = kubernetes_bed.driver, kubernetes_bed.spec("forever")
    namespace = spec.ref.namespace
    driver.keep_home(Home(namespace, "vision", {GPU: 0}))
    assert hard(admin, namespace) == {GPU: "0"}
    eventually(
        lambda: admin.call("GET", f"/api/v1/namespaces/{namespace}/resourcequotas/gpu-quota-portal")["status"].get(
            "hard"
        )
    )
    with pytest.raises(Refused) as error:
        driver.ensure(spec)
    assert error.value.code == EXCEEDED
    driver.keep_home(Home(namespace, "vision", {GPU: 1}))
    driver.ensure(spec)
    in_phase(driver, spec.ref, Phase.RUNNING)
    pod = admin.call("GET", f"/api/v1/namespaces/{namespace}/pods/{spec.ref.name}")
    assert pod["spec"]["preemptionPolicy"] == "Never"
    policies = admin.call("GET", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies")["items"]
    assert {each["metadata"]["name"] for each in policies} == {"gpu-quota-portal", "gpu-quota-portal-files"}
    assert admin.call("GET", f"/api/v1/namespaces/{namespace}/limitranges/gpu-quota-portal")["spec"]["limits"]
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/gpu-quota-portal"
    before = admin.call("GET", path)["metadata"].get("generation")
    driver.keep_home(Home(namespace, "vision", {GPU: 1}), fresh=True)
    assert admin.call("GET", path)["metadata"].get("generation") == before


def test_resource_quota_with_a_leaked_use_is_recalculated(kubernetes_bed: PlainBed, admin: Admin) -> None:
    driver, spec = kubernetes_bed.driver, kubernetes_bed.spec("forever")
    home = Home(spec.ref.namespace, "vision", {GPU: 1})
    driver.keep_home(home)
    path = f"/api/v1/namespaces/{spec.ref.namespace}/resourcequotas/gpu-quota-portal"
    eventually(lambda: admin.call("GET", path)["status"].get("used"))
    leaked = {"status": {"hard": {GPU: "1"}, "used": {GPU: "1"}}}
    assert admin.call("PATCH", f"{path}/status", leaked, "application/merge-patch+json")["status"]["used"] == {GPU: "1"}

    def is_accepted() -> bool:
        try:
            driver.ensure(spec)
        except Refused:
            return False
        return True

    driver.keep_home(home)
    assert not is_accepted()
    driver.keep_home(home, fresh=True)
    eventually(is_accepted)
    assert hard(admin, spec.ref.namespace) == {GPU: "1"}


def test_foreign_namespace_is_left_unchanged(kubernetes_bed: PlainBed, admin: Admin) -> None:
    with pytest.raises(Refused) as error:
        kubernetes_bed.driver.keep_home(Home("default", "vision", {GPU: 1}))
    assert error.value.code == "name_taken"
    assert hard(admin, "default") is None

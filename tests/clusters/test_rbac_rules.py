"""rights/cluster.yaml of deploy/helm, rule by rule: without one of them a call fails, and the error names what is missing."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clusters import beds, realcluster
from tests.clusters.beds import FOREVER, PlainBed, eventually, in_phase, up
from tests.clusters.realcluster import Admin
from tests.clusters.test_files import when_open
from tests.clusters.test_gangs import gang, service
from tests.clusters.test_rbac import rules
from workloads.kubernetes.driver import KubernetesCluster
from workloads.runtime.base import ClusterError, Home, Phase, volume_of

pytestmark = pytest.mark.cluster
Call = Callable[[PlainBed, KubernetesCluster], object]
RULES = {resource: number for number, rule in enumerate(rules()) for resource in rule["resources"]}


def start_run(bed: PlainBed, driver: KubernetesCluster, **changes: Any) -> None:
    driver.ensure(bed.spec("forever", **changes))


def start_notebook(bed: PlainBed, driver: KubernetesCluster) -> None:
    start_run(bed, driver, kind="notebook", port=18888)


def read_log(bed: PlainBed, driver: KubernetesCluster) -> None:
    spec = bed.spec("forever")
    driver.ensure(spec)
    in_phase(driver, spec.ref, Phase.RUNNING)
    up(driver, spec.ref)


def list_files(bed: PlainBed, driver: KubernetesCluster) -> None:
    files = driver.files(volume_of(bed.spec("hello")))
    assert files is not None
    when_open(lambda: files.get(""))


def keep_home(bed: PlainBed, driver: KubernetesCluster) -> None:
    driver.keep_home(Home(bed.namespace, "vision", {}))


def start_gang(bed: PlainBed, driver: KubernetesCluster) -> None:
    driver.ensure(gang(bed, FOREVER))


def expose_service(**option: str) -> Call:
    def call(bed: PlainBed, driver: KubernetesCluster) -> None:
        options = dataclasses.replace(driver.options, service_domain="gpu.example.org", **option)
        driver.owners = dataclasses.replace(driver.owners, options=options)
        driver.ensure(service(bed, FOREVER))

    return call


def list_claimed_devices(bed: PlainBed, driver: KubernetesCluster) -> None:
    if not any(offer.sharing == "dra" for node in driver.nodes() for offer in node.offers):
        raise ClusterError('no node has devices: cannot list resource "resourceslices"')


def start_with_claim(**changes: Any) -> Call:
    return lambda bed, driver: start_run(bed, driver, sharing="dra", product="", **changes)


def start_with_secret(bed: PlainBed, driver: KubernetesCluster) -> None:
    start_run(bed, driver, secret_env={"KEY": "value"})


CALLS: dict[str, Call] = {
    "namespaces": start_run,
    "pods": start_run,
    "pods/log": read_log,
    "pods/exec": list_files,
    "persistentvolumeclaims": start_run,
    "secrets": start_with_secret,
    "resourcequotas": keep_home,
    "limitranges": keep_home,
    "networkpolicies": keep_home,
    "priorityclasses": start_run,
    "services": start_notebook,
    "jobs": start_gang,
    "deployments": lambda bed, driver: driver.ensure(service(bed, FOREVER)),
    "ingresses": expose_service(ingress_class="nginx"),
    "httproutes": expose_service(gateway="infra/public"),
    "nodes": lambda bed, driver: driver.nodes(),
    "resourceslices": list_claimed_devices,
    "resourceclaims": start_with_claim(extra={"share": "card-1"}),
    "resourceclaimtemplates": start_with_claim(),
}


@contextlib.contextmanager
def portal(admin: Admin, account: str) -> Iterator[tuple[PlainBed, KubernetesCluster]]:
    bed = beds.kubernetes(account, realcluster.unique("rule"))
    driver = bed.driver
    assert isinstance(driver, KubernetesCluster)
    try:
        yield bed, driver
    finally:
        driver.api.close()
        path = f"/api/v1/namespaces/{bed.namespace}"
        for pod in admin.call("GET", f"{path}/pods").get("items") or ():
            own = f"{path}/pods/{pod['metadata']['name']}"
            admin.call("PATCH", own, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
            admin.call("DELETE", f"{own}?gracePeriodSeconds=0")
        admin.call("DELETE", path)


@pytest.fixture(scope="module", autouse=True)
def routes(admin: Admin) -> None:
    admin.serve("HTTPRoute")


def test_every_resource_of_the_rules_has_a_call() -> None:
    assert set(CALLS) == set(RULES)


def test_every_call_succeeds_with_all_rules(admin: Admin, portal_account: str) -> None:
    for resource, call in CALLS.items():
        with portal(admin, portal_account) as (bed, driver):
            try:
                call(bed, driver)
            except ClusterError as error:
                pytest.fail(f"{resource}: {error}")


@pytest.mark.parametrize("resource", CALLS)
def test_call_without_its_rule_fails_and_names_the_missing_resource(admin: Admin, resource: str) -> None:
    remaining = [rule for number, rule in enumerate(rules()) if number != RULES[resource]]
    missing = set(rules()[RULES[resource]]["resources"])
    with admin.account(remaining) as account, portal(admin, account) as (bed, driver):

        def failure() -> str:
            """Rights reach the API server's authorizer with a delay: errors that name other resources are ignored."""
            try:
                CALLS[resource](bed, driver)
            except ClusterError as error:
                text = str(error).replace("\\", "")
                return text if any(f'resource "{each}"' in text for each in missing) else ""
            pytest.fail(f"the call succeeds without the rule for {resource}")

        assert eventually(failure, within=20)

"""rights/cluster.yaml of deploy/helm, rule by rule: with one left out something breaks, and the error names what is missing."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clusters import beds, realcluster
from tests.clusters.beds import FOREVER, PlainBed, eventually, in_phase, up
from tests.clusters.realcluster import Admin
from tests.clusters.test_files import asked as asked_again
from tests.clusters.test_gangs import gang, service
from tests.clusters.test_rbac import rules
from workloads.kubernetes.driver import KubernetesCluster
from workloads.runtime.base import ClusterError, Home, Phase, volume_of

pytestmark = pytest.mark.cluster
Call = Callable[[PlainBed, KubernetesCluster], object]
RULES = {resource: number for number, rule in enumerate(rules()) for resource in rule["resources"]}


def starts(bed: PlainBed, driver: KubernetesCluster, **changes: Any) -> None:
    driver.ensure(bed.spec("forever", **changes))


def listens(bed: PlainBed, driver: KubernetesCluster) -> None:
    starts(bed, driver, kind="notebook", port=18888)


def tells(bed: PlainBed, driver: KubernetesCluster) -> None:
    spec = bed.spec("forever")
    driver.ensure(spec)
    in_phase(driver, spec.ref, Phase.RUNNING)
    up(driver, spec.ref)


def shows_files(bed: PlainBed, driver: KubernetesCluster) -> None:
    files = driver.files(volume_of(bed.spec("hello")))
    assert files is not None
    asked_again(lambda: files.get(""))


def furnishes(bed: PlainBed, driver: KubernetesCluster) -> None:
    driver.keep_home(Home(bed.namespace, "vision", {}))


def runs_a_gang(bed: PlainBed, driver: KubernetesCluster) -> None:
    driver.ensure(gang(bed, FOREVER))


def leads_out(**option: str) -> Call:
    def call(bed: PlainBed, driver: KubernetesCluster) -> None:
        options = dataclasses.replace(driver.options, service_domain="gpu.example.org", **option)
        driver.owners = dataclasses.replace(driver.owners, options=options)
        driver.ensure(service(bed, FOREVER))

    return call


def sees_claimed_devices(bed: PlainBed, driver: KubernetesCluster) -> None:
    if not any(offer.sharing == "dra" for node in driver.nodes() for offer in node.offers):
        raise ClusterError('no node has devices: cannot list resource "resourceslices"')


def claims(**changes: Any) -> Call:
    return lambda bed, driver: starts(bed, driver, sharing="dra", product="", **changes)


def keeps_a_secret(bed: PlainBed, driver: KubernetesCluster) -> None:
    starts(bed, driver, secret_env={"KEY": "value"})


CALLS: dict[str, Call] = {
    "namespaces": starts,
    "pods": starts,
    "pods/log": tells,
    "pods/exec": shows_files,
    "persistentvolumeclaims": starts,
    "secrets": keeps_a_secret,
    "resourcequotas": furnishes,
    "limitranges": furnishes,
    "networkpolicies": furnishes,
    "priorityclasses": starts,
    "services": listens,
    "jobs": runs_a_gang,
    "deployments": lambda bed, driver: driver.ensure(service(bed, FOREVER)),
    "ingresses": leads_out(ingress_class="nginx"),
    "httproutes": leads_out(gateway="infra/public"),
    "nodes": lambda bed, driver: driver.nodes(),
    "resourceslices": sees_claimed_devices,
    "resourceclaims": claims(extra={"share": "card-1"}),
    "resourceclaimtemplates": claims(),
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


def test_there_is_a_call_for_every_resource() -> None:
    assert set(CALLS) == set(RULES)


def test_with_all_rules_every_call_works(admin: Admin, portal_account: str) -> None:
    for resource, call in CALLS.items():
        with portal(admin, portal_account) as (bed, driver):
            try:
                call(bed, driver)
            except ClusterError as error:
                pytest.fail(f"{resource}: {error}")


@pytest.mark.parametrize("resource", CALLS)
def test_without_its_rule_a_call_fails_and_names_what_is_not_allowed(admin: Admin, resource: str) -> None:
    left = [rule for number, rule in enumerate(rules()) if number != RULES[resource]]
    without = set(rules()[RULES[resource]]["resources"])
    with admin.account(left) as account, portal(admin, account) as (bed, driver):

        def said() -> str:
            """Rights reach the API server's authorizer a moment after they were written: another's lack is not this one's."""
            try:
                CALLS[resource](bed, driver)
            except ClusterError as error:
                text = str(error).replace("\\", "")
                return text if any(f'resource "{each}"' in text for each in without) else ""
            pytest.fail(f"all works without the rule for {resource}")

        assert eventually(said, within=20)

"""Fixtures for the one contract of all drivers, and the shared test cluster for tests that need a real Kubernetes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import beds, realcluster
from tests.clusters.realcluster import Admin
from workloads.embedded.driver import EmbeddedCluster
from workloads.kubernetes.driver import KubernetesCluster


@pytest.fixture(scope="session")
def admin() -> Iterator[Admin]:
    with realcluster.shared() as info:
        yield Admin(info)


@pytest.fixture(scope="session")
def portal_account(admin: Admin) -> Iterator[str]:
    with admin.account() as kubeconfig:
        yield kubeconfig


@pytest.fixture
def kubernetes_bed(admin: Admin, portal_account: str) -> Iterator[beds.PlainBed]:
    """A separate portal on the shared cluster, with no more rights than deploy/helm grants."""
    name = realcluster.unique("bed")
    bed = beds.kubernetes(portal_account, name)
    yield bed
    assert isinstance(bed.driver, KubernetesCluster)
    for run in bed.driver.observe():
        with contextlib.suppress(Exception):
            bed.driver.stop(run.ref, 0)
            bed.driver.remove(run.ref)
    admin.call("DELETE", f"/api/v1/namespaces/{bed.namespace}")
    bed.driver.api.close()


EMBEDDED, KUBERNETES = pytest.param("embedded"), pytest.param("kubernetes", marks=pytest.mark.cluster)


@pytest.fixture(params=["memory", EMBEDDED, KUBERNETES])
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[beds.Bed]:
    """A bed for every driver."""
    yield from _bed(request, tmp_path)


@pytest.fixture(params=[EMBEDDED, KUBERNETES])
def executing_bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[beds.Bed]:
    """A bed for every driver that really runs a program's code."""
    yield from _bed(request, tmp_path)


def _bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[beds.Bed]:
    match request.param:
        case "memory":
            yield beds.in_memory()
        case "embedded":
            bed = beds.embedded(tmp_path / "cluster")
            yield bed
            assert isinstance(bed.driver, EmbeddedCluster)
            bed.driver.shutdown(grace=0)
        case _:
            yield request.getfixturevalue("kubernetes_bed")

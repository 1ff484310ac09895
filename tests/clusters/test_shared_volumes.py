"""Department and user volumes, and the second namespace, used by real pods on the test cluster."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tests.clusters.beds import Bed, PlainBed, ended, eventually, log, up
from tests.clusters.realcluster import Admin
from workloads.kubernetes.driver import KubernetesCluster
from workloads.kubernetes.manifests import files
from workloads.runtime.base import Home, KeptVolume, Phase, Refused, RunSpec, SharedVolume, volume_of
from workloads.runtime.places import DEPARTMENT_VOLUME, USER_VOLUME
from workloads.runtime.setups import Setup

OF_VISION = SharedVolume("department", DEPARTMENT_VOLUME)
OF_ALICE = SharedVolume("user-7", USER_VOLUME, "alice@example.org")
NOTES = """
import os, pathlib
for name in ("PORTAL_DEPARTMENT_DIR", "PORTAL_USER_DIR"):
    if folder := os.environ.get(name):
        notes = pathlib.Path(folder, "notes")
        old = notes.read_text() if notes.exists() else ""
        notes.write_text(old + os.environ["PORTAL_WORKLOAD"] + "\\n")
        print(name, len(old.splitlines()), flush=True)
"""


def notes_spec(bed: Bed, *shared: SharedVolume, **changes: Any) -> RunSpec:
    spec = bed.spec("hello", shared_volumes=shared, **changes)
    return replace(spec, command=(*spec.command[:-1], NOTES))


def output_of(bed: Bed, spec: RunSpec) -> str:
    bed.driver.ensure(spec)
    assert ended(bed.driver, spec.ref).phase is Phase.SUCCEEDED, log(bed.driver, spec.ref)
    return log(bed.driver, spec.ref)


def test_shared_volumes_keep_files_for_the_next_workload_of_the_same_department_or_user(executing_bed: Bed) -> None:
    enable_shared_volumes(executing_bed)
    assert (
        output_of(executing_bed, notes_spec(executing_bed, OF_VISION, OF_ALICE))
        == "PORTAL_DEPARTMENT_DIR 0\nPORTAL_USER_DIR 0\n"
    )
    assert output_of(executing_bed, notes_spec(executing_bed, OF_VISION)) == "PORTAL_DEPARTMENT_DIR 1\n"
    other = replace(OF_ALICE, name="user-8", user="bob")
    assert (
        output_of(executing_bed, notes_spec(executing_bed, OF_VISION, other))
        == "PORTAL_DEPARTMENT_DIR 2\nPORTAL_USER_DIR 0\n"
    )
    assert output_of(executing_bed, notes_spec(executing_bed)) == ""


def enable_shared_volumes(bed: Bed) -> None:
    if isinstance(bed.driver, KubernetesCluster):
        sizes = {"department_volume": "1Gi", "user_volume": "1Gi", "shared_storage_class": "local"}
        bed.driver.options = replace(bed.driver.options, **sizes)  # type: ignore[arg-type]


@pytest.mark.cluster
class TestOnKubernetes:
    def test_shared_volumes_are_not_discarded_with_working_directories(
        self, kubernetes_bed: PlainBed, admin: Admin
    ) -> None:
        """Only the portal's own volume claims named after a workload are swept; foreign claims are never listed."""
        driver, namespace_path = kubernetes_bed.driver, f"/api/v1/namespaces/{kubernetes_bed.namespace}"
        enable_shared_volumes(kubernetes_bed)
        spec = notes_spec(kubernetes_bed, OF_VISION, OF_ALICE)
        output_of(kubernetes_bed, spec)
        body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        foreign = {
            "metadata": {"name": f"{spec.volume}-not", "labels": {"gpu-quota-portal/workload": "x"}},
            "spec": body,
        }
        assert (
            admin.call("POST", f"{namespace_path}/persistentvolumeclaims", foreign)["kind"] == "PersistentVolumeClaim"
        )
        [kept] = driver.volumes()
        age = dt.datetime.now(dt.UTC) - kept.created_at
        assert kept == KeptVolume(replace(volume_of(spec), user="alice-example.org"), kept.created_at)
        assert dt.timedelta(0) <= age < dt.timedelta(minutes=5)
        driver.remove(spec.ref)
        driver.discard(kept.volume)
        eventually(lambda: driver.volumes() == ())
        remaining = {
            claim["metadata"]["name"]: claim
            for claim in admin.call("GET", f"{namespace_path}/persistentvolumeclaims")["items"]
        }
        assert set(remaining) == {"department", "user-7", foreign["metadata"]["name"]}
        assert remaining["user-7"]["metadata"]["labels"]["gpu-quota-portal/user"] == "alice-example.org"
        assert remaining["department"]["spec"]["accessModes"] == ["ReadWriteMany"]

    def test_ended_files_pod_is_removed_but_live_and_foreign_pods_are_not(
        self, kubernetes_bed: PlainBed, admin: Admin
    ) -> None:
        driver, pods_path = kubernetes_bed.driver, f"/api/v1/namespaces/{kubernetes_bed.namespace}/pods"
        assert isinstance(driver, KubernetesCluster)
        live, ended_volume = (volume_of(kubernetes_bed.spec("hello")) for _ in range(2))
        for volume, program in ((live, "import time; time.sleep(600)"), (ended_volume, "")):
            driver._ensure_volume(volume)
            admin.call("POST", pods_path, files.pod(volume, driver.options, program))
        foreign = files.pod(ended_volume, replace(driver.options, instance="another"), "")
        foreign["metadata"]["name"] = "foreign"
        admin.call("POST", pods_path, foreign)

        def names() -> set[str]:
            driver.volumes()
            return {pod["metadata"]["name"] for pod in admin.call("GET", pods_path)["items"]}

        eventually(lambda: admin.call("GET", f"{pods_path}/foreign")["status"].get("phase") == "Succeeded")
        eventually(lambda: names() == {files.name(live), "foreign"})

    def test_ipc_lock_works_in_the_unrestricted_namespace_and_is_refused_in_the_other(
        self, kubernetes_bed: PlainBed, admin: Admin
    ) -> None:
        name = f"{kubernetes_bed.namespace}-unrestricted"
        kubernetes_bed.driver.keep_home(Home(kubernetes_bed.namespace, "vision", {}))
        kubernetes_bed.driver.keep_home(Home(name, "vision", {"requests.nvidia.com/gpu": 1}, unrestricted=True))
        try:
            labels = admin.call("GET", f"/api/v1/namespaces/{name}")["metadata"]["labels"]
            assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
            quota = admin.call("GET", f"/api/v1/namespaces/{name}/resourcequotas/gpu-quota-portal")
            assert quota["spec"]["hard"] == {"requests.nvidia.com/gpu": "1"}
            spec = kubernetes_bed.spec("hello", setup=Setup(ipc_lock=True))
            print_capabilities = (
                "print([line for line in open('/proc/self/status') if line.startswith('CapEff')][0], end='')"
            )
            spec = replace(spec, command=(*spec.command[:-1], print_capabilities))
            unrestricted = replace(spec, ref=replace(spec.ref, namespace=name))
            assert output_of(kubernetes_bed, unrestricted).split()[1] == f"{1 << 14:016x}"  # CAP_IPC_LOCK and no other
            kubernetes_bed.driver.remove(unrestricted.ref)
            with pytest.raises(Refused) as error:
                kubernetes_bed.driver.ensure(replace(spec, ref=replace(spec.ref, name="w-first-1")))
            assert error.value.code == "name_taken"  # it is not the unrestricted namespace
        finally:
            admin.call("DELETE", f"/api/v1/namespaces/{name}")

    def test_namespace_of_another_department_is_refused(self, kubernetes_bed: PlainBed) -> None:
        """`vision-unrestricted` could also be the short name of another department."""
        spec = kubernetes_bed.spec("forever")
        kubernetes_bed.driver.ensure(spec)
        up(kubernetes_bed.driver, spec.ref)
        for home in (Home(spec.ref.namespace, "nlp", {}), Home(spec.ref.namespace, "vision", {}, unrestricted=True)):
            with pytest.raises(Refused) as error:
                KubernetesCluster.keep_home(kubernetes_bed.driver, home, fresh=True)  # type: ignore[arg-type]
            assert error.value.code == "name_taken"

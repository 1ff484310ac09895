"""The department's and a person's own volume, and the second namespace, on the test cluster: pods really use them."""

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

THEIRS = SharedVolume("department", DEPARTMENT_VOLUME)
MINE = SharedVolume("user-7", USER_VOLUME, "alice@example.org")
NOTES = """
import os, pathlib
for name in ("PORTAL_DEPARTMENT_DIR", "PORTAL_USER_DIR"):
    if folder := os.environ.get(name):
        notes = pathlib.Path(folder, "notes")
        old = notes.read_text() if notes.exists() else ""
        notes.write_text(old + os.environ["PORTAL_WORKLOAD"] + "\\n")
        print(name, len(old.splitlines()), flush=True)
"""


def writes(bed: Bed, *shared: SharedVolume, **changes: Any) -> RunSpec:
    spec = bed.spec("hello", shared_volumes=shared, **changes)
    return replace(spec, command=(*spec.command[:-1], NOTES))


def ran(bed: Bed, spec: RunSpec) -> str:
    bed.driver.ensure(spec)
    assert ended(bed.driver, spec.ref).phase is Phase.SUCCEEDED, log(bed.driver, spec.ref)
    return log(bed.driver, spec.ref)


def test_what_one_workload_leaves_there_the_next_one_finds_and_nobody_else(executing_bed: Bed) -> None:
    offer(executing_bed)
    assert ran(executing_bed, writes(executing_bed, THEIRS, MINE)) == "PORTAL_DEPARTMENT_DIR 0\nPORTAL_USER_DIR 0\n"
    assert ran(executing_bed, writes(executing_bed, THEIRS)) == "PORTAL_DEPARTMENT_DIR 1\n"
    other = replace(MINE, name="user-8", user="bob")
    assert ran(executing_bed, writes(executing_bed, THEIRS, other)) == "PORTAL_DEPARTMENT_DIR 2\nPORTAL_USER_DIR 0\n"
    assert ran(executing_bed, writes(executing_bed)) == ""


def offer(bed: Bed) -> None:
    if isinstance(bed.driver, KubernetesCluster):
        sizes = {"department_volume": "1Gi", "user_volume": "1Gi", "shared_storage_class": "local"}
        bed.driver.options = replace(bed.driver.options, **sizes)  # type: ignore[arg-type]


@pytest.mark.cluster
class TestOnKubernetes:
    def test_they_are_no_working_directories_and_outlive_those(self, kubernetes_bed: PlainBed, admin: Admin) -> None:
        """What is swept are the portal's own claims that bear a workload's name; foreign ones are never seen."""
        driver, here = kubernetes_bed.driver, f"/api/v1/namespaces/{kubernetes_bed.namespace}"
        offer(kubernetes_bed)
        spec = writes(kubernetes_bed, THEIRS, MINE)
        ran(kubernetes_bed, spec)
        body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        foreign = {
            "metadata": {"name": f"{spec.volume}-not", "labels": {"gpu-quota-portal/workload": "x"}},
            "spec": body,
        }
        assert admin.call("POST", f"{here}/persistentvolumeclaims", foreign)["kind"] == "PersistentVolumeClaim"
        [kept] = driver.volumes()
        age = dt.datetime.now(dt.UTC) - kept.created_at
        assert kept == KeptVolume(replace(volume_of(spec), user="alice-example.org"), kept.created_at)
        assert dt.timedelta(0) <= age < dt.timedelta(minutes=5)
        driver.remove(spec.ref)
        driver.discard(kept.volume)
        eventually(lambda: driver.volumes() == ())
        left = {
            claim["metadata"]["name"]: claim for claim in admin.call("GET", f"{here}/persistentvolumeclaims")["items"]
        }
        assert set(left) == {"department", "user-7", foreign["metadata"]["name"]}
        assert left["user-7"]["metadata"]["labels"]["gpu-quota-portal/user"] == "alice-example.org"
        assert left["department"]["spec"]["accessModes"] == ["ReadWriteMany"]

    def test_a_pod_that_has_shown_files_is_cleared_away_and_a_living_or_foreign_one_is_not(
        self, kubernetes_bed: PlainBed, admin: Admin
    ) -> None:
        driver, here = kubernetes_bed.driver, f"/api/v1/namespaces/{kubernetes_bed.namespace}/pods"
        assert isinstance(driver, KubernetesCluster)
        lives, over = (volume_of(kubernetes_bed.spec("hello")) for _ in range(2))
        for volume, program in ((lives, "import time; time.sleep(600)"), (over, "")):
            driver._ensure_volume(volume)
            admin.call("POST", here, files.pod(volume, driver.options, program))
        foreign = files.pod(over, replace(driver.options, instance="another"), "")
        foreign["metadata"]["name"] = "foreign"
        admin.call("POST", here, foreign)

        def names() -> set[str]:
            driver.volumes()
            return {pod["metadata"]["name"] for pod in admin.call("GET", here)["items"]}

        eventually(lambda: admin.call("GET", f"{here}/foreign")["status"].get("phase") == "Succeeded")
        eventually(lambda: names() == {files.name(lives), "foreign"})

    def test_what_locks_memory_can_in_the_second_namespace_and_is_refused_in_the_first(
        self, kubernetes_bed: PlainBed, admin: Admin
    ) -> None:
        name = f"{kubernetes_bed.namespace}-unrestricted"
        kubernetes_bed.driver.keep_home(Home(kubernetes_bed.namespace, "vision", {}))
        kubernetes_bed.driver.keep_home(Home(name, "vision", {"requests.nvidia.com/gpu": 1}, unrestricted=True))
        try:
            marks = admin.call("GET", f"/api/v1/namespaces/{name}")["metadata"]["labels"]
            assert marks["pod-security.kubernetes.io/enforce"] == "privileged"
            quota = admin.call("GET", f"/api/v1/namespaces/{name}/resourcequotas/gpu-quota-portal")
            assert quota["spec"]["hard"] == {"requests.nvidia.com/gpu": "1"}
            spec = kubernetes_bed.spec("hello", setup=Setup(ipc_lock=True))
            capable = "print([line for line in open('/proc/self/status') if line.startswith('CapEff')][0], end='')"
            spec = replace(spec, command=(*spec.command[:-1], capable))
            there = replace(spec, ref=replace(spec.ref, namespace=name))
            assert ran(kubernetes_bed, there).split()[1] == f"{1 << 14:016x}"  # CAP_IPC_LOCK and no other
            kubernetes_bed.driver.remove(there.ref)
            with pytest.raises(Refused) as refused:
                kubernetes_bed.driver.ensure(replace(spec, ref=replace(spec.ref, name="w-first-1")))
            assert refused.value.code == "name_taken"  # the namespace is not the one for that
        finally:
            admin.call("DELETE", f"/api/v1/namespaces/{name}")

    def test_a_namespace_of_another_department_is_not_taken_for_ones_own(self, kubernetes_bed: PlainBed) -> None:
        """`vision-unrestricted` may be a department's own short name."""
        spec = kubernetes_bed.spec("forever")
        kubernetes_bed.driver.ensure(spec)
        up(kubernetes_bed.driver, spec.ref)
        for home in (Home(spec.ref.namespace, "nlp", {}), Home(spec.ref.namespace, "vision", {}, unrestricted=True)):
            with pytest.raises(Refused) as refused:
                KubernetesCluster.keep_home(kubernetes_bed.driver, home, fresh=True)  # type: ignore[arg-type]
            assert refused.value.code == "name_taken"

"""Behaviour of runs that is specific to Kubernetes, on the shared test cluster with the rights that deploy/helm grants."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.clusters.beds import PlainBed, ended, eventually, find_run, in_phase, log, up
from tests.clusters.realcluster import Admin, unique
from workloads.kubernetes.driver import Connection, KubernetesCluster
from workloads.kubernetes.manifests import FINALIZER
from workloads.runtime.base import Phase, PodPlacement, Refused, RunSpec, Unreachable, volume_of

pytestmark = pytest.mark.cluster
KWOK = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}


def pod_path(spec: RunSpec) -> str:
    return f"/api/v1/namespaces/{spec.ref.namespace}/pods/{spec.ref.name}"


def quota(admin: Admin, namespace: str, **hard: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    name = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "second-lock"}, "spec": {"hard": hard}}
    admin.call("POST", path, name)
    eventually(lambda: admin.call("GET", f"{path}/second-lock").get("status", {}).get("hard"))


def used(admin: Admin, namespace: str) -> str:
    status = admin.call("GET", f"/api/v1/namespaces/{namespace}/resourcequotas/second-lock")["status"]
    return str(status["used"]["requests.nvidia.com/gpu"])


class TestQuota:
    def test_existing_run_is_neither_charged_again_nor_refused_at_full_quota(
        self, kubernetes_bed: PlainBed, admin: Admin
    ) -> None:
        first, spec = kubernetes_bed.spec("hello"), kubernetes_bed.spec("forever")
        kubernetes_bed.driver.ensure(first)
        ended(kubernetes_bed.driver, first.ref)
        quota(admin, spec.ref.namespace, **{"requests.nvidia.com/gpu": "1"})
        kubernetes_bed.driver.ensure(spec)
        for _ in range(5):
            kubernetes_bed.driver.ensure(spec)
        assert used(admin, spec.ref.namespace) == "1"
        with pytest.raises(Refused) as error:
            kubernetes_bed.driver.ensure(kubernetes_bed.spec("forever"))
        assert error.value.code == "exceeded_quota"
        assert "second-lock" in error.value.detail


class TestPod:
    def test_pod_obeys_the_restricted_standard_of_its_namespace(self, kubernetes_bed: PlainBed, admin: Admin) -> None:
        spec = kubernetes_bed.spec("hello")
        kubernetes_bed.driver.ensure(spec)
        namespace = admin.call("GET", f"/api/v1/namespaces/{spec.ref.namespace}")
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        pod = admin.call("GET", pod_path(spec))
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert not any("projected" in volume for volume in pod["spec"]["volumes"])
        assert pod["metadata"]["finalizers"] == [FINALIZER]

    def test_pod_is_not_created_in_a_foreign_namespace(self, kubernetes_bed: PlainBed) -> None:
        spec = kubernetes_bed.spec("hello")
        with pytest.raises(Refused) as error:
            kubernetes_bed.driver.ensure(replace(spec, ref=replace(spec.ref, namespace="default")))
        assert error.value.code == "name_taken"

    def test_deleted_pod_is_lost_not_failed_and_listed_until_removed(
        self, kubernetes_bed: PlainBed, admin: Admin
    ) -> None:
        spec = kubernetes_bed.spec("polite", grace=20)
        kubernetes_bed.driver.ensure(spec)
        up(kubernetes_bed.driver, spec.ref)
        admin.call("DELETE", pod_path(spec))
        run = ended(kubernetes_bed.driver, spec.ref)
        assert (run.phase, run.reason, run.stopping) == (Phase.LOST, "Deleted", True)
        kubernetes_bed.driver.remove(spec.ref)
        eventually(lambda: find_run(kubernetes_bed.driver, spec.ref) is None)

    def test_evicted_pod_is_lost_with_the_eviction_as_reason(self, kubernetes_bed: PlainBed, admin: Admin) -> None:
        spec = kubernetes_bed.spec("forever")
        kubernetes_bed.driver.ensure(spec)
        up(kubernetes_bed.driver, spec.ref)
        name = {"name": spec.ref.name, "namespace": spec.ref.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": name}
        response = admin.call("POST", f"{pod_path(spec)}/eviction", eviction)
        assert response["status"] == "Success", response
        run = ended(kubernetes_bed.driver, spec.ref)
        assert (run.phase, run.reason) == (Phase.LOST, "EvictionByEvictionAPI")

    def test_pod_above_its_memory_limit_fails_as_oom_killed(self, kubernetes_bed: PlainBed) -> None:
        hungry = ("python3", "-c", "x = bytearray(300 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1")
        spec = kubernetes_bed.spec("hello", command=hungry, memory_mib=64)
        kubernetes_bed.driver.ensure(spec)
        run = ended(kubernetes_bed.driver, spec.ref)
        assert (run.phase, run.reason, run.exit_code) == (Phase.FAILED, "OOMKilled", 137)

    def test_pod_with_a_missing_program_fails_without_having_started(self, kubernetes_bed: PlainBed) -> None:
        spec = kubernetes_bed.spec("hello", command=("no-such-program",))
        kubernetes_bed.driver.ensure(spec)
        run = ended(kubernetes_bed.driver, spec.ref)
        assert (run.phase, run.reason, run.exit_code, run.started_at) == (Phase.FAILED, "StartError", 128, None)
        assert "no-such-program" in run.message

    def test_pod_with_a_missing_image_stays_pending_with_the_reason(self, kubernetes_bed: PlainBed) -> None:
        spec = kubernetes_bed.spec("hello", image="test.local/missing:1")
        kubernetes_bed.driver.ensure(spec)
        run = eventually(
            lambda: (r := find_run(kubernetes_bed.driver, spec.ref)) and r.reason.startswith("ErrImage") and r
        )
        assert run.phase is Phase.PENDING
        assert "test.local/missing:1" in run.message
        kubernetes_bed.driver.stop(spec.ref, 2)
        assert ended(kubernetes_bed.driver, spec.ref).reason == "Stopped"

    def test_unschedulable_pod_stays_pending_until_stopped(self, kubernetes_bed: PlainBed) -> None:
        spec = kubernetes_bed.spec("hello", cpu_milli=10_000_000)
        kubernetes_bed.driver.ensure(spec)
        run = eventually(lambda: (r := find_run(kubernetes_bed.driver, spec.ref)) and r.reason == "Unschedulable" and r)
        assert run.phase is Phase.PENDING
        kubernetes_bed.driver.stop(spec.ref, 2)
        run = ended(kubernetes_bed.driver, spec.ref)
        assert (run.phase, run.reason, run.node) == (Phase.LOST, "Stopped", "")
        kubernetes_bed.driver.remove(spec.ref)
        eventually(lambda: find_run(kubernetes_bed.driver, spec.ref) is None)

    def test_log_is_still_available_a_while_after_a_stop(self, kubernetes_bed: PlainBed) -> None:
        """A deleted pod's containers are gone within seconds; those of a stopped run must not be."""
        spec = kubernetes_bed.spec("polite", grace=5)
        kubernetes_bed.driver.ensure(spec)
        up(kubernetes_bed.driver, spec.ref)
        kubernetes_bed.driver.stop(spec.ref, 5)
        ended(kubernetes_bed.driver, spec.ref)
        time.sleep(8)
        assert log(kubernetes_bed.driver, spec.ref) == "up\nsaved\n"


class TestClaim:
    def test_foreign_volume_claim_is_not_discarded(self, kubernetes_bed: PlainBed, admin: Admin) -> None:
        spec = kubernetes_bed.spec("forever")
        kubernetes_bed.driver.ensure(spec)
        up(kubernetes_bed.driver, spec.ref)  # a claim deleted before its pod has a node leaves the pod waiting forever
        claims = f"/api/v1/namespaces/{spec.ref.namespace}/persistentvolumeclaims"
        body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        admin.call("POST", claims, {"metadata": {"name": "theirs"}, "spec": body})
        for name in ("theirs", spec.volume):
            kubernetes_bed.driver.discard(replace(volume_of(spec), name=name))
        assert "deletionTimestamp" not in admin.call("GET", f"{claims}/theirs")["metadata"]
        kubernetes_bed.driver.stop(spec.ref, 1)
        ended(kubernetes_bed.driver, spec.ref)
        kubernetes_bed.driver.remove(spec.ref)
        eventually(lambda: admin.call("GET", f"{claims}/{spec.volume}").get("code") == 404)


class TestService:
    def test_service_is_deleted_with_its_pod(self, kubernetes_bed: PlainBed, admin: Admin) -> None:
        spec = kubernetes_bed.spec("listens", kind="notebook", port=18888)
        kubernetes_bed.driver.ensure(spec)
        path = f"/api/v1/namespaces/{spec.ref.namespace}/services/{spec.ref.name}"
        assert admin.call("GET", path)["spec"]["ports"][0]["port"] == 18888
        running = in_phase(kubernetes_bed.driver, spec.ref, Phase.RUNNING)
        kubernetes_bed.driver.stop(running.ref, 1)
        ended(kubernetes_bed.driver, spec.ref)
        kubernetes_bed.driver.remove(spec.ref)
        eventually(lambda: admin.call("GET", path).get("code") == 404)


class TestNodes:
    def test_nodes_are_listed_with_their_sharing_system(self, kubernetes_bed: PlainBed) -> None:
        nodes = {node.name: node for node in kubernetes_bed.driver.nodes()}
        assert nodes["gpushare-v100x4"].sharing == "memory"
        assert nodes["dgx-a100-80-mig-mixed"].instances == {"1g.10gb": 16, "2g.20gb": 8, "3g.40gb": 8}
        assert (nodes["hami-a100-40"].sharing, len(nodes["hami-a100-40"].cards)) == ("hami", 8)

    @pytest.mark.parametrize(
        ("node", "changes"),
        [
            ("dgx-a100-80-whole-0", {"product": "NVIDIA-A100-SXM4-80GB", "units_per_pod": 2}),
            ("dgx-a100-80-mig-mixed", {"sharing": "mig", "product": "NVIDIA-A100-SXM4-80GB",
                                       "profile": "3g.40gb", "units_per_pod": 4}),
            ("dgx-a100-40-mig-single", {"sharing": "mig", "product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
                                        "profile": "1g.5gb", "units_per_pod": 1}),
            ("gpushare-v100x4", {"sharing": "memory", "product": "", "units_per_pod": 4096}),
        ],
    )  # fmt: skip
    def test_nodes_run_pods_that_request_their_kind_of_gpu(
        self, kubernetes_bed: PlainBed, node: str, changes: dict[str, Any]
    ) -> None:
        place = (PodPlacement(0, node, (0,)),)
        spec = kubernetes_bed.spec("forever", placement=place, tolerations=(KWOK,), **changes)
        kubernetes_bed.driver.ensure(spec)
        assert in_phase(kubernetes_bed.driver, spec.ref, Phase.RUNNING).node == node
        kubernetes_bed.driver.stop(spec.ref, spec.grace)
        assert ended(kubernetes_bed.driver, spec.ref).reason == "Stopped"


class TestConnection:
    def test_closed_port_counts_as_unreachable_at_once(self, admin: Admin) -> None:
        driver = KubernetesCluster("away", Connection(admin.kubeconfig({"token": "x"}, "https://127.0.0.1:9")))
        began = time.monotonic()
        with pytest.raises(Unreachable):
            driver.observe()
        assert time.monotonic() - began < 5

    def test_wrong_token_counts_as_unreachable(self, admin: Admin) -> None:
        driver = KubernetesCluster("stranger", Connection(admin.kubeconfig({"token": "wrong"})))
        with pytest.raises(Unreachable, match="401"):
            driver.nodes()


class TestWatch:
    def test_watch_reports_creation_change_and_removal_of_a_run(self, kubernetes_bed: PlainBed) -> None:
        driver = kubernetes_bed.driver
        assert isinstance(driver, KubernetesCluster)
        reported, stop = threading.Semaphore(0), threading.Event()
        thread = threading.Thread(target=driver.watch, args=(lambda run: reported.release(), stop), daemon=True)
        thread.start()
        try:
            time.sleep(1)
            while reported.acquire(blocking=False):
                pass
            spec = kubernetes_bed.spec("hello")
            driver.ensure(spec)
            assert reported.acquire(timeout=5), "created"
            ended(driver, spec.ref)
            while reported.acquire(timeout=0.5):
                pass
            driver.remove(spec.ref)
            assert reported.acquire(timeout=5), "removed"
        finally:
            stop.set()
            thread.join(5)
        assert not thread.is_alive()

    def test_portal_does_not_list_the_runs_of_another_portal(
        self, kubernetes_bed: PlainBed, portal_account: str
    ) -> None:
        other = KubernetesCluster(unique("other"), Connection(portal_account))
        spec = kubernetes_bed.spec("hello")
        kubernetes_bed.driver.ensure(spec)
        assert find_run(kubernetes_bed.driver, spec.ref) is not None
        assert other.observe() == ()

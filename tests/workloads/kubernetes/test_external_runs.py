"""Pods that the portal did not create, and the objects that own them, read as runs."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from workloads.kubernetes import external_runs
from workloads.kubernetes.api import Answer, Api, NotServed
from workloads.kubernetes.externals import Externals
from workloads.kubernetes.manifests import Options, admission
from workloads.management.commands.admission_policies import text
from workloads.runtime.external import ExternalRef
from workloads.runtime.phases import Phase
from workloads.sharing.nodes import GPU_RESOURCE

GPU = {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
PLAIN = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}


def pod(
    name: str, *owner: str, by: str = "system:serviceaccount:kube-system:job-controller", **more: Any
) -> dict[str, Any]:
    references = (
        [{"apiVersion": owner[0], "kind": owner[1], "name": "o", "uid": "o", "controller": True}] if owner else []
    )
    return {
        "metadata": {
            "name": name, "namespace": "lab", "uid": name, "ownerReferences": references,
            "labels": {admission.ADMIT_TO: "vision"},
            "annotations": {admission.SUBMITTED_BY: by, admission.TIED_BY: "namespace"} | more.get("annotations", {}),
        },
        "spec": {**GPU["spec"], "schedulingGates": [{"name": admission.ADMISSION}]},  # type: ignore[dict-item]
        "status": {"phase": "Pending"},
    }  # fmt: skip


def owner(api: str, kind: str, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    notes = {admission.SUBMITTED_BY: "alice", admission.SUBMITTED_WITH: "kubectl-client-side-apply"}
    meta = {"name": "o", "namespace": "lab", "uid": f"{kind}-uid", "annotations": notes}
    return {"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec, **more}


SIZES = {
    "Job limited by its completions": (
        owner("batch/v1", "Job", {"parallelism": 8, "completions": 3, "template": GPU}), 3),
    "Job without parallelism": (owner("batch/v1", "Job", {"template": GPU}), 1),
    "JobSet, of which only jobs with GPUs count": (owner("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [
        {"replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 2, "template": GPU}}},
        {"template": {"spec": {"template": PLAIN}}}]}), 4),
    "RayCluster with a GPU in its head": (owner("ray.io/v1", "RayCluster", {
        "headGroupSpec": {"template": GPU}, "workerGroupSpecs": [{"replicas": 3, "template": GPU}]}), 4),
    "RayCluster without a GPU in its head": (owner("ray.io/v1", "RayCluster", {
        "headGroupSpec": {"template": PLAIN}, "workerGroupSpecs": [{"replicas": 2, "numOfHosts": 2, "template": GPU}]}), 4),
    "PyTorchJob": (owner("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {
        "Master": {"template": GPU}, "Worker": {"replicas": 3, "template": GPU}}}), 4),
    "MPIJob without a GPU in its launcher": (owner("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": {
        "Launcher": {"template": PLAIN}, "Worker": {"replicas": 2, "template": GPU}}}), 2),
}  # fmt: skip


@pytest.mark.parametrize("case", SIZES)
def test_number_of_pods_that_start_together_is_read_from_the_owner(case: str) -> None:
    top, size = SIZES[case]
    [run] = external_runs.runs([(pod("a", top["apiVersion"], top["kind"]), [top])])
    assert (run.wanted, run.submitted_by, run.submitted_with, run.ref.kind) == (size, "alice", "kubectl", top["kind"])
    assert run.waits is (size == 1)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, "shutdownAfterJobFinishes: true"),
        ({"shutdownAfterJobFinishes": True, "clusterSelector": {"ray.io/cluster": "big"}}, "submit a RayCluster"),
        ({"shutdownAfterJobFinishes": True, "submissionMode": "InteractiveMode"}, "submit a RayCluster"),
        ({"shutdownAfterJobFinishes": True, "clusterSelector": {}}, ""),
    ],
)
def test_ray_job_that_kuberay_would_not_resume_is_unstoppable(spec: dict[str, Any], why: str) -> None:
    ray_job = owner("ray.io/v1", "RayJob", spec)
    [run] = external_runs.runs([(pod("a", ray_job["apiVersion"], ray_job["kind"]), [ray_job])])
    assert why in run.unstoppable
    assert bool(run.unstoppable) is bool(why)


def test_topmost_owner_is_the_run_and_a_lower_one_gives_its_size() -> None:
    jobs = owner("jobset.x-k8s.io/v1alpha2", "JobSet", SIZES["JobSet, of which only jobs with GPUs count"][0]["spec"])
    train = owner("trainer.kubeflow.org/v1alpha1", "TrainJob", {"suspend": True})
    [run] = external_runs.runs([(pod("a", "batch/v1", "Job"), [owner("batch/v1", "Job", {}), jobs, train])])
    assert (run.ref.kind, run.wanted, run.suspended) == ("TrainJob", 4, True)


def test_each_replica_and_each_pod_of_an_unknown_owner_is_a_separate_run() -> None:
    replicas = owner("apps/v1", "ReplicaSet", {"replicas": 2})
    web = owner("apps/v1", "Deployment", {"replicas": 2})
    flow = owner("argoproj.io/v1alpha1", "Workflow", {})
    found = external_runs.runs(
        [(pod(name, "apps/v1", "ReplicaSet"), [replicas, web]) for name in "ab"]
        + [(pod("step", "argoproj.io/v1alpha1", "Workflow", by="system:serviceaccount:argo:argo"), [flow])]
    )
    assert [(run.ref.kind, run.ref.key, run.wanted, run.submitted_by) for run in found] == [
        ("Deployment", "a", 1, "alice"), ("Deployment", "b", 1, "alice"), ("Pod", "step", 1, "alice"),
    ]  # fmt: skip
    assert found[2].manifest is None  # only its workflow can create it again


def test_pod_not_created_by_a_controller_has_its_own_submitter() -> None:
    forged = pod("a", "batch/v1", "Job", by="mallory")
    [run] = external_runs.runs([(forged, [owner("batch/v1", "Job", {})])])
    assert run.submitted_by == "mallory"


def test_submitter_is_empty_for_an_owner_without_admission_policy() -> None:
    [run] = external_runs.runs([(pod("a", "apps/v1", "ReplicaSet"), [owner("apps/v1", "ReplicaSet", {})])])
    assert run.submitted_by == ""


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ({"conditions": [{"type": "Complete", "status": "True"}]}, Phase.SUCCEEDED),
        ({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}, Phase.FAILED),
        ({"conditions": [{"type": "Failed", "status": "False"}]}, None),
        ({"jobStatus": "SUCCEEDED"}, Phase.SUCCEEDED),
    ],
)
def test_owner_status_tells_whether_the_run_has_ended(status: dict[str, Any], phase: Phase | None) -> None:
    [run] = external_runs.runs([(pod("a", "batch/v1", "Job"), [owner("batch/v1", "Job", {}, status=status)])])
    assert run.finished is phase


def test_manifest_to_recreate_a_pod_is_what_its_author_wrote() -> None:
    marks = {admission.ADMITTED: "s-1", admission.STATUS: "admitted", "own": "kept"}
    lone = pod("a", by="alice", annotations=marks)
    lone["spec"] |= {"nodeName": "n1"}
    lone["metadata"]["resourceVersion"] = "7"
    [run] = external_runs.runs([(lone, [])])
    manifest = run.manifest
    assert manifest is not None
    assert set(manifest["spec"]) == {"containers"}
    assert manifest["metadata"]["annotations"].get("own") == "kept"
    assert not {admission.ADMITTED, admission.STATUS} & set(manifest["metadata"]["annotations"])
    assert not {"uid", "resourceVersion"} & set(manifest["metadata"])


def test_pods_are_alike_only_if_their_resources_and_annotations_match() -> None:
    job = owner("batch/v1", "Job", {"parallelism": 2, "template": GPU})
    one, other = pod("a", "batch/v1", "Job"), pod("b", "batch/v1", "Job", annotations={"gpu-fraction": "0.5"})
    [run] = external_runs.runs([(one, [job]), (other, [job])])
    assert not run.alike
    assert [each.asked for each in run.pods] == [{"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 1, "gpu-fraction": "0.5"}]


def reference(**changes: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "o", "controller": True} | changes


@pytest.mark.parametrize("changes", [
    {"name": "../../nodes"}, {"name": "o/status"}, {"name": "O"}, {"name": ""}, {"apiVersion": "batch/v1/x"},
    {"apiVersion": "batch"}, {"uid": ""}, {"kind": None},
])  # fmt: skip
def test_invalid_owner_reference_ends_the_chain(changes: dict[str, Any]) -> None:
    lone = pod("a", by="alice")
    lone["metadata"]["ownerReferences"] = [reference(**changes)]
    assert external_runs.controller_of(lone) is None
    [run] = external_runs.runs([(lone, [])])
    assert (run.ref.kind, run.manifest) == ("Pod", None)
    lone["metadata"]["ownerReferences"] = [reference()]
    assert external_runs.controller_of(lone) == reference()


class Served:
    """A cluster with these pods and `jobs` by name; None: it does not serve their version."""

    def __init__(self, pods: list[dict[str, Any]], jobs: dict[str, dict[str, Any]] | None) -> None:
        self.pods, self.jobs = pods, jobs

    def list(self, path: str, **query: Any) -> tuple[list[dict[str, Any]], str]:
        if path.endswith("/pods"):
            return self.pods, "1"
        raise AssertionError(path)

    def get(self, path: str) -> dict[str, Any] | None:
        if self.jobs is None:
            raise NotServed(path)
        return self.jobs.get(path.rpartition("/")[2])


def listed(api: Served, *known: ExternalRef) -> list[tuple[str, str, int]]:
    runs = Externals(cast(Api, api), Options()).listed(known)
    return [(run.ref.kind, run.ref.key, len(run.pods)) for run in runs]


def test_unserved_api_version_ends_the_chain_and_keeps_known_runs() -> None:
    pods, known = [pod("a", "batch/v1", "Job")], ExternalRef("batch/v1", "Job", "lab", "o", "o")
    other = owner("batch/v1", "Job", {})
    assert listed(Served(pods, None), known) == [("Pod", "a", 1), ("Job", "o", 0)]
    assert listed(Served(pods, {}), known) == []
    assert listed(Served(pods, {"o": other}), known) == []  # another job of the same name
    other["metadata"]["uid"] = "o"
    assert listed(Served(pods, {"o": other}), known) == [("Job", "o", 1)]


def test_single_pod_is_read_by_name_and_many_known_objects_as_a_list() -> None:
    class Asked(Served):
        def list(self, path: str, **query: Any) -> tuple[list[dict[str, Any]], str]:
            asked.append(path)
            return [], "1"

        def get(self, path: str) -> dict[str, Any] | None:
            asked.append(path)
            return None

    asked: list[str] = []
    externals = Externals(cast(Api, Asked([], {})), Options())
    externals.pods(ExternalRef("apps/v1", "Deployment", "lab", "web", "d", "web-1", "p"))
    externals.pods(ExternalRef("v1", "Pod", "lab", "lone", "p"))
    assert asked == ["/api/v1/namespaces/lab/pods/web-1", "/api/v1/namespaces/lab/pods/lone"]
    asked.clear()
    externals.listed([ExternalRef("batch/v1", "Job", "lab", f"j{n}", f"u{n}") for n in range(21)])
    assert asked[:2] == ["/api/v1/pods", "/apis/batch/v1/jobs"]


class Written(Served):
    """Records its requests."""

    def __init__(self, *served: Any) -> None:
        super().__init__(*served)
        self.asked: list[tuple[str, str, Any]] = []

    def call(self, method: str, path: str, body: Any = None, content_type: str = "", **query: Any) -> Answer:
        self.asked.append((method, path.rpartition("/")[2], body))
        return Answer(200, {})


@pytest.mark.parametrize(("ago", "deleted"), [(None, False), (5, False), (31, True), (-600, True), ("soon", True)])
def test_pods_of_an_owner_that_ignores_its_suspension_are_deleted(ago: Any, deleted: bool) -> None:
    job, its_pod = owner("batch/v1", "Job", {"suspend": True}), pod("a", "batch/v1", "Job")
    job["metadata"]["uid"] = "o"
    at = (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=ago)).isoformat() if isinstance(ago, int) else ago
    if at is not None:
        job["metadata"]["annotations"][admission.SUSPENDED] = at
    its_pod["spec"] = {**GPU["spec"], "nodeName": "n1", "terminationGracePeriodSeconds": 60}  # type: ignore[dict-item]
    its_pod["metadata"]["annotations"][admission.ADMITTED] = "s-1"
    api = Written([its_pod], {"o": job})
    Externals(cast(Api, api), Options()).stop(ExternalRef("batch/v1", "Job", "lab", "o", "o"), 20)
    [(_patch, _path, suspended), *deletions] = api.asked
    assert suspended["spec"] == {"suspend": True}
    assert at is None or suspended["metadata"]["annotations"][admission.SUSPENDED] == at
    assert [body["gracePeriodSeconds"] for method, _name, body in deletions] == [20] * deleted


def test_null_characters_are_removed_from_everything_that_is_read() -> None:
    lone = pod("a", by="alice", annotations={admission.STATUS: "a\0b", "gpu-fraction": "\0"})
    lone["status"] = {"phase": "Failed", "reason": "x\0", "message": "y\0"}
    [run] = external_runs.runs([(lone, [])])
    assert "\0" not in f"{run.status}{run.pods[0].reason}{run.pods[0].message}{run.pods[0].asked}"


def test_pods_with_the_label_but_without_the_gate_are_ignored() -> None:
    free = pod("a")
    del free["spec"]["schedulingGates"]
    assert not external_runs.is_concerned(free)


def test_admission_file_of_the_chart_is_what_the_command_writes() -> None:
    assert Path("deploy/helm/gpu-quota-portal/admission.yaml").read_text() == text()


def test_admission_policies_match_the_resources_that_sharing_systems_read() -> None:
    assert f"^({GPU_RESOURCE.pattern})".replace("\\", "\\\\") == admission.RESOURCES
    kinds = {document["kind"] for document in yaml.safe_load_all(text())}
    assert kinds >= {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"}


def test_portal_role_can_patch_only_the_owners_that_it_suspends() -> None:
    role = next(each for each in admission.objects() if each["kind"] == "ClusterRole")
    changed = {(group, plural) for rule in role["rules"] if "patch" in rule["verbs"]
               for group in rule["apiGroups"] for plural in rule["resources"]}  # fmt: skip
    assert changed == {(owner.group, owner.plural) for owner in admission.OWNERS if owner.suspend}


GRACE = {"deletionTimestamp": "2026-01-01T00:00:05Z", "deletionGracePeriodSeconds": 5}


@pytest.mark.parametrize(
    ("status", "meta", "phase"),
    [
        ({"phase": "Failed"}, {}, Phase.FAILED),
        (
            {"phase": "Failed"},
            GRACE,
            Phase.RUNNING,
        ),  # a user deletes it: not lost, and it holds its cards until it is removed
        ({"phase": "Succeeded"}, {}, Phase.SUCCEEDED),
        ({"phase": "Failed", "reason": "Evicted"}, {}, Phase.LOST),
        (
            {
                "phase": "Failed",
                "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
            },
            GRACE,
            Phase.LOST,
        ),
    ],
)
def test_evicted_pod_is_lost_and_pod_deleted_by_a_user_is_not(
    status: dict[str, Any], meta: dict[str, Any], phase: Phase
) -> None:
    lone = pod("a", by="alice", annotations={admission.ADMITTED: "s-1"})
    lone["spec"] = {**GPU["spec"], "nodeName": "n1"}  # type: ignore[dict-item]
    lone["metadata"] |= meta
    lone["status"] = status
    [run] = external_runs.runs([(lone, [])])
    assert run.pods[0].phase is phase


def test_deleted_gated_pod_no_longer_waits() -> None:
    lone = pod("a", by="alice")
    lone["metadata"] |= GRACE
    [run] = external_runs.runs([(lone, [])])
    assert not run.waits
    assert run.pods[0].phase is Phase.PENDING

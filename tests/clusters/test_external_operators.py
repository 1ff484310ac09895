"""Work of training operators: JobSet, KubeRay, Kubeflow's trainer and the MPI operator really run here. Only the older
training operator, of a PyTorchJob, is simulated by a few lines: it creates pods as a service account, deletes them when the
object is suspended, and creates them again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from quotas.models import Claim
from tests.clusters.beds import eventually
from tests.clusters.external_bed import ExternalBed, job, spec_of, until_usable
from tests.clusters.realcluster import ROOT, Admin
from tests.clusters.test_external import FOREVER, account, bed, gated, jobs, pod, pods  # noqa: F401 the fixtures
from workloads.kubernetes.externals import path
from workloads.kubernetes.manifests.admission import BY_KIND, SUBMITTED_BY, OwnerKind
from workloads.models import ExternalWork, Workload

sys.path.insert(0, str(ROOT / "tests/cluster/operators"))
from up import OPERATORS, start_kueue

pytestmark = pytest.mark.cluster
OPERATOR = "system:serviceaccount:operators:simulated"
TWO_CARDS = {"spec": spec_of(FOREVER, cards=2)}
NONE = {"spec": spec_of(FOREVER, cards=0)}
RAY_TEMPLATE = {"metadata": {"annotations": {"ray.io/overwrite-container-cmd": "true"}}, **TWO_CARDS}
JOBS = {
    "replicatedJobs": [
        {
            "name": "workers",
            "replicas": 2,
            "template": {"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": TWO_CARDS}},
        }
    ]
}
RAY = {
    "headGroupSpec": {"rayStartParams": {}, "template": RAY_TEMPLATE},
    "workerGroupSpecs": [
        {
            "groupName": "more",
            "replicas": 1,
            "minReplicas": 1,
            "maxReplicas": 1,
            "rayStartParams": {},
            "template": RAY_TEMPLATE,
        }
    ],
}
RANKS = {"Launcher": {"replicas": 1, "template": NONE}, "Worker": {"replicas": 2, "template": TWO_CARDS}}
PYTORCH = {"Master": {"template": TWO_CARDS}, "Worker": {"replicas": 1, "template": TWO_CARDS}}
Level = tuple[str, str, dict[str, Any]]
REAL: dict[str, Level] = {
    "JobSet": ("jobset.x-k8s.io/v1alpha2", "JobSet", JOBS),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "two-nodes"}}),
    "RayCluster": ("ray.io/v1", "RayCluster", RAY),
    "RayJob": (
        "ray.io/v1",
        "RayJob",
        {
            "rayClusterSpec": RAY,
            "entrypoint": "true",
            "shutdownAfterJobFinishes": True,
            "submitterPodTemplate": {"spec": spec_of(FOREVER, cards=0)},
        },
    ),
    "MPIJob": ("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": RANKS}),
}
SIMULATED: Level = ("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": PYTORCH})
RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime", "metadata": {"name": "two-nodes"},
    "spec": {"mlPolicy": {"numNodes": 2, "torch": {}}, "template": {"spec": {"replicatedJobs": [
        {"name": "node", "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {**TWO_CARDS["spec"], "containers": [
                TWO_CARDS["spec"]["containers"][0] | {"name": "node"}]}}}}}]}}},
}  # fmt: skip


@pytest.fixture(scope="module")
def operators(admin: Admin) -> Iterator[None]:
    running = [OPERATORS[name] for name in ("jobset", "trainer", "kuberay", "mpi")]
    for each in running:
        each.start(admin.state, admin.call)
    runtimes = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
    try:
        eventually(lambda: admin.call("POST", runtimes, RUNTIME).get("reason") in (None, "AlreadyExists"))
        yield
    finally:
        for each in running:
            each.stop(admin.state, admin.call)


def serve(admin: Admin, api: str, kind: str) -> None:
    group, version = api.split("/")
    known = BY_KIND[group, kind]
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    admin.apply({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{known.plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced",
                 "names": {"kind": kind, "plural": known.plural, "singular": kind.lower()},
                 "versions": [{"name": version, "served": True, "storage": True, "schema": schema}]},
    })  # fmt: skip
    eventually(lambda: "items" in admin.call("GET", path(api, known.plural)))


@dataclass
class Submitted:
    """One object named `train`, submitted by bob; with `simulated`, also the actions of its controller. Real controllers act
    by themselves."""

    bed: ExternalBed
    level: Level
    simulated: bool

    @property
    def home(self) -> str:
        return self.bed.home("nlp")

    @property
    def kind(self) -> OwnerKind:
        return BY_KIND[self.level[0].rpartition("/")[0], self.level[1]]

    @property
    def path(self) -> str:
        return path(self.level[0], self.kind.plural, self.home, "train")

    def submit(self) -> None:
        api, kind, spec = self.level
        collection = self.path.removesuffix("/train")
        document = {"apiVersion": api, "kind": kind, "metadata": {"name": "train"}, "spec": spec}

        def is_admitted() -> bool:
            """The policies apply to a new kind, and its operator starts, a moment after the kind is served."""
            response = self.bed.admin.call("POST", f"{collection}?fieldManager=kubectl-create", document, user="bob")
            if SUBMITTED_BY in (response.get("metadata") or {}).get("annotations", {}):
                return True
            self.bed.admin.call("DELETE", self.path)
            return False

        eventually(is_admitted)

    @property
    def suspended(self) -> bool:
        value: Any = self.bed.call("GET", self.path)
        for name in self.kind.suspend:
            value = (value or {}).get(name)
        return bool(value)

    def act(self) -> None:
        if not self.simulated:
            return
        present = self.bed.pods("nlp")
        if self.suspended:
            for each in present:
                if not each["metadata"].get("deletionTimestamp"):
                    self.bed.admin.call("DELETE", f"{pods(self.bed, 'nlp', each['metadata']['name'])}")
        elif not present:
            owner = _owner(self.bed.call("GET", self.path))
            for number in range(2):
                created = pod(f"train-{number}", FOREVER, cards=2, ownerReferences=[owner])
                self.bed.admin.call("POST", pods(self.bed, "nlp"), created, user=OPERATOR)

    def until(self, condition: Callable[[], bool]) -> None:
        def act_and_check() -> bool:
            self.act()
            return condition()

        self.bed.until(act_and_check)


def _owner(above: dict[str, Any]) -> dict[str, Any]:
    meta = above["metadata"]
    return {
        "apiVersion": above["apiVersion"],
        "kind": above["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


@pytest.mark.timeout(600)  # their binaries may have to be built, and a new kind reaches the policies within a minute
@pytest.mark.parametrize("kind", [*REAL, "PyTorchJob"])
def test_operators_object_starts_as_a_gang_is_suspended_by_a_recall_and_resumed(
    operators: None,
    bed: ExternalBed,  # noqa: F811
    admin: Admin,
    kind: str,
) -> None:
    work = Submitted(bed, REAL.get(kind, SIMULATED), simulated=kind not in REAL)
    if work.simulated:
        serve(admin, *SIMULATED[:2])
    work.submit()
    work.until(lambda: Workload.objects.filter(state="running").exists())
    run = Workload.objects.get()
    assert (run.name, run.pods, run.units_per_pod, run.author) == ("train", 2, 2, bed.bob)
    assert ExternalWork.objects.get().sentence == f"{kind} {bed.home('nlp')}/train, submitted with kubectl by bob"
    bed.call("POST", pods(bed), pod("owner", FOREVER, cards=2), user="alice")
    work.until(lambda: Workload.objects.filter(name="owner", state="running").exists())
    assert (bed.state(run), run.attempts.get(number=1).outcome) == ("queued", "recalled")
    assert work.suspended
    bed.call("DELETE", f"{pods(bed, name='owner')}?gracePeriodSeconds=1", user="alice")
    work.until(lambda: Workload.objects.filter(name="owner", state="cancelled").exists())
    Claim.objects.filter(attempt__workload=run).update(backoff_until=None)
    work.until(lambda: bed.state(run) == "running")
    assert not work.suspended
    assert Workload.objects.count() == 2


@pytest.fixture(scope="module")
def kueue(admin: Admin) -> Iterator[None]:
    start_kueue(admin.state, admin.call)
    try:
        yield
    finally:
        OPERATORS["kueue"].stop(admin.state, admin.call)


QUEUES = "/apis/kueue.x-k8s.io/v1beta2"


def queue_of_kueue(bed: ExternalBed, cards: int) -> str:  # noqa: F811
    """A namespace with cards in a queue of Kueue, which is tied to no department."""
    name = f"{bed.name}-kueue"
    flavors = [{"name": "default", "resources": [
        {"name": "nvidia.com/gpu", "nominalQuota": str(cards)}, {"name": "cpu", "nominalQuota": "9"},
        {"name": "memory", "nominalQuota": "9Gi"}]}]  # fmt: skip
    groups = [{"coveredResources": ["nvidia.com/gpu", "cpu", "memory"], "flavors": flavors}]
    version, meta = "kueue.x-k8s.io/v1beta2", {"name": name}
    bed.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    until_usable(bed.admin, name)
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    queue = {"apiVersion": version, "kind": "ClusterQueue", "metadata": meta, "spec": spec}
    bed.call("POST", f"{QUEUES}/clusterqueues", queue)
    local = {"apiVersion": version, "kind": "LocalQueue", "metadata": {"name": "q"}, "spec": {"clusterQueue": name}}
    bed.call("POST", f"{QUEUES}/namespaces/{name}/localqueues", local)
    return name


@pytest.mark.timeout(600)
def test_kueue_and_portal_each_admit_only_their_own_work(kueue: None, bed: ExternalBed) -> None:  # noqa: F811
    kueue_namespace = queue_of_kueue(bed, cards=2)
    queued = job("queued", FOREVER, cards=2) | {
        "metadata": {"name": "queued", "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    }
    bed.call("POST", f"/apis/batch/v1/namespaces/{kueue_namespace}/jobs", queued, user="carol")
    bed.call("POST", jobs(bed), job("ours", FOREVER, cards=2), user="alice")
    ours = bed.until_running("ours")
    path = f"/api/v1/namespaces/{kueue_namespace}/pods"
    bed.until(lambda: any(each["status"]["phase"] == "Running" for each in bed.call("GET", path)["items"]))
    (pod_of_kueue,) = bed.call("GET", path)["items"]
    assert not gated(pod_of_kueue)
    assert (Workload.objects.get(), ours.author) == (ours, bed.alice)
    assert not [
        each
        for each in bed.call("GET", f"{QUEUES}/workloads")["items"]
        if each["metadata"]["namespace"] != kueue_namespace
    ]
    metadata = {"metadata": {"name": "more", "labels": {"kueue.x-k8s.io/queue-name": "q"}}}
    bed.call(
        "POST",
        f"/apis/batch/v1/namespaces/{kueue_namespace}/jobs",
        job("more", FOREVER, cards=1) | metadata,
        user="carol",
    )
    path = f"/apis/batch/v1/namespaces/{kueue_namespace}/jobs/more"
    bed.until(
        lambda: bed.call("GET", path)["spec"].get("suspend") is True
    )  # Kueue's quota is used up: the job waits there
    assert Workload.objects.count() == 1
    bed.admin.call("DELETE", f"/api/v1/namespaces/{kueue_namespace}")
    bed.admin.call("DELETE", f"{QUEUES}/clusterqueues/{kueue_namespace}")
    eventually(lambda: not bed.admin.call("GET", f"/api/v1/namespaces/{kueue_namespace}/pods").get("items"))

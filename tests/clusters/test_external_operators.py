"""Kinds of training operators on a real API server: their objects are custom resources without a schema, and a few lines here
play their controllers (they make pods as a service account, delete them when the object is suspended, and make them again)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from quotas.models import Claim
from tests.clusters.beds import eventually
from tests.clusters.external_bed import ExternalBed, spec_of
from tests.clusters.realcluster import Admin
from tests.clusters.test_external import FOREVER, account, bed, pod, pods  # noqa: F401 the fixtures
from workloads.kubernetes.externals import path
from workloads.kubernetes.manifests.admission import BY_KIND, SUBMITTED_BY
from workloads.models import ExternalWork, Workload

pytestmark = pytest.mark.cluster
OPERATOR = "system:serviceaccount:operators:played"
TWO_CARDS = {"spec": spec_of(FOREVER, cards=2)}
NONE = {"spec": spec_of(FOREVER, cards=0)}
JOBS = {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": {"template": TWO_CARDS}}}]}
RAY = {"headGroupSpec": {"template": TWO_CARDS}, "workerGroupSpecs": [{"replicas": 1, "template": TWO_CARDS}]}
Level = tuple[str, str, dict[str, Any]]
LEVELS: dict[str, list[Level]] = {
    "JobSet": [("jobset.x-k8s.io/v1alpha2", "JobSet", JOBS)],
    "TrainJob": [("trainer.kubeflow.org/v1alpha1", "TrainJob", {}), ("jobset.x-k8s.io/v1alpha2", "JobSet", JOBS)],
    "RayCluster": [("ray.io/v1", "RayCluster", RAY)],
    "RayJob": [("ray.io/v1", "RayJob", {"rayClusterSpec": RAY}), ("ray.io/v1", "RayCluster", RAY)],
    "PyTorchJob": [("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {
        "Master": {"template": TWO_CARDS}, "Worker": {"replicas": 1, "template": TWO_CARDS}}})],
    "MPIJob": [("kubeflow.org/v1", "MPIJob", {"mpiReplicaSpecs": {
        "Launcher": {"template": NONE}, "Worker": {"replicas": 2, "template": TWO_CARDS}}})],
}  # fmt: skip


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
class Operator:
    """Plays the controllers of one object called `train`, whose pods are below the last of `levels`."""

    bed: ExternalBed
    levels: list[Level]
    made: list[str] = field(default_factory=list)

    @property
    def home(self) -> str:
        return self.bed.home("nlp")

    def path(self, level: int) -> str:
        api, kind, _spec = self.levels[level]
        return path(api, BY_KIND[api.rpartition("/")[0], kind].plural, self.home, "train")

    def object(self, level: int) -> dict[str, Any] | None:
        found = self.bed.admin.call("GET", self.path(level))
        return found if found.get("kind") != "Status" else None

    def submit(self) -> None:
        api, kind, spec = self.levels[0]
        collection = self.path(0).removesuffix("/train")
        made = {"apiVersion": api, "kind": kind, "metadata": {"name": "train"}, "spec": spec}

        def known() -> bool:
            """The policies get to know a new kind a moment after it is served, and write no name until then."""
            answer = self.bed.admin.call("POST", f"{collection}?fieldManager=kubectl-create", made, user="bob")
            if SUBMITTED_BY in (answer.get("metadata") or {}).get("annotations", {}):
                return True
            self.bed.admin.call("DELETE", self.path(0))
            return False

        eventually(known)

    @property
    def suspended(self) -> bool:
        value: Any = self.object(0)
        for name in BY_KIND[self.levels[0][0].rpartition("/")[0], self.levels[0][1]].suspend:
            value = (value or {}).get(name)
        return bool(value)

    def act(self) -> None:
        present = self.bed.pods("nlp")
        if self.suspended:
            for each in present:
                if not each["metadata"].get("deletionTimestamp"):
                    self.bed.admin.call("DELETE", f"{pods(self.bed, 'nlp', each['metadata']['name'])}")
            for level in range(1, len(self.levels)):
                self.bed.admin.call("DELETE", f"{self.path(level)}?propagationPolicy=Background")
            return
        for level in range(1, len(self.levels)):
            self._make(level)
        if not present:
            last = self.object(len(self.levels) - 1)
            for number in range(2):
                self._pod(f"train-{number}", last)

    def _make(self, level: int) -> None:
        api, kind, spec = self.levels[level]
        above = self.object(level - 1)
        if above is None or self.object(level) is not None:
            return
        made = {
            "apiVersion": api,
            "kind": kind,
            "metadata": {"name": "train", "ownerReferences": [_owner(above)]},
            "spec": spec,
        }
        self.bed.admin.call("POST", self.path(level).removesuffix("/train"), made, user=OPERATOR)

    def _pod(self, name: str, above: dict[str, Any] | None) -> None:
        if above is not None:
            made = pod(name, FOREVER, cards=2, ownerReferences=[_owner(above)])
            self.bed.admin.call("POST", pods(self.bed, "nlp"), made, user=OPERATOR)

    def until(self, fact: Callable[[], bool]) -> None:
        def acted() -> bool:
            self.act()
            return fact()

        self.bed.until(acted)


def _owner(above: dict[str, Any]) -> dict[str, Any]:
    meta = above["metadata"]
    return {
        "apiVersion": above["apiVersion"],
        "kind": above["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


@pytest.mark.timeout(300)  # a kind that is served for the first time reaches the policies within a minute
@pytest.mark.parametrize("kind", LEVELS)
def test_it_starts_as_one_gives_cards_back_by_suspend_and_is_resumed_as_the_same_workload(
    bed: ExternalBed,  # noqa: F811
    admin: Admin,
    kind: str,
) -> None:
    for api, name, _spec in LEVELS[kind]:
        serve(admin, api, name)
    operator = Operator(bed, LEVELS[kind])
    operator.submit()
    operator.until(lambda: Workload.objects.filter(state="running").exists())
    run = Workload.objects.get()
    assert (run.name, run.pods, run.units_per_pod, run.author) == ("train", 2, 2, bed.bob)
    assert ExternalWork.objects.get().sentence == f"{kind} {bed.home('nlp')}/train, submitted with kubectl by bob"
    bed.call("POST", pods(bed), pod("owner", FOREVER, cards=2), user="alice")
    operator.until(lambda: Workload.objects.filter(name="owner", state="running").exists())
    assert (bed.state(run), run.attempts.get(number=1).outcome) == ("queued", "recalled")
    assert operator.suspended
    bed.call("DELETE", f"{pods(bed, name='owner')}?gracePeriodSeconds=1", user="alice")
    operator.until(lambda: Workload.objects.filter(name="owner", state="cancelled").exists())
    Claim.objects.filter(attempt__workload=run).update(backoff_until=None)
    operator.until(lambda: bed.state(run) == "running")
    assert not operator.suspended
    assert Workload.objects.count() == 2

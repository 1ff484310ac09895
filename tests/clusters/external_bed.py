"""A portal on the test cluster that admits external work: its admission policies are in force, and two namespaces are tied to
departments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portal.infra.crypt import encrypt
from quotas.models import Card, Cluster, ClusterKind, Pool, PoolGroup
from tests import builders as make
from tests.clusters import realcluster
from tests.clusters.beds import eventually
from tests.clusters.realcluster import Admin
from tests.clusters.test_walk import PodBed
from workloads.kubernetes.manifests import admission
from workloads.models import Image, Workload
from workloads.nodes import inventory

MERGE = "application/merge-patch+json"
RBAC = "rbac.authorization.k8s.io/v1"
RESEARCHERS: list[dict[str, Any]] = [
    {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": "test-researchers"}, "rules": [
        {"apiGroups": ["", "batch", "apps", "jobset.x-k8s.io", "ray.io", "kubeflow.org", "trainer.kubeflow.org"],
         "resources": ["*"], "verbs": ["*"]}]},
    {"apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": "test-researchers"},
     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "test-researchers"},
     "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "researchers"}]},
]  # fmt: skip


def install(admin: Admin, account: str) -> None:
    """Installs the policies, and the rights of `account` that they require."""
    for document in [*admission.objects(), *RESEARCHERS]:
        if document["kind"] == "ClusterRoleBinding" and document["metadata"]["name"].startswith("gpu-quota-portal"):
            subjects = [{"kind": "ServiceAccount", "name": account, "namespace": account}]
            metadata = {"name": f"{account}-admission"}
            document = document | {"subjects": subjects, "metadata": metadata}
        admin.apply(document)


@dataclass
class ExternalBed(PodBed):
    """Users of the cluster are `alice` of vision and `bob` of nlp; each department has a namespace tied to it."""

    admin: Admin = field(kw_only=True)
    name: str = field(kw_only=True)

    def home(self, department: str = "vision") -> str:
        return f"{self.name}-{department}-lab"

    def call(self, method: str, path: str, body: Any = None, *, user: str = "", kind: str = "application/json") -> Any:
        response = self.admin.call(method, path, body, kind, user)
        assert response.get("kind") != "Status" or response.get("status") == "Success", response
        return response

    def pods(self, department: str = "vision") -> list[dict[str, Any]]:
        return list(self.call("GET", f"/api/v1/namespaces/{self.home(department)}/pods")["items"])

    def only(self) -> Workload:
        return Workload.objects.get()

    def until_running(self, name: str) -> Workload:
        self.until(lambda: Workload.objects.filter(name=name, state="running").exists())
        return Workload.objects.get(name=name, state="running")


def bed_of(admin: Admin, kubeconfig: str, account: str, folder: Path, cards: int = 4) -> Iterator[ExternalBed]:
    name = realcluster.unique("tied")
    install(admin, account)
    options = {"volume": "emptyDir", "image_pull_policy": "Never", "namespace_prefix": f"{name}-", "admission": True,
               "files_image": "test.local/python:3"}  # fmt: skip
    cluster = Cluster.objects.create(
        name=name, kind=ClusterKind.KUBERNETES, connection=encrypt(kubeconfig), options=options
    )
    inventory.refresh(cluster)
    pool = Pool.objects.get(product="Pretended-GPU")
    Card.objects.filter(pool=pool, index__gte=cards).delete()
    Pool.objects.exclude(pk=pool.pk).delete()
    PoolGroup.objects.exclude(pk=pool.group_id).delete()
    Pool.objects.filter(pk=pool.pk).update(notice=1, grace=5, nominal=cards)
    pool.refresh_from_db()
    vision, nlp = make.department(f"vision-{name[-6:]}"), make.department(f"nlp-{name[-6:]}")
    make.quota(vision, pool, cards // 2)
    make.quota(nlp, pool, cards // 2)
    image = Image.objects.create(name="test.local/python:3", title="Python")
    people = make.member(vision, username="alice"), make.member(nlp, username="bob")
    bed = ExternalBed(cluster, pool, vision, nlp, *people, image, folder, admin=admin, name=name)
    for word, department in (("vision", vision), ("nlp", nlp)):
        labels = {admission.ADMIT_TO: department.slug}
        admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": bed.home(word), "labels": labels}})
        until_usable(admin, bed.home(word))
        until_admitted(admin, bed.home(word))
    try:
        yield bed
    finally:
        for word in ("vision", "nlp"):  # pods that remain would count as outside quota in the next test
            path = f"/api/v1/namespaces/{bed.home(word)}"
            admin.call("DELETE", path)
            eventually(lambda: not admin.call("GET", f"{path}/pods").get("items"))  # noqa: B023 called at once
        admin.call("DELETE", f"/apis/{RBAC}/clusterrolebindings/{account}-admission")


def until_usable(admin: Admin, namespace: str) -> None:
    """Waits for the service account of pods, which a controller creates a moment after the namespace."""
    eventually(
        lambda: (
            admin.call("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default").get("kind") == "ServiceAccount"
        )
    )


def until_admitted(admin: Admin, namespace: str) -> None:
    """Waits until the policies apply: the server reads them and namespaces' labels from caches, and admits earlier pods
    unchanged."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "dry-run"}, "spec": spec_of("true")}
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldManager=kubectl-create"
    eventually(lambda: "schedulingGates" in admin.call("POST", path, pod, user="alice").get("spec", {}))


def container(command: str, cards: int = 1) -> dict[str, Any]:
    limits = {"cpu": "50m", "memory": "64Mi"} | ({"nvidia.com/gpu": str(cards)} if cards else {})
    return {"name": "main", "image": "test.local/busybox:1", "imagePullPolicy": "Never",
            "command": ["sh", "-c", command], "resources": {"limits": limits}}  # fmt: skip


def spec_of(command: str, cards: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 2,
        "containers": [container(command, cards)],
        **more,
    }


def job(name: str, command: str, cards: int = 1, pods: int = 1, **more: Any) -> dict[str, Any]:
    """A Job; `more` is the metadata of its pod template."""
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0,
                 "template": {"metadata": more, "spec": spec_of(command, cards)}},
    }  # fmt: skip

"""deploy/kubernetes, as a real API server reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clusters.realcluster import Admin, unique

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
DOCUMENTS: list[dict[str, Any]] = [
    document for name in KUSTOMIZATION["resources"] for document in yaml.safe_load_all((FOLDER / name).read_text())
]
NAMESPACE = KUSTOMIZATION["namespace"]
OPT_IN = {"node-changes.yaml"}  # rights that an operator grants or not


@pytest.fixture(scope="module")
def namespace(admin: Admin) -> Iterator[str]:
    """One of these tests' own, furnished as the folder says: others may have another version of it on this cluster."""
    own = unique(NAMESPACE)
    for document in yaml.safe_load_all((FOLDER / "namespace.yaml").read_text()):
        admin.apply(document | {"metadata": document["metadata"] | {"name": own}})
    for document in yaml.safe_load_all((FOLDER / "rbac.yaml").read_text()):
        if document["kind"] == "ServiceAccount":
            admin.apply(document | {"metadata": document["metadata"] | {"namespace": own}})
    yield own
    admin.call("DELETE", f"/api/v1/namespaces/{own}")


def templates() -> list[Any]:
    """The pod template of every workload object."""
    made = [(d["metadata"]["name"], d["spec"]["template"]) for d in DOCUMENTS if "template" in d.get("spec", {})]
    return [pytest.param(template, id=name) for name, template in made]


def test_every_file_of_the_folder_is_in_the_kustomization() -> None:
    named = {*KUSTOMIZATION["resources"], "kustomization.yaml", *KUSTOMIZATION["configMapGenerator"][0]["envs"]}
    assert named | OPT_IN == {path.name for path in FOLDER.iterdir()}


def test_it_runs_web_worker_beat_watcher_and_migrations() -> None:
    assert {case.id for case in templates()} == {"web", "worker", "beat", "watcher", "migrate"}


def test_every_variable_it_sets_is_one_the_portal_reads() -> None:
    lines = (FOLDER / "portal.env").read_text().splitlines()
    known = (FOLDER.parents[1] / ".env.example").read_text()
    for line in lines:
        name = line.split("=")[0].removesuffix("_FILE")
        assert f"\n{name}=" in known or f"\n#{name}=" in known, name


@pytest.mark.cluster
def test_the_api_server_accepts_every_object(admin: Admin, namespace: str) -> None:
    homes = {
        "Deployment": "apis/apps/v1", "Job": "apis/batch/v1", "Service": "api/v1",
        "NetworkPolicy": "apis/networking.k8s.io/v1",
    }  # fmt: skip
    for document in DOCUMENTS:
        kind = document["kind"]
        if kind not in homes:
            continue  # applied for every account of the tests
        plural = "networkpolicies" if kind == "NetworkPolicy" else kind.lower() + "s"
        path = f"/{homes[kind]}/namespaces/{namespace}/{plural}?dryRun=All&fieldValidation=Strict"
        answer = admin.call("POST", path, document)
        assert answer["kind"] == kind, answer["message"]


@pytest.mark.cluster
@pytest.mark.parametrize("template", templates())
def test_its_pods_obey_the_restricted_standard(admin: Admin, namespace: str, template: dict[str, Any]) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": unique("pod")}, "spec": template["spec"]}
    answer = admin.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict", pod)
    assert answer["kind"] == "Pod", answer["message"]

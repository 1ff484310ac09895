"""Exports for other operators: their kinds, roles, counts and the fields that their controllers read."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from workloads.requests.exports import EXPORTS, Asked, export, fitting
from workloads.runtime.rank_environment import Template

ASKED = Asked(
    name="ddp", template="torch", pods=4, cards=2, image="registry.example.org/train:1", command=("torchrun", "train.py"),
    env={"EPOCHS": "3"}, cpu_milli=8000, memory_mib=65536, shm_mib=16384, max_restarts=3, parameter_servers=1,
)  # fmt: skip
VERSIONS = {
    "PyTorchJob": "kubeflow.org/v1", "TFJob": "kubeflow.org/v1", "MPIJob": "kubeflow.org/v2beta1",
    "JobSet": "jobset.x-k8s.io/v1alpha2", "TrainJob": "trainer.kubeflow.org/v1alpha1",
}  # fmt: skip
FITS = [(template, kind) for template in Template for kind in fitting(template)]


@pytest.mark.parametrize(("template", "kind"), FITS)
def test_every_export_is_plain_yaml_with_the_api_version_of_its_operator(template: str, kind: str) -> None:
    manifest = export(kind, replace(ASKED, template=template))
    assert yaml.safe_load(yaml.safe_dump(manifest)) == manifest
    assert (manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"]) == (VERSIONS[kind], kind, "ddp")


def test_every_template_has_an_export_and_every_export_a_template() -> None:
    assert {kind for _template, kind in FITS} == set(EXPORTS)
    assert all(fitting(template) for template in Template)
    with pytest.raises(KeyError):
        export("TFJob", ASKED)


def test_a_pytorch_job_has_one_master_and_the_others_as_workers() -> None:
    spec = export("PyTorchJob", ASKED)["spec"]
    assert {name: part["replicas"] for name, part in spec["pytorchReplicaSpecs"].items()} == {"Master": 1, "Worker": 3}
    assert (spec["nprocPerNode"], spec["runPolicy"]["backoffLimit"]) == ("2", 3)
    [container] = spec["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert container["name"] == "pytorch"  # the operator looks for this name
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 2
    assert container["env"] == [{"name": "EPOCHS", "value": "3"}]


@pytest.mark.parametrize(
    ("template", "roles"),
    [("tensorflow", {"Chief": 1, "Worker": 3}), ("tensorflow-ps", {"Chief": 1, "PS": 1, "Worker": 2})],
)
def test_a_tf_job_has_the_roles_of_its_template(template: str, roles: dict[str, int]) -> None:
    parts = export("TFJob", replace(ASKED, template=template))["spec"]["tfReplicaSpecs"]
    assert {name: part["replicas"] for name, part in parts.items()} == roles
    assert {part["template"]["spec"]["containers"][0]["name"] for part in parts.values()} == {"tensorflow"}


def test_an_mpi_job_has_a_launcher_without_cards_and_a_slot_for_each_card() -> None:
    spec = export("MPIJob", replace(ASKED, template="mpi"))["spec"]
    launcher, worker = (spec["mpiReplicaSpecs"][name] for name in ("Launcher", "Worker"))
    assert (spec["slotsPerWorker"], launcher["replicas"], worker["replicas"]) == (2, 1, 4)
    [start], [serve] = (part["template"]["spec"]["containers"] for part in (launcher, worker))
    assert "nvidia.com/gpu" not in start["resources"]["limits"]
    assert start["command"] == ["torchrun", "train.py"]
    assert "command" not in serve  # its operator starts sshd


def test_a_job_set_is_one_indexed_job_whose_first_pod_is_the_master() -> None:
    spec = export("JobSet", ASKED)["spec"]
    [job] = spec["replicatedJobs"]
    assert (spec["failurePolicy"], job["replicas"]) == ({"maxRestarts": 3}, 1)
    inner = job["template"]["spec"]
    assert (inner["completions"], inner["completionMode"], inner["backoffLimit"]) == (4, "Indexed", 0)
    env = {each["name"]: each.get("value") for each in inner["template"]["spec"]["containers"][0]["env"]}
    assert (env["MASTER_ADDR"], env["WORLD_SIZE"], env["PET_NNODES"]) == ("ddp-ranks-0-0.ddp", "8", "4")


def test_train_job_names_a_runtime_that_sets_the_rank_variables() -> None:
    spec = export("TrainJob", ASKED)["spec"]
    assert spec["runtimeRef"]["name"] == "torch-distributed"
    assert (spec["trainer"]["numNodes"], spec["trainer"]["numProcPerNode"]) == (4, 2)
    assert {each["name"] for each in spec["trainer"]["env"]} == {"EPOCHS"}


def test_rdma_is_exported_with_the_capability_it_needs() -> None:
    manifest = export("PyTorchJob", replace(ASKED, extra={"rdma/hca_shared_devices_a": 1}))
    container = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["rdma/hca_shared_devices_a"] == 1
    assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]

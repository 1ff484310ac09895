"""A distributed workload as the manifest of an operator that other clusters run: MPIJob, PyTorchJob, TFJob, JobSet,
TrainJob. Pure; formats of MPI Operator v0.8, training-operator v1.9, JobSet v0.12, Kubeflow Trainer v2.

An export is independent of this portal: it has no volume claim, notice file or placement, only what the person requested.
`fitting()` returns the kinds for a template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workloads.runtime.expansion import escaped
from workloads.runtime.rank_environment import PORT, Template, role

Json = dict[str, Any]
RUNTIME = "torch-distributed"  # the ClusterTrainingRuntime that is installed with Trainer v2


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Input of an export. `resource` is the extended resource of the cards, `cards` how many of it each pod gets."""

    name: str
    template: str
    pods: int
    cards: int
    image: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cpu_milli: int = 1000
    memory_mib: int = 2048
    shm_mib: int = 1024
    parameter_servers: int = 0
    max_restarts: int = 0
    resource: str = "nvidia.com/gpu"
    extra: Mapping[str, int] = field(default_factory=dict)  # further extended resources for each pod: RDMA


def _template(asked: Asked, container: str, *, command: bool = True, cards: bool = True) -> Json:
    resources = {"cpu": f"{asked.cpu_milli}m", "memory": f"{asked.memory_mib}Mi"}
    limits: Json = dict(resources)
    if cards:
        limits |= {asked.resource: asked.cards, **asked.extra}
    body: Json = {
        "name": container,
        "image": asked.image,
        "env": [{"name": name, "value": escaped(value)} for name, value in sorted(asked.env.items())],
        "resources": {"requests": resources, "limits": limits},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - the container's own
    }
    if command:
        body["command"] = [escaped(word) for word in asked.command]
    if asked.extra:
        body["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{asked.shm_mib}Mi"}}
    return {"spec": {"restartPolicy": "Never", "containers": [body], "volumes": [shm]}}


def _replicas(asked: Asked, container: str) -> dict[str, Json]:
    """Role, in the operators' spelling (Master, Worker, PS, Chief) → its replica spec."""
    by_spec: dict[str, Json] = {}
    for rank in range(asked.pods):
        name = role(asked.template, rank, asked.parameter_servers).name
        spelled = "PS" if name == "ps" else name.capitalize()
        if spelled not in by_spec:
            made = _template(asked, container)
            made["spec"].pop("restartPolicy")
            by_spec[spelled] = {"replicas": 0, "restartPolicy": "Never", "template": made}
        by_spec[spelled]["replicas"] += 1
    return by_spec


def _policy(asked: Asked) -> Json:
    return {"cleanPodPolicy": "Running", "backoffLimit": asked.max_restarts}


def pytorch_job(asked: Asked) -> Json:
    return _object(asked, "kubeflow.org/v1", "PyTorchJob", {
        "nprocPerNode": str(asked.cards),
        "runPolicy": _policy(asked),
        "pytorchReplicaSpecs": _replicas(asked, "pytorch"),
    })  # fmt: skip


def tf_job(asked: Asked) -> Json:
    return _object(asked, "kubeflow.org/v1", "TFJob", {
        "runPolicy": _policy(asked),
        "tfReplicaSpecs": _replicas(asked, "tensorflow"),
    })  # fmt: skip


def mpi_job(asked: Asked) -> Json:
    """The MPI Operator has a separate launcher pod without cards; each pod of the request becomes a worker."""
    launcher = {"replicas": 1, "restartPolicy": "Never", "template": _template(asked, "launcher", cards=False)}
    worker = {"replicas": asked.pods, "restartPolicy": "Never", "template": _template(asked, "worker", command=False)}
    for part in (launcher, worker):
        part["template"]["spec"].pop("restartPolicy")  # type: ignore[index]
    return _object(asked, "kubeflow.org/v2beta1", "MPIJob", {
        "slotsPerWorker": asked.cards,
        "runPolicy": _policy(asked),
        "mpiReplicaSpecs": {"Launcher": launcher, "Worker": worker},
    })  # fmt: skip


def job_set(asked: Asked) -> Json:
    """The first pod is the master; JobSet names its pods <set>-<job>-<index>-<pod>.<set>."""
    first = f"{asked.name}-ranks-0-0.{asked.name}"
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    made = _template(asked, "main")
    made["spec"]["containers"][0]["env"] += [
        {"name": "MASTER_ADDR", "value": first},
        {"name": "MASTER_PORT", "value": str(PORT)},
        {"name": "RANK", "valueFrom": index},
        {"name": "WORLD_SIZE", "value": str(asked.pods * (asked.cards if asked.template == Template.TORCH else 1))},
        *_pet(asked, first, index),
    ]
    job = {
        "completions": asked.pods,
        "parallelism": asked.pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": made,
    }
    return _object(asked, "jobset.x-k8s.io/v1alpha2", "JobSet", {
        "failurePolicy": {"maxRestarts": asked.max_restarts},
        "replicatedJobs": [{"name": "ranks", "replicas": 1, "template": {"spec": job}}],
    })  # fmt: skip


def _pet(asked: Asked, first: str, index: Json) -> list[Json]:
    if asked.template != Template.TORCH:
        return []
    alike = {
        "NNODES": str(asked.pods),
        "NPROC_PER_NODE": str(asked.cards),
        "MASTER_ADDR": first,
        "MASTER_PORT": str(PORT),
    }
    env: list[Json] = [{"name": f"PET_{name}", "value": value} for name, value in alike.items()]
    return [*env, {"name": "PET_NODE_RANK", "valueFrom": index}]


def train_job(asked: Asked) -> Json:
    """The ClusterTrainingRuntime sets PET_*; it must be installed in the target cluster."""
    resources = {asked.resource: asked.cards, **asked.extra}
    resources |= {"cpu": f"{asked.cpu_milli}m", "memory": f"{asked.memory_mib}Mi"}  # type: ignore[dict-item]
    return _object(asked, "trainer.kubeflow.org/v1alpha1", "TrainJob", {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": RUNTIME},
        "trainer": {
            "image": asked.image,
            "command": [escaped(word) for word in asked.command],
            "env": [{"name": name, "value": escaped(value)} for name, value in sorted(asked.env.items())],
            "numNodes": asked.pods,
            "numProcPerNode": asked.cards,
            "resourcesPerNode": {"requests": resources, "limits": resources},
        },
    })  # fmt: skip


def _object(asked: Asked, version: str, kind: str, spec: Json) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": asked.name}, "spec": spec}


EXPORTS: dict[str, Callable[[Asked], Json]] = {
    "PyTorchJob": pytorch_job,
    "TrainJob": train_job,
    "TFJob": tf_job,
    "MPIJob": mpi_job,
    "JobSet": job_set,
}
FITTING = {
    Template.TORCH: ("PyTorchJob", "TrainJob", "JobSet"),
    Template.TENSORFLOW: ("TFJob",),
    Template.TENSORFLOW_PS: ("TFJob",),
    Template.MPI: ("MPIJob",),
    Template.GENERIC: ("JobSet",),
}


def fitting(template: str) -> tuple[str, ...]:
    return FITTING.get(Template(template), ()) if template in set(Template) else ()


def export(kind: str, asked: Asked) -> Json:
    """The manifest of this kind. Raises KeyError for a kind that does not fit the template."""
    if kind not in fitting(asked.template):
        raise KeyError(kind)
    return EXPORTS[kind](asked)

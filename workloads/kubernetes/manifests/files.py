"""The pod that gives access to a working directory's files: it mounts the claim and has no GPU, no account and no
network access."""

from __future__ import annotations

from typing import Any

from workloads.kubernetes.manifests.labels import INSTANCE, MANAGED_BY, PREFIX, ROLE, label, volume_labels
from workloads.kubernetes.manifests.namespace_limits import PRIORITY_CLASS
from workloads.kubernetes.manifests.options import Options
from workloads.kubernetes.manifests.tolerations import tolerations
from workloads.runtime.base import VolumeRef
from workloads.runtime.expansion import escaped

Json = dict[str, Any]
CONTAINER, WORKDIR = "files", "/workdir"
IDLE, DEADLINE = 120, 3600  # s
RUN = "import os; exec(os.environ['PROGRAM'])"


def name(volume: VolumeRef) -> str:
    return f"files-{volume.name}"


def command(operation: str, path: str, after: str = "") -> tuple[str, ...]:
    """The command that is executed in the pod for one call; Kubernetes expands no variables in an exec."""
    return ("python3", "-IS", "-c", RUN, operation, WORKDIR, path, after)


def is_helper(pod: Json, options: Options) -> bool:
    marks = pod["metadata"].get("labels") or {}
    return (marks.get(MANAGED_BY), marks.get(INSTANCE), marks.get(ROLE)) == (PREFIX, label(options.instance), "files")


def pod(volume: VolumeRef, options: Options, program: str, node: str = "") -> Json:
    """The pod, on `node` if given; else preferably on a node where the workload may run, because the first pod that uses
    a claim may decide where its disk is."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name(volume),
            "namespace": volume.namespace,
            "labels": volume_labels(volume, options) | {ROLE: "files"},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": DEADLINE,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "priorityClassName": PRIORITY_CLASS,
            "securityContext": security(options),
            "affinity": {"nodeAffinity": _affinity(volume, node)},
            "tolerations": tolerations(options),
            "imagePullSecrets": [{"name": each} for each in options.image_pull_secrets],
            "containers": [_container(options, program)],
            "volumes": [
                {"name": "workdir", "persistentVolumeClaim": {"claimName": volume.name}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "1Mi"}},
            ],
        },
    }


def _affinity(volume: VolumeRef, node: str) -> Json:
    def on(name: str) -> Json:
        return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}

    if node:
        return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [on(node)]}}
    preferred = [{"weight": 1, "preference": on(each)} for each in volume.nodes]
    return {"preferredDuringSchedulingIgnoredDuringExecution": preferred}


def _container(options: Options, program: str) -> Json:
    return {
        "name": CONTAINER,
        "image": options.files_image,
        "imagePullPolicy": options.image_pull_policy,
        "command": ["python3", "-IS", "-c", RUN, "keep", str(IDLE)],
        "env": [{"name": "PROGRAM", "value": escaped(program)}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"cpu": "1", "memory": "128Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "workdir", "mountPath": WORKDIR},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the container's own
        ],
    }


def security(options: Options) -> Json:
    """The securityContext of a pod under the standard `restricted`; the directory belongs to its group."""
    return {
        "runAsNonRoot": True,
        "runAsUser": options.run_as,
        "runAsGroup": options.run_as,
        "fsGroup": options.run_as,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }

"""RunSpec → Kubernetes objects, as plain dictionaries. Pure: same input, same objects.

A run is one pod that is never restarted, in the department's namespace, on the node that the plan chose. It obeys the
Pod Security Standard `restricted`, has no service-account token, and keeps a finalizer: whoever deletes the pod (a
drain, an eviction, a person), it stays readable with its exit code until the driver has it removed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from workloads import sharing
from workloads.clusters.base import RunSpec, environment

PREFIX = "gpu-quota-portal"
WORKLOAD, ATTEMPT, DEPARTMENT, USER, SUBMISSION = (
    f"{PREFIX}/{word}" for word in ("workload", "attempt", "department", "user", "submission")
)
RECLAIM_AT = f"{PREFIX}/reclaim-at"  # annotation: RFC 3339; the container reads it in a file
STOPPED_AT = f"{PREFIX}/stopped-at"  # annotation: when the driver was told to stop it
FINALIZER = f"{PREFIX}/keep"
MANAGED_BY = "app.kubernetes.io/managed-by"
INSTANCE = "app.kubernetes.io/instance"
CONTAINER = "main"
WORKDIR, NOTICES = "/workdir", "/run/portal"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator may set for one cluster. The portal's name on it (`instance`) tells two portals' pods apart."""

    instance: str = "portal"
    namespace_prefix: str = "gqp-"
    volume: str = "pvc"  # pvc: one claim a workload, survives its attempts | emptyDir: lost with the pod
    storage_class: str = ""  # empty: the cluster's default
    volume_size: str = "50Gi"
    access_mode: str = "ReadWriteOnce"
    run_as: int = 1000  # uid and gid in the container
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    runtime_class: str = ""
    tolerations: tuple[Mapping[str, str], ...] = ()
    gpu_mem_unit: str = "GiB"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Options:
        """Raises ValueError that names the key: an operator typed this."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise ValueError(f"unknown option {unknown[0]}; known: {', '.join(sorted(known))}")
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
        }
        for f in fields(cls):
            if f.name in values and not isinstance(values[f.name], type(f.default)):
                raise ValueError(f"option {f.name} must be of type {type(f.default).__name__}")
        options = cls(**values)
        for key, allowed in (("volume", ("pvc", "emptyDir")), ("gpu_mem_unit", ("GiB", "MiB"))):
            if getattr(options, key) not in allowed:
                raise ValueError(f"option {key} must be one of {', '.join(allowed)}")
        return options

    @property
    def sharing(self) -> sharing.Settings:
        return sharing.Settings(gpu_mem_unit=self.gpu_mem_unit)


@dataclass(frozen=True, slots=True)
class Unsupported(Exception):
    """A run this cluster kind cannot express; `problems` as sharing.validate gives them, or one sentence."""

    detail: str
    problems: tuple[sharing.Problem, ...] = field(default=())

    def __str__(self) -> str:
        return self.detail


def label(text: str) -> str:
    """The nearest label value: at most 63 of A-Za-z0-9-_. and alphanumeric at both ends."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63].strip("-_.")


def selector(options: Options) -> str:
    """Everything of ours, and nothing of another portal's."""
    return f"{MANAGED_BY}={PREFIX},{INSTANCE}={label(options.instance)}"


def labels(spec: RunSpec, options: Options) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": label(spec.kind),
        INSTANCE: label(options.instance),
        MANAGED_BY: PREFIX,
        WORKLOAD: label(spec.workload_id),
        ATTEMPT: str(spec.attempt),
        DEPARTMENT: label(spec.department),
        USER: label(spec.user),
        SUBMISSION: label(spec.ref.submission_id),
    }


def namespace(name: str, department: str, options: Options) -> Json:
    """One a department. Whoever enters it, `restricted` holds."""
    marks = {MANAGED_BY: PREFIX, INSTANCE: label(options.instance), DEPARTMENT: label(department)}
    level = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks | level}}


def claim(spec: RunSpec, options: Options) -> Json:
    """The working directory, which survives the attempts."""
    marks = {k: v for k, v in labels(spec, options).items() if k not in (ATTEMPT, SUBMISSION)}
    body: Json = {
        "accessModes": [options.access_mode],
        "resources": {"requests": {"storage": options.volume_size}},
    }
    if options.storage_class:
        body["storageClassName"] = options.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": spec.volume, "namespace": spec.ref.namespace, "labels": marks},
        "spec": body,
    }


def service(spec: RunSpec, pod_uid: str, options: Options) -> Json:
    """A name for what listens in the pod; owned by the pod, so that it goes with it."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": spec.ref.name, "uid": pod_uid}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": spec.ref.name,
            "namespace": spec.ref.namespace,
            "labels": labels(spec, options),
            "ownerReferences": [owner],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {SUBMISSION: label(spec.ref.submission_id)},
            "ports": [{"name": "http", "port": spec.port, "targetPort": spec.port}],
        },
    }


def pod(spec: RunSpec, options: Options) -> Json:
    """Raises Unsupported. The longest runtime is the portal's to keep: a pod's own deadline could not be extended."""
    if spec.pods != 1:
        raise Unsupported("more than one pod in a workload is not supported on Kubernetes yet")
    patch = _share(spec, options)
    body: Json = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": max(1, spec.grace),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "shareProcessNamespace": True,  # or the command is process 1, which SIGTERM does not end unless it is handled
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": options.run_as,
            "runAsGroup": options.run_as,
            "fsGroup": options.run_as,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            *map(dict, options.tolerations),
            *map(dict, spec.tolerations),
        ],
        "containers": [_container(spec, options, patch)],
        "volumes": _volumes(spec, options),
    }
    if where := dict(patch.node_selector) | dict(spec.node_selector):
        body["nodeSelector"] = where
    if spec.placement:
        body["affinity"] = _pinned(spec.placement[0].node)
    if options.image_pull_secrets:
        body["imagePullSecrets"] = [{"name": name} for name in options.image_pull_secrets]
    if options.runtime_class:
        body["runtimeClassName"] = options.runtime_class
    if patch.scheduler:
        body["schedulerName"] = patch.scheduler
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": spec.ref.name,
            "namespace": spec.ref.namespace,
            "labels": labels(spec, options) | dict(patch.labels),
            "annotations": {
                WORKLOAD: spec.workload_id,
                DEPARTMENT: spec.department,
                USER: spec.user,
                SUBMISSION: spec.ref.submission_id,
                **patch.annotations,
            },
            "finalizers": [FINALIZER],
        },
        "spec": body,
    }


def _share(spec: RunSpec, options: Options) -> sharing.PodPatch:
    """What the pool's sharing system adds. A pod without GPU must not see all of them: CUDA images ask for `all`."""
    if not spec.units_per_pod:
        return sharing.PodPatch(env={"NVIDIA_VISIBLE_DEVICES": "void"})
    system = sharing.SYSTEMS.get(spec.sharing)
    if system is None:
        raise Unsupported(f"no module serves the sharing system {spec.sharing or '(none)'}")
    request = sharing.Request(spec.product, spec.units_per_pod, spec.pods, spec.profile, spec.env)
    if problems := system.validate(request, options.sharing):
        raise Unsupported("; ".join(p.detail for p in problems), tuple(problems))
    return system.manifest(request, options.sharing)


def _container(spec: RunSpec, options: Options, patch: sharing.PodPatch) -> Json:
    paths = {"PORTAL_WORKDIR": WORKDIR, "HOME": WORKDIR, "PORTAL_RECLAIM_AT_FILE": f"{NOTICES}/reclaim-at"}
    env = {"HOME": WORKDIR} | environment(spec) | paths | dict(patch.env)
    resources = {"cpu": f"{spec.cpu_milli}m", "memory": f"{spec.memory_mib}Mi"}
    container: Json = {
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": options.image_pull_policy,
        "workingDir": WORKDIR,
        "env": [{"name": name, "value": value} for name, value in sorted(env.items())],
        "resources": {"requests": resources, "limits": resources | dict(patch.limits)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "workdir", "mountPath": WORKDIR},
            {"name": "notices", "mountPath": NOTICES, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the container's own
        ],
    }
    if spec.command:
        container["command"] = list(spec.command)
    if spec.port is not None:
        container["ports"] = [{"name": "http", "containerPort": spec.port}]
    return container


def _volumes(spec: RunSpec, options: Options) -> list[Json]:
    reclaim_at = {"path": "reclaim-at", "fieldRef": {"fieldPath": f"metadata.annotations['{RECLAIM_AT}']"}}
    workdir: Json = {"name": "workdir"}
    if options.volume == "pvc":
        workdir["persistentVolumeClaim"] = {"claimName": spec.volume}
    else:
        workdir["emptyDir"] = {}
    return [
        workdir,
        {"name": "notices", "downwardAPI": {"items": [reclaim_at]}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{spec.shm_mib}Mi"}},
    ]


def _pinned(node: str) -> Json:
    """The plan chose the node. By affinity, not nodeName: taints and resources are still checked by the scheduler."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"nodeAffinity": required}

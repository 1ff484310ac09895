"""The pod of a run.

It is never restarted, and is in the department's namespace, on the node that the plan chose. It meets the Pod Security
Standard `restricted` unless it may lock memory, has no service-account token, and has a finalizer: when the pod is deleted
by others (a drain, an eviction, a person), it stays readable with its exit code until the driver removes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from workloads import sharing
from workloads.kubernetes.manifests.files import security
from workloads.kubernetes.manifests.labels import DEPARTMENT, FINALIZER, SHARING, SUBMISSION, USER, WORKLOAD, labels
from workloads.kubernetes.manifests.namespace_limits import PRIORITY_CLASS
from workloads.kubernetes.manifests.options import Options
from workloads.kubernetes.manifests.pre_stop import hook
from workloads.kubernetes.manifests.secrets import variables
from workloads.kubernetes.manifests.tolerations import tolerations
from workloads.kubernetes.manifests.volumes import shared_mounts, shared_paths, volumes
from workloads.runtime.base import RunSpec, environment
from workloads.runtime.expansion import for_kubernetes
from workloads.sharing.checks import NOTHING_MORE
from workloads.sharing.clouds import ACCELERATOR, PRODUCT

CONTAINER = "main"
WORKDIR, NOTICES, READY = "/workdir", "/run/portal", "/run/ready"
READY_FILE = f"{READY}/ready"
IS_READY = ("test", "-e", READY_FILE)  # in the container
# Added capabilities are given to root only: the process of another user starts without them.
AS_ROOT = {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unsupported(Exception):
    """The cluster cannot run this workload. `problems`: as sharing.validate returns them; empty if `detail` says all."""

    detail: str
    problems: tuple[sharing.Problem, ...] = field(default=())

    def __str__(self) -> str:
        return self.detail


def pod(spec: RunSpec, options: Options) -> Json:
    """One of the `spec.pods` pods. It has no deadline, which could not be extended: the portal stops it in time. Raises
    Unsupported."""
    patch = _share(spec, options)
    body: Json = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": max(1, spec.grace),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": PRIORITY_CLASS,
        "shareProcessNamespace": True,  # otherwise the command is process 1, which SIGTERM ends only if it handles it
        "securityContext": security(options) | (AS_ROOT if spec.setup.ipc_lock else {}),
        "tolerations": tolerations(options, spec.tolerations),
        "containers": [_container(spec, options, patch)],
        "volumes": volumes(spec, options),
    }
    where = dict(patch.node_selector)
    if _base(spec.product) in options.sharing.products.values():  # set by the operator: the node may have no label
        where = {key: value for key, value in where.items() if key not in (PRODUCT, ACCELERATOR)}
    product = where.pop(PRODUCT, "")
    where |= dict(spec.node_selector)
    if where:
        body["nodeSelector"] = where
    if spec.placement:
        body["affinity"] = _pinned(spec.placement[0].node, patch, product)
    if options.image_pull_secrets:
        body["imagePullSecrets"] = [{"name": name} for name in options.image_pull_secrets]
    if options.runtime_class:
        body["runtimeClassName"] = options.runtime_class
    if patch.scheduler:
        body["schedulerName"] = patch.scheduler
    if patch.claims:
        body["resourceClaims"] = [dict(claim) for claim in patch.claims]
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
                SHARING: spec.sharing if spec.units_per_pod else "",
                **patch.annotations,
            },
            "finalizers": [FINALIZER],
        },
        "spec": body,
    }


def beside(spec: RunSpec, options: Options) -> tuple[Json, ...]:
    """The objects that the sharing system needs beside the pod, which waits for them. Raises Unsupported."""
    marks = labels(spec, options)
    return tuple(
        {**wanted, "metadata": {**wanted["metadata"], "namespace": spec.ref.namespace, "labels": marks}}
        for wanted in _share(spec, options).objects
    )


def _share(spec: RunSpec, options: Options) -> sharing.PodPatch:
    """The sharing system's patch. A pod without GPU must be prevented from seeing all of them: CUDA images request `all`.
    Raises Unsupported."""
    if not spec.units_per_pod:
        return sharing.PodPatch(env={"NVIDIA_VISIBLE_DEVICES": "void"})
    system = sharing.SYSTEMS.get(spec.sharing)
    if system is None:
        raise Unsupported(f"no module serves the sharing system {spec.sharing or '(none)'}")
    request = sharing.Request(
        spec.product,
        spec.units_per_pod,
        spec.pods,
        spec.profile,
        {**spec.env, **spec.secret_env},
        cores=spec.cores_per_pod,
        table=spec.mig,
        units_per_card=spec.units_per_card,
        extra=spec.extra,
        peers=spec.kind == "distributed",
        name=spec.ref.name,
        department=spec.department,
    )
    if problems := system.validate(request, options.sharing):
        raise Unsupported("; ".join(p.detail for p in problems), tuple(problems))
    return system.manifest(request, options.sharing)


def _container(spec: RunSpec, options: Options, patch: sharing.PodPatch) -> Json:
    paths = {"PORTAL_WORKDIR": WORKDIR, "HOME": WORKDIR, "PORTAL_RECLAIM_AT_FILE": f"{NOTICES}/reclaim-at"}
    if options.ready_probe_seconds:
        paths["PORTAL_READY_FILE"] = READY_FILE
    env = {"HOME": WORKDIR} | environment(spec) | paths | shared_paths(spec) | NOTHING_MORE | dict(patch.env)
    resources = {"cpu": f"{spec.cpu_milli}m", "memory": f"{spec.memory_mib}Mi"}
    devices = dict(patch.limits)
    if spec.setup.rdma:
        if not options.rdma_resource:
            raise Unsupported("this cluster offers no RDMA devices: its option rdma_resource is empty")
        devices[options.rdma_resource] = str(spec.setup.rdma)
    container: Json = {
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": options.image_pull_policy,
        "workingDir": WORKDIR,
        "env": variables(spec, env),
        "resources": {"requests": resources, "limits": resources | devices},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": capabilities(spec)},
        "volumeMounts": [
            {"name": "workdir", "mountPath": WORKDIR},
            {"name": "notices", "mountPath": NOTICES, "readOnly": True},
            {"name": "ready", "mountPath": READY},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the container's own
            *shared_mounts(spec),
        ],
        "lifecycle": hook(),
    }
    if patch.claims:
        container["resources"]["claims"] = [{"name": claim["name"]} for claim in patch.claims]
    if probe := ready_probe(spec, options):
        container["readinessProbe"] = probe
    if spec.command:
        container["command"] = for_kubernetes(spec.command, spec.own_words)
    if spec.port is not None:
        container["ports"] = [{"name": "http", "containerPort": spec.port}]
    return container


def capabilities(spec: RunSpec) -> Json:
    return {"drop": ["ALL"], **({"add": ["IPC_LOCK"]} if spec.setup.ipc_lock else {})}


def ready_probe(spec: RunSpec, options: Options) -> Json:
    """Makes the container ready when it has created PORTAL_READY_FILE, so that the watch reports it at once. The readiness of a
    service means that it answers, so the driver looks for its file itself (ready_files.py). A container without `test` never
    becomes ready, and can use the URL instead."""
    if spec.kind == "service" or not options.ready_probe_seconds:
        return {}
    return {"exec": {"command": list(IS_READY)}, "periodSeconds": options.ready_probe_seconds, "failureThreshold": 1}


def _base(product: str) -> str:
    """The card's product, regardless of sharing or MIG."""
    return product.partition("-MIG-")[0].removesuffix("-SHARED")


def _pinned(node: str, patch: sharing.PodPatch, product: str) -> Json:
    """The affinity to the planned node. Not nodeName, so that the scheduler still checks taints and resources. Pods that share a
    claim must go where its device is, so they only prefer the planned node, which the first one gets. If the node has a label
    with a product, it must be this one; a node whose product is known otherwise has no such label."""
    term: Json = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    if patch.node_rules:
        term["matchExpressions"] = [dict(rule) for rule in patch.node_rules]
    if patch.follows_claim:
        return {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]}
        }
    terms = [term]
    if product:
        rules = ({"operator": "In", "values": [product]}, {"operator": "DoesNotExist"})
        also = term.get("matchExpressions", [])
        terms = [term | {"matchExpressions": [*also, {"key": PRODUCT, **rule}]} for rule in rules]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}

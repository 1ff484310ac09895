"""RunSpec → Kubernetes objects, as plain dictionaries. Pure: same input, same objects."""

from workloads.manifests.labels import (
    ATTEMPT,
    DEPARTMENT,
    FINALIZER,
    INSTANCE,
    MANAGED_BY,
    PREFIX,
    RECLAIM_AT,
    ROLE,
    SHARING,
    STOPPED_AT,
    SUBMISSION,
    USER,
    WORKLOAD,
    label,
    labels,
    selector,
)
from workloads.manifests.namespaces import namespace
from workloads.manifests.network import service
from workloads.manifests.options import Options
from workloads.manifests.pods import CONTAINER, NOTICES, WORKDIR, Unsupported, beside, pod
from workloads.manifests.volumes import claim

__all__ = [
    "ATTEMPT",
    "CONTAINER",
    "DEPARTMENT",
    "FINALIZER",
    "INSTANCE",
    "MANAGED_BY",
    "NOTICES",
    "PREFIX",
    "RECLAIM_AT",
    "ROLE",
    "SHARING",
    "STOPPED_AT",
    "SUBMISSION",
    "USER",
    "WORKDIR",
    "WORKLOAD",
    "Options",
    "Unsupported",
    "beside",
    "claim",
    "label",
    "labels",
    "namespace",
    "pod",
    "selector",
    "service",
]

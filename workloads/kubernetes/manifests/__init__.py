"""RunSpec → Kubernetes objects, as plain dictionaries. Pure: same input, same objects."""

from workloads.kubernetes.manifests.all_objects import objects
from workloads.kubernetes.manifests.deployments import deployment, host_of, route, url_of
from workloads.kubernetes.manifests.faults import faults
from workloads.kubernetes.manifests.gangs import GATE, job, pin
from workloads.kubernetes.manifests.labels import (
    ATTEMPT,
    DEPARTMENT,
    FINALIZER,
    INDEX,
    INSTANCE,
    KIND,
    LEADER,
    MANAGED_BY,
    PREFIX,
    RANKS,
    RECLAIM_AT,
    ROLE,
    SHARING,
    STOPPED_AT,
    SUBMISSION,
    USER,
    WORKLOAD,
    is_selected,
    label,
    labels,
    selector,
)
from workloads.kubernetes.manifests.namespaces import namespace
from workloads.kubernetes.manifests.network import owner_of, service
from workloads.kubernetes.manifests.options import Options
from workloads.kubernetes.manifests.pods import CONTAINER, NOTICES, WORKDIR, Unsupported, beside, pod
from workloads.kubernetes.manifests.secrets import secret
from workloads.kubernetes.manifests.tolerations import not_tolerated
from workloads.kubernetes.manifests.volumes import claim, shared_claim

__all__ = [
    "ATTEMPT",
    "CONTAINER",
    "DEPARTMENT",
    "FINALIZER",
    "GATE",
    "INDEX",
    "INSTANCE",
    "KIND",
    "LEADER",
    "MANAGED_BY",
    "NOTICES",
    "PREFIX",
    "RANKS",
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
    "deployment",
    "faults",
    "host_of",
    "is_selected",
    "job",
    "label",
    "labels",
    "namespace",
    "not_tolerated",
    "objects",
    "owner_of",
    "pin",
    "pod",
    "route",
    "secret",
    "selector",
    "service",
    "shared_claim",
    "url_of",
]

"""Labels and annotations of the portal's objects, and how they are distinguished from those of another portal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from workloads.kubernetes.manifests.options import Options
from workloads.runtime.base import RunSpec, VolumeRef

PREFIX = "gpu-quota-portal"
WORKLOAD, ATTEMPT, DEPARTMENT, USER, SUBMISSION = (
    f"{PREFIX}/{word}" for word in ("workload", "attempt", "department", "user", "submission")
)
RECLAIM_AT = f"{PREFIX}/reclaim-at"  # annotation: RFC 3339; the container reads it in a file
STOPPED_AT = f"{PREFIX}/stopped-at"  # annotation: when the driver was first called to stop it
SHARING = f"{PREFIX}/sharing"  # annotation: the sharing system of its GPU, which also reads it back; "" without GPU
ROLE = f"{PREFIX}/role"  # label of objects that are no runs: files, department-volume, user-volume
LEVEL = f"{PREFIX}/level"  # label of a department's second namespace
RANKS = f"{PREFIX}/ranks"  # annotation of a gang: number of ranks
LEADER = f"{PREFIX}/leader-decides"  # annotation of a gang: "true" where rank 0's end is the end of all
INDEX = "batch.kubernetes.io/job-completion-index"  # label set by the Job's controller: the rank
KIND = "app.kubernetes.io/name"
FINALIZER = f"{PREFIX}/keep"
MANAGED_BY = "app.kubernetes.io/managed-by"
INSTANCE = "app.kubernetes.io/instance"


def label(text: str) -> str:
    """The nearest label value: at most 63 of A-Za-z0-9-_. and alphanumeric at both ends."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63].strip("-_.")


def selector(options: Options) -> str:
    """The label selector of all objects of this portal, and of no other portal."""
    return f"{MANAGED_BY}={PREFIX},{INSTANCE}={label(options.instance)}"


def is_selected(meta: Mapping[str, Any], options: Options) -> bool:
    """Whether `selector` selects an object with this metadata."""
    has = meta.get("labels") or {}
    return has.get(MANAGED_BY) == PREFIX and has.get(INSTANCE) == label(options.instance)


def volume_labels(volume: VolumeRef, options: Options) -> dict[str, str]:
    """Labels of objects that belong to the workload rather than to one attempt."""
    return {
        INSTANCE: label(options.instance),
        MANAGED_BY: PREFIX,
        WORKLOAD: label(volume.workload_id),
        DEPARTMENT: label(volume.department),
        USER: label(volume.user),
    }


def labels(spec: RunSpec, options: Options) -> dict[str, str]:
    return {
        KIND: label(spec.kind),
        INSTANCE: label(options.instance),
        MANAGED_BY: PREFIX,
        WORKLOAD: label(spec.workload_id),
        ATTEMPT: str(spec.attempt),
        DEPARTMENT: label(spec.department),
        USER: label(spec.user),
        SUBMISSION: label(spec.ref.submission_id),
    }

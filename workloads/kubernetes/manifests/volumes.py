"""Volumes: working directory, shared volumes, the file with the reclaim time, shared memory."""

from __future__ import annotations

from typing import Any

from workloads.kubernetes.manifests.labels import (
    DEPARTMENT,
    INSTANCE,
    MANAGED_BY,
    PREFIX,
    RECLAIM_AT,
    ROLE,
    USER,
    label,
    volume_labels,
)
from workloads.kubernetes.manifests.options import Options
from workloads.runtime.base import RunSpec, SharedVolume, VolumeRef
from workloads.runtime.places import DEPARTMENT_VOLUME, DIRECTORY_VARIABLE, USER_VOLUME

Json = dict[str, Any]
MOUNTED_AT = {DEPARTMENT_VOLUME: "/volumes/department", USER_VOLUME: "/volumes/user"}


def claim(volume: VolumeRef, options: Options) -> Json:
    """The working directory, which survives the attempts."""
    meta = {"name": volume.name, "namespace": volume.namespace, "labels": volume_labels(volume, options)}
    return _claim(meta, options.access_mode, options.volume_size, options.storage_class)


def shared_claim(volume: SharedVolume, spec: RunSpec, options: Options) -> Json:
    """A shared volume, which outlives all workloads: it has no workload's label, so that cleaning does not delete it."""
    marks = {
        INSTANCE: label(options.instance),
        MANAGED_BY: PREFIX,
        DEPARTMENT: label(spec.department),
        ROLE: f"{volume.whose}-volume",
    }
    if volume.user:
        marks[USER] = label(volume.user)
    meta = {"name": volume.name, "namespace": spec.ref.namespace, "labels": marks}
    size = options.department_volume if volume.whose == DEPARTMENT_VOLUME else options.user_volume
    return _claim(meta, options.shared_access_mode, size, options.shared_storage_class)


def _claim(meta: Json, access_mode: str, size: str, storage_class: str) -> Json:
    body: Json = {"accessModes": [access_mode], "resources": {"requests": {"storage": size}}}
    if storage_class:
        body["storageClassName"] = storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": body}


def volumes(spec: RunSpec, options: Options) -> list[Json]:
    reclaim_at = {"path": "reclaim-at", "fieldRef": {"fieldPath": f"metadata.annotations['{RECLAIM_AT}']"}}
    workdir: Json = {"name": "workdir"}
    if options.volume == "pvc":
        workdir["persistentVolumeClaim"] = {"claimName": spec.volume}
    else:
        workdir["emptyDir"] = {}
    return [
        workdir,
        {"name": "notices", "downwardAPI": {"items": [reclaim_at]}},
        {"name": "ready", "emptyDir": {"sizeLimit": "1Mi"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{spec.shm_mib}Mi"}},
        *({"name": each.whose, "persistentVolumeClaim": {"claimName": each.name}} for each in spec.shared_volumes),
    ]


def shared_mounts(spec: RunSpec) -> list[Json]:
    return [{"name": each.whose, "mountPath": MOUNTED_AT[each.whose]} for each in spec.shared_volumes]


def shared_paths(spec: RunSpec) -> dict[str, str]:
    """Environment variables with the paths of shared volumes."""
    return {DIRECTORY_VARIABLE[each.whose]: MOUNTED_AT[each.whose] for each in spec.shared_volumes}

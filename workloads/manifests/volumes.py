"""Volumes: the working directory, the file that tells the time of reclaim, shared memory."""

from __future__ import annotations

from typing import Any

from workloads.clusters.base import RunSpec, VolumeRef
from workloads.manifests.labels import RECLAIM_AT, volume_labels
from workloads.manifests.options import Options

Json = dict[str, Any]


def claim(volume: VolumeRef, options: Options) -> Json:
    """The working directory, which survives the attempts."""
    body: Json = {
        "accessModes": [options.access_mode],
        "resources": {"requests": {"storage": options.volume_size}},
    }
    if options.storage_class:
        body["storageClassName"] = options.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": volume.name, "namespace": volume.namespace, "labels": volume_labels(volume, options)},
        "spec": body,
    }


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
    ]

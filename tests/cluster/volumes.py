"""Volumes of the storage class `local` in place of a provisioner: they are created in advance, and each is emptied and freed
after its claim is deleted. `volumes.py STATE` does that in a loop."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from pathlib import Path

from control_plane import ControlPlane
from processes import Processes

COUNT, EVERY = 200, 2.0  # s
PATH = "/api/v1/persistentvolumes"


def make(plane: ControlPlane) -> None:
    """Creates the storage class and its volumes, to which every uid may write."""
    storage = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
    }
    plane.call("/apis/storage.k8s.io/v1/storageclasses", "POST", storage)
    for i in range(COUNT):
        folder = plane.state / "volumes" / str(i)
        _empty(folder)
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"local-{i}"},
            "spec": {
                "capacity": {"storage": "100Gi"},
                "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "local",
                "hostPath": {"path": str(folder), "type": "Directory"},
            },
        }
        plane.call(PATH, "POST", volume)
    plane.processes.spawn("volumes", sys.executable, __file__, plane.state)


def free(plane: ControlPlane) -> None:
    for volume in json.loads(plane.call(PATH))["items"]:
        if volume["status"].get("phase") == "Released":
            meta = volume["metadata"]
            _empty(Path(volume["spec"]["hostPath"]["path"]))
            patch = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "spec": {"claimRef": None}}
            plane.call(f"{PATH}/{meta['name']}", "PATCH", patch, "application/merge-patch+json")


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o777)


def main() -> None:
    state = Path(sys.argv[1])
    plane = ControlPlane(state, Processes(state))
    plane.connect(json.loads((state / "admin.kubeconfig").read_text())["clusters"][0]["cluster"]["server"])
    while True:
        with contextlib.suppress(OSError):  # tried again the next time
            free(plane)
        time.sleep(EVERY)


if __name__ == "__main__":
    main()

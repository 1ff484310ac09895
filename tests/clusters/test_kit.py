"""The test cluster's own tools: faults in them would make correct tests fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.clusters.beds import eventually
from tests.clusters.realcluster import KIT, Admin, unique

CHOOSE = "import processes, sys; print([processes.free_port() for _ in range(50)]); sys.stdout.flush(); input()"
VOLUMES = "/api/v1/persistentvolumes"


def test_kits_started_at_the_same_time_choose_different_ports() -> None:
    kits = [
        subprocess.Popen(
            [sys.executable, "-c", CHOOSE], cwd=KIT.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    chosen = [kit.stdout.readline() for kit in kits if kit.stdout]  # each keeps its ports until all have chosen
    for kit in kits:
        kit.communicate("\n", timeout=60)
    ports = [int(port) for line in chosen for port in line.strip("[]\n").split(",")]
    assert len(ports) == len(set(ports)) == 200


@pytest.mark.cluster
def test_volume_is_emptied_and_available_again_after_its_claim_is_deleted(admin: Admin) -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    name = unique("claim")
    wanted = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    admin.call("POST", claims, {"metadata": {"name": name}, "spec": wanted})
    bound = eventually(lambda: admin.call("GET", f"{claims}/{name}")["spec"].get("volumeName"))
    folder = Path(admin.call("GET", f"{VOLUMES}/{bound}")["spec"]["hostPath"]["path"])
    (folder / "left").mkdir()
    (folder / "left/behind").write_text("x")
    uid = admin.call("GET", f"{claims}/{name}")["metadata"]["uid"]
    admin.call("DELETE", f"{claims}/{name}")

    def freed() -> bool:
        volume = admin.call("GET", f"{VOLUMES}/{bound}")  # another claim may be bound to it by now
        return volume["spec"].get("claimRef", {}).get("uid") != uid and volume["status"]["phase"] in (
            "Available",
            "Bound",
        )

    eventually(freed)
    assert not (folder / "left").exists()

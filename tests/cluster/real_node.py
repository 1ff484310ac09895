"""One node on which pods really run: kubelet, containerd, runc, bridge network with DNS, volumes, eight pretended GPUs.

The device-plugin socket (/var/lib/kubelet/device-plugins) and the bridge are global: there can be one real node on a machine,
and it needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import images
import volumes
from control_plane import HERE, ControlPlane
from processes import Processes, free_port, sh, wait

NAME, BRIDGE, SUBNET, GATEWAY = "real-0", "tcbr0", "10.250.0.0/24", "10.250.0.1"
API_SERVER = "10.96.0.1"  # the API server's address for pods: the first one of the control plane's services
DEVICES, PRODUCT = 8, "Pretended-GPU"

CONTAINERD = """version = 2
root = "{run}/containerd"
state = "{run}/run"
[grpc]
  address = "{run}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "test.local/busybox:1"
  # without the right to lower it, runc dies with "can't get final child's PID from pipe"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{run}/cni"
"""

COREFILE = """cluster.local:53 {{
  bind {gateway}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig} testcluster
    pods insecure
    ttl 1
  }}
}}
"""


class RealNode:
    def __init__(self, plane: ControlPlane, cache: Path) -> None:
        self.plane, self.cache = plane, cache
        self.run = plane.state / "node"
        self.spawn = plane.processes.spawn
        self.path = f"/api/v1/nodes/{NAME}"

    def start(self) -> None:
        for folder in ("containerd", "run", "cni", "kubelet", "static"):
            (self.run / folder).mkdir(parents=True)
        self._containerd()
        self._bridge()
        self._kubelet()
        self._dns()
        volumes.make(self.plane)

    def _containerd(self) -> None:
        (self.run / "containerd.toml").write_text(CONTAINERD.format(run=self.run))
        bridge = {
            "type": "bridge",
            "bridge": BRIDGE,
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "dataDir": f"{self.run}/ipam",
                "ranges": [[{"subnet": SUBNET}]],
                "routes": [{"dst": f"{API_SERVER}/32"}],
            },
        }
        network = {"cniVersion": "1.0.0", "name": "testcluster", "plugins": [bridge]}
        (self.run / "cni/10-bridge.conflist").write_text(json.dumps(network))
        self.spawn("containerd", "containerd", "-c", self.run / "containerd.toml")
        wait("containerd", lambda: sh(*ctr(self.run), "version") is None)
        for archive in (images.busybox(self.cache), images.python(self.cache)):
            sh(*ctr(self.run), "images", "import", archive)

    def _kubelet(self) -> None:
        d, run, port = self.plane.pki, self.run, free_port()
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": f"{d}/ca.crt"},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "address": "127.0.0.1",
            "port": port,
            "readOnlyPort": 0,
            "healthzPort": 0,
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupsPerQOS": True,  # without, 1.36 crashes on a container that does not start at its first attempt
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "containerRuntimeEndpoint": f"unix://{run}/containerd.sock",
            "clusterDomain": "cluster.local",
            "clusterDNS": [GATEWAY],
            "tlsCertFile": f"{d}/apiserver.crt",
            "tlsPrivateKeyFile": f"{d}/apiserver.key",
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "5s",
        }
        (run / "kubelet.yaml").write_text(json.dumps(config))
        # A loopback --node-ip is refused as an address (a warning every 5 s) and leaves the list to us.
        self.spawn(
            "kubelet",
            self.plane.bin / "kubelet",
            f"--config={run}/kubelet.yaml",
            f"--kubeconfig={self.plane.kubeconfig('kubelet')}",
            f"--hostname-override={NAME}",
            "--node-ip=127.0.0.1",
            f"--root-dir={run}/kubelet",
            f"--cert-dir={run}/pki",
            f"--node-labels=testcluster/real=true,nvidia.com/gpu.present=true,nvidia.com/gpu.product={PRODUCT}",
        )
        self.plane.seconds["real node"] = wait("node", self._ready)
        addresses = {"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}}
        self.plane.call(f"{self.path}/status", "PATCH", addresses, "application/strategic-merge-patch+json")
        broken = f"--broken-file={run}/broken-gpus"  # lists unhealthy devices, one id on each line
        self.spawn("fake-gpu-plugin", self.plane.bin / "fake-gpu-plugin", f"--count={DEVICES}", broken)
        self.plane.seconds["devices"] = wait(
            "devices", lambda: self._status()["allocatable"].get("nvidia.com/gpu") == str(DEVICES)
        )

    def _status(self) -> dict[str, Any]:
        return dict(json.loads(self.plane.call(self.path))["status"])

    def _ready(self) -> bool:
        return any(c["type"] == "Ready" and c["status"] == "True" for c in self._status()["conditions"])

    def _bridge(self) -> None:
        """Creates the bridge before the first pod does, so that DNS can bind to it. Of all services' addresses pods can only
        reach the API server's, which listens on loopback only."""
        if subprocess.run(["ip", "link", "show", BRIDGE], capture_output=True).returncode:
            sh("ip", "link", "add", BRIDGE, "type", "bridge")
            sh("ip", "addr", "add", f"{GATEWAY}/24", "dev", BRIDGE)
            sh("ip", "addr", "add", f"{API_SERVER}/32", "dev", BRIDGE)
            sh("ip", "link", "set", BRIDGE, "up")
        server = self.plane.server.removeprefix("https://")
        self.spawn("api-forward", sys.executable, HERE / "forward.py", f"{API_SERVER}:443", server)

    def _dns(self) -> None:
        corefile = COREFILE.format(gateway=GATEWAY, kubeconfig=self.plane.kubeconfig("admin"))
        (self.run / "Corefile").write_text(corefile)
        self.spawn("coredns", self.plane.bin / "coredns", "-conf", self.run / "Corefile")


def bring(state: Path, archive: Path) -> None:
    """Loads another image onto a running node."""
    sh(*ctr(state / "node"), "images", "import", archive)


def other_process() -> int | None:
    """The process id of another real node on this machine, started from another cache; None if there is none."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cmdline").read_bytes().split(b"\0")[0].endswith(b"/fake-gpu-plugin"):
                return int(process.name)
    return None


def ctr(run: Path) -> tuple[str, ...]:
    return ("ctr", "-a", f"{run}/containerd.sock", "-n", "k8s.io")


def end(processes: Processes) -> None:
    """Ends the kubelet first, so that nothing is started again, then every container, then the bridge."""
    if "containerd" not in processes.pids:
        return
    processes.kill("kubelet")
    command = ctr(processes.state / "node")
    if processes.alive("containerd"):
        listed = subprocess.run([*command, "containers", "ls", "-q"], capture_output=True, text=True).stdout
        for container in listed.split():
            subprocess.run([*command, "tasks", "rm", "-f", container], capture_output=True)
            subprocess.run([*command, "containers", "rm", container], capture_output=True)
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True)
    for group in (*Path("/sys/fs/cgroup").glob("kubepods"), *Path("/sys/fs/cgroup").glob("*/kubepods")):
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)

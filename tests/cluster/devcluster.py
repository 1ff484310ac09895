"""A throw-away Kubernetes from plain binaries, on loopback only, without a container engine.

Always: etcd, kube-apiserver, kube-scheduler, kube-controller-manager and KWOK. With --real-node one node on which pods
really run (needs root). There is at most one such cluster a machine and user; `start` gives the running one back.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import images
import real_node
from control_plane import HERE, ControlPlane
from processes import Processes

SOURCES = ("build.sh", "kube/go.mod", "kube/go.sum", "kube/cmd/*/main.go", "dns/go.mod", "dns/go.sum", "dns/main.go")
PACKAGES = {  # required command or path → Debian package that has it
    "openssl": "openssl",
    "ip": "iproute2",
    "iptables": "iptables",
    "containerd": "containerd",
    "runc": "runc",
    "mmdebstrap": "mmdebstrap",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "/bin/busybox": "busybox-static",
}
ALWAYS = ("openssl",)


def cache_root() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "gpu-quota-portal"


def cache() -> Path:
    """The folder for binaries and images of exactly these sources."""
    digest = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(HERE.glob(pattern)):
            digest.update(path.read_bytes())
    return cache_root() / f"cluster-{digest.hexdigest()[:12]}"


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build() -> Path:
    """Builds the binaries unless the cache has them; concurrent builds wait for each other."""
    target = cache() / "bin"
    with alone("build"):
        if target.exists():
            return target
        if not shutil.which("go"):
            raise SystemExit("missing: Go 1.26 or newer (https://go.dev/dl/), which builds the cluster's binaries")
        partial = cache() / "bin.partial"
        subprocess.run([HERE / "build.sh", partial], check=True, stdout=sys.stderr)
        return partial.rename(target)


def require(commands: tuple[str, ...]) -> None:
    """Installs missing packages if that is possible, otherwise exits with their names."""
    missing = [PACKAGES[c] for c in commands if not shutil.which(c)]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, "stdout": sys.stderr}
        subprocess.run(["apt-get", "update", "-qq"], **quiet)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], **quiet)
        missing = [PACKAGES[c] for c in commands if not shutil.which(c)]
    if missing:
        raise SystemExit(f"missing: {' '.join(missing)} (Debian's names). As root: apt-get install {' '.join(missing)}")


def running() -> dict[str, Any] | None:
    """What `start` has printed, if that cluster is still running."""
    try:
        info: dict[str, Any] = json.loads((cache_root() / "cluster.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    complete = "server" in info  # otherwise its start was killed half-way
    return info if complete and Processes(Path(info["state"])).alive("kube-apiserver") else None


def start(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.real_node and os.geteuid():
        raise SystemExit("a real node needs root: containers and a bridge network are made")
    require(tuple(PACKAGES) if arguments.real_node else ALWAYS)
    binaries = build()
    with alone("start"):
        if info := running():
            if arguments.real_node and not info["real_node"]:
                raise SystemExit("a cluster without a real node is running: stop it first")
            return info
        _stop()
        if arguments.real_node and (other := real_node.other_process()):
            raise SystemExit(f"a real node of somebody else runs on this machine (process {other}); one a machine")
        state = Path(tempfile.mkdtemp(prefix="gpu-quota-portal-cluster-"))
        state.chmod(0o755)  # pods reach their volumes through it
        plane = ControlPlane(binaries, Processes(state))
        (cache_root() / "cluster.json").write_text(json.dumps({"state": str(state)}))
        try:
            plane.start()
            if arguments.real_node:
                real_node.RealNode(plane, cache()).start()
            plane.add_gpu_nodes()
        except BaseException:
            _stop()
            raise
        info = {
            "server": plane.server,
            "kubeconfig": f"{state}/admin.kubeconfig",
            "version": json.loads(plane.call("/version"))["gitVersion"],
            "real_node": arguments.real_node,
            "state": str(state),
            "seconds": plane.seconds,
            "pids": plane.processes.pids,
        }
        (cache_root() / "cluster.json").write_text(json.dumps(info))
        return info


def start_apart(nodes: int, cards: int, lease: int) -> dict[str, Any]:
    """A cluster besides the shared one, without a real node, for tests that break or fill it. `stop --state` ends it."""
    require(ALWAYS)
    state = Path(tempfile.mkdtemp(prefix="gpu-quota-portal-apart-"))
    plane = ControlPlane(build(), Processes(state), lease)
    try:
        plane.start()
        plane.add_many_nodes(nodes, cards)
    except BaseException:
        plane.processes.kill_all()
        plane.processes.forget()
        raise
    return {
        "server": plane.server,
        "kubeconfig": f"{state}/admin.kubeconfig",
        "state": str(state),
        "pids": plane.processes.pids,
    }


def stop_apart(state: Path) -> None:
    processes = Processes(state)
    processes.kill_all()
    processes.forget()


def _stop() -> None:
    file = cache_root() / "cluster.json"
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        processes = Processes(Path(json.loads(file.read_text())["state"]))
        real_node.end(processes)
        processes.kill_all()
        processes.forget()
    file.unlink(missing_ok=True)


def _used() -> bool:
    """Whether tests are using the cluster (tests/clusters/realcluster.py)."""
    with (cache_root() / "tests-users.lock").open("a") as users:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="kit", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the binaries into the cache")
    starter = commands.add_parser("start", help="start a cluster, or find the running one; prints JSON")
    starter.add_argument("--real-node", action="store_true", help="add a node on which pods really run (root)")
    starter.add_argument("--apart", action="store_true", help="another cluster beside it, with simulated nodes only")
    starter.add_argument("--nodes", type=int, default=4, help="with --apart: how many")
    starter.add_argument("--cards", type=int, default=8, help="with --apart: of each node")
    starter.add_argument("--lease", type=int, default=40, help="with --apart: s, after which a silent node is lost")
    bringer = commands.add_parser("bring", help="bring another image onto the running real node; prints its name")
    bringer.add_argument("image", choices=images.EXTRA)
    commands.add_parser("status", help="print the running cluster as JSON, or fail")
    stopper = commands.add_parser("stop", help="end it and remove everything it made")
    stopper.add_argument("--unless-used", action="store_true", help="leave it to tests of another run that use it now")
    stopper.add_argument("--state", type=Path, help="of a cluster that was started with --apart")
    commands.add_parser("path-of-cache", help="print the folder that a build fills")
    arguments = parser.parse_args()
    match arguments.command:
        case "build":
            print(build())
        case "start" if arguments.apart:
            print(json.dumps(start_apart(arguments.nodes, arguments.cards, arguments.lease)))
        case "start":
            print(json.dumps(start(arguments), indent=1))
        case "bring":
            reference, make = images.EXTRA[arguments.image]
            with alone("image"):
                info = running()
                if not info or not info["real_node"]:
                    raise SystemExit("no cluster with a real node is running")
                real_node.bring(Path(info["state"]), make(cache()))
                print(reference)
        case "status":
            info = running()
            print(json.dumps(info, indent=1) if info else "no cluster is running")
            return 0 if info else 1
        case "stop" if arguments.state:
            stop_apart(arguments.state)
        case "stop":
            with alone("start"):
                if not (arguments.unless_used and _used()):
                    _stop()
        case "path-of-cache":
            print(cache())
    return 0


if __name__ == "__main__":
    sys.exit(main())

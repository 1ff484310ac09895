"""Container images without a container engine or registry: tar archives that `ctr images import` takes.

test.local/busybox:1     Debian's busybox-static; also the pause image
test.local/python:3      Debian's python3 with dash and coreutils, unpacked without running a maintainer script
test.local/jupyter:4     the same with JupyterLab (requirements/notebook.txt) beside it
test.local/openmpi:4     the same with Open MPI and mpi4py
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from processes import sh

JUPYTER, OPENMPI = "test.local/jupyter:4", "test.local/openmpi:4"
ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements/notebook.txt"


def busybox(cache: Path) -> Path:
    archive = cache / "busybox.tar"
    if archive.exists():
        return archive
    layer = cache / "busybox.layer"
    with tarfile.open(layer, mode="w") as tar:
        tar.add("/bin/busybox", "bin/busybox")
        applets = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout
        for applet in applets.split():
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        tmp = tarfile.TarInfo("tmp")
        tmp.type, tmp.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(tmp)
    return _pack(archive, "test.local/busybox:1", layer, ["/bin/sleep", "2147483647"])


def python(cache: Path) -> Path:
    archive = cache / "python.tar"
    if archive.exists():
        return archive
    return _pack(archive, "test.local/python:3", _unpacked(cache / "python.layer"), ["/usr/bin/python3"])


def openmpi(cache: Path) -> Path:
    archive = cache / "openmpi.tar"
    if archive.exists():
        return archive
    layer = _unpacked(cache / "openmpi.layer", "python3-mpi4py", "libc-bin")
    with tarfile.open(layer, mode="a") as tar:  # a maintainer script, which did not run, makes the link
        link = tarfile.TarInfo("usr/local/bin/mpirun")
        link.type, link.linkname = tarfile.SYMTYPE, "/usr/bin/mpirun.openmpi"
        tar.addfile(link)
    return _pack(archive, OPENMPI, layer, ["/usr/bin/python3"])


def jupyter(cache: Path) -> Path:
    """JupyterLab as the embedded cluster has it, but for Debian's Python."""
    archive = cache / f"jupyter-{hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]}.tar"
    if archive.exists():
        return archive
    layer = _unpacked(cache / "jupyter.layer", "libstdc++6")
    shown = subprocess.run(["/usr/bin/python3", "-V"], capture_output=True, text=True, check=True).stdout
    version = shown.split()[1].rpartition(".")[0]
    with tempfile.TemporaryDirectory(dir=cache) as folder, tarfile.open(layer, mode="a") as tar:
        sh(_uv(), "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--target", folder,
           "--python-version", version, "-r", REQUIREMENTS)  # fmt: skip
        for part in ("share", "etc"):
            tar.add(f"{folder}/{part}", f"usr/local/{part}")
        for package in Path(folder).iterdir():
            if package.name not in ("bin", "share", "etc"):
                tar.add(package, f"opt/jupyter/{package.name}")
        for name, module in (("jupyter", "jupyter_core.command"), ("jupyter-lab", "jupyterlab.labapp")):
            text = f"#!/usr/bin/python3\nfrom {module} import main\nmain()\n".encode()
            command = tarfile.TarInfo(f"usr/local/bin/{name}")
            command.size, command.mode = len(text), 0o755
            tar.addfile(command, io.BytesIO(text))
    env = ["PYTHONPATH=/opt/jupyter", "JUPYTERLAB_DIR=/usr/local/share/jupyter/lab"]
    return _pack(archive, JUPYTER, layer, ["jupyter", "lab"], env)


EXTRA = {"jupyter": (JUPYTER, jupyter), "openmpi": (OPENMPI, openmpi)}  # brought when a test wants them


def _unpacked(layer: Path, *packages: str) -> Path:
    """Debian's Python with a shell, and more packages."""
    wanted = ",".join(("python3", "dash", "coreutils", *packages))
    sh("mmdebstrap", "--variant=extract", "--mode=root", f"--include={wanted}", "--format=tar", _codename(), layer)
    return layer


def _uv() -> str:
    """Of the project's environment, which has the packages in its cache; else the machine's."""
    venv = os.environ.get("VENV") or str(ROOT / ".venv")
    found = shutil.which("uv", path=f"{venv}/bin:{os.environ['PATH']}")
    if found is None:
        raise SystemExit("missing: uv (`make setup` installs it), which fetches the packages of the image")
    return found


def _codename() -> str:
    return platform.freedesktop_os_release()["VERSION_CODENAME"]


def _pack(archive: Path, reference: str, layer: Path, command: list[str], env: Sequence[str] = ()) -> Path:
    """One layer, one image, in the format of `docker save`. The layer's file is removed."""
    with layer.open("rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", *env], "Cmd": command},
    }
    body = json.dumps(config).encode()
    name = hashlib.sha256(body).hexdigest() + ".json"
    manifest = [{"Config": name, "RepoTags": [reference], "Layers": [f"{digest}/layer.tar"]}]
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w") as tar:
        tar.add(layer, f"{digest}/layer.tar")
        for member, data in ((name, body), ("manifest.json", json.dumps(manifest).encode())):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    layer.unlink()
    return partial.rename(archive)

"""Container images without a container engine or registry: tar archives that `ctr images import` takes.

test.local/busybox:1     Debian's busybox-static; also the pause image
test.local/python:3      Debian's python3 with dash and coreutils, unpacked without running a maintainer script
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

from processes import sh

PYTHON_PACKAGES = "python3,dash,coreutils"


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
    layer = cache / "python.layer"
    codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
    unpack = ("--variant=extract", "--mode=root", f"--include={PYTHON_PACKAGES}", "--format=tar")
    sh("mmdebstrap", *unpack, codename, layer)
    return _pack(archive, "test.local/python:3", layer, ["/usr/bin/python3"])


def _pack(archive: Path, reference: str, layer: Path, command: list[str]) -> Path:
    """One layer, one image, in the format of `docker save`. The layer's file is removed."""
    with layer.open("rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Cmd": command},
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

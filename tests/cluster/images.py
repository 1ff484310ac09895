"""Container images without a container engine or registry: tar archives for `ctr images import`.

test.local/busybox:1     Debian's busybox-static; also the pause image
test.local/python:3      Debian's python3 with dash and coreutils, unpacked without running a maintainer script
test.local/jupyter:4     the same with JupyterLab (requirements/notebook.txt) beside it
test.local/openmpi:4     the same with Open MPI and mpi4py
test.local/portal:1      the portal of this checkout, as the Dockerfile says, on Debian's Python
test.local/servers:1     PostgreSQL and Redis, for the trial database of deploy/helm
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from processes import sh

JUPYTER, OPENMPI = "test.local/jupyter:4", "test.local/openmpi:4"
PORTAL, SERVERS = "test.local/portal:1", "test.local/servers:1"
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
        tar.addfile(_folder("tmp"))
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
    with tarfile.open(layer, mode="a") as tar:  # normally created by a maintainer script, which did not run
        link = tarfile.TarInfo("usr/local/bin/mpirun")
        link.type, link.linkname = tarfile.SYMTYPE, "/usr/bin/mpirun.openmpi"
        tar.addfile(link)
    return _pack(archive, OPENMPI, layer, ["/usr/bin/python3"])


def jupyter(cache: Path) -> Path:
    """The JupyterLab of the embedded cluster, but for Debian's Python."""
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


BELOW = (
    "libstdc++6",
    "tzdata",
    "postgresql-client",
)  # Debian packages that the portal's packages, Python and backups need
CLIENTS = (
    "for each in pg_dump pg_restore psql; do "
    'ln -sf "$(cd "$1" && echo /usr/lib/postgresql/*)/bin/$each" "$1/usr/bin/$each"; done'
)
"""Replaces Debian's wrappers, which select a version with Perl."""


def portal(cache: Path) -> Path:
    """Three layers: Debian's Python, the packages of requirements/base.txt, and the code with its static files. The first two
    are cached until the requirements change, the image until the code changes."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    copied = " ".join(re.findall(r"^COPY ([\w. ]+) [\w./]+$", dockerfile, re.MULTILINE)).split()
    tracked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *copied]
    listed = subprocess.run(tracked, cwd=ROOT, capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    digest = hashlib.sha256((ROOT / "requirements/base.txt").read_bytes() + " ".join((*BELOW, CLIENTS)).encode())
    packages = cache / f"portal-packages-{digest.hexdigest()[:12]}"
    for name in ("Dockerfile", *files):
        digest.update(f"{name}\0".encode() + (ROOT / name).read_bytes())
    archive = cache / f"portal-{digest.hexdigest()[:12]}.tar"
    if archive.exists():
        return archive
    if not packages.exists():
        _portal_packages(packages)
    for old in cache.glob("portal-*.tar"):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        app, layer = Path(folder, "app"), Path(folder, "app.layer")
        for name in files:
            (app / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, app / name)
        for command in ("manage.py compile_messages", "manage.py collectstatic --noinput", "-m compileall -q ."):
            environment = {"PATH": os.environ["PATH"], "SECRET_KEY": "build"}
            _run([packages / "venv/bin/python", *command.split()], app, environment)
        with tarfile.open(layer, "w") as tar:
            tar.add(app, "app")
            tar.addfile(_folder("data"))
        [variables] = re.findall(r"^ENV (.+)$", dockerfile.replace("\\\n", " "), re.MULTILINE)
        env = variables.replace("$PATH", "/usr/local/bin:/usr/bin:/bin").split()
        layers = [packages / "python.layer", packages / "venv.layer", layer]
        return _pack_layers(archive, PORTAL, layers, {"Env": env, "Cmd": ["python"], "WorkingDir": "/app"})


def _portal_packages(home: Path) -> None:
    """A relocatable venv, whose Python is /usr/bin/python3 both here and in the image."""
    partial = home.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    _unpacked(partial / "python.layer", *BELOW, hooks=[CLIENTS])
    venv = partial / "venv"
    sh(_uv(), "venv", "--quiet", "--relocatable", "--python", "/usr/bin/python3", venv)
    sh(_uv(), "pip", "install", "--quiet", "--compile-bytecode", "--require-hashes", "--only-binary=:all:",
       "--python", venv / "bin/python", "-r", ROOT / "requirements/base.txt")  # fmt: skip
    with tarfile.open(partial / "venv.layer", "w") as tar:
        tar.add(venv, "venv")
    partial.rename(home)


ENTRYPOINT = """#!/bin/sh
# What the chart relies on of the official image of PostgreSQL.
set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  printf %s "$POSTGRES_PASSWORD" > /tmp/password
  initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 --locale=C.UTF-8
  echo "CREATE DATABASE $POSTGRES_DB" | postgres --single postgres
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
fi
exec postgres -c "listen_addresses=*"
"""


def servers(cache: Path) -> Path:
    archive = cache / "servers.tar"
    if archive.exists():
        return archive
    layer = _unpacked(cache / "servers.layer", "postgresql", "redis-server", "redis-tools", hooks=(
        'rm -f "$1"/usr/lib/*/libLLVM*',  # for compiling queries; it is half of the image
        'ln -s "$(cd "$1" && echo usr/lib/postgresql/*)" "$1/postgresql"',
    ))  # fmt: skip
    with tarfile.open(layer, "a") as tar:
        for name, text, mode in (
            ("usr/local/bin/docker-entrypoint.sh", ENTRYPOINT, 0o755),
            ("etc/passwd", "root:x:0:0::/:/bin/sh\npostgres:x:999:999::/var/lib/postgresql:/bin/sh\n", 0o644),
        ):
            file = tarfile.TarInfo(name)
            file.size, file.mode = len(text), mode
            tar.addfile(file, io.BytesIO(text.encode()))
    path = "PATH=/usr/local/bin:/usr/bin:/bin:/postgresql/bin"
    made = _pack_layers(archive, SERVERS, [layer], {"Env": [path], "Entrypoint": ["docker-entrypoint.sh"]})
    layer.unlink()
    return made


EXTRA = {  # loaded onto the node when a test needs them
    "jupyter": (JUPYTER, jupyter),
    "openmpi": (OPENMPI, openmpi),
    "portal": (PORTAL, portal),
    "servers": (SERVERS, servers),
}


def _unpacked(layer: Path, *packages: str, hooks: Sequence[str] = ()) -> Path:
    """Debian's Python with a shell, and more packages; `hooks` run after unpacking, with the folder as $1."""
    wanted = ",".join(("python3", "dash", "coreutils", *packages))
    after = [f"--extract-hook={hook}" for hook in hooks]
    sh(
        "mmdebstrap",
        "--variant=extract",
        "--mode=root",
        f"--include={wanted}",
        "--format=tar",
        *after,
        _codename(),
        layer,
    )
    return layer


def _run(command: list[str | Path], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr[-2000:]}")


def _folder(name: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.mode = tarfile.DIRTYPE, 0o1777
    return made


def _uv() -> str:
    """The uv of the project's environment, which has the packages in its cache; else the machine's."""
    venv = os.environ.get("VENV") or str(ROOT / ".venv")
    found = shutil.which("uv", path=f"{venv}/bin:{os.environ['PATH']}")
    if found is None:
        raise SystemExit("missing: uv (`make setup` installs it), which fetches the packages of the image")
    return found


def _codename() -> str:
    return platform.freedesktop_os_release()["VERSION_CODENAME"]


def _pack(archive: Path, reference: str, layer: Path, command: list[str], env: Sequence[str] = ()) -> Path:
    """An image of one layer, whose file is removed."""
    config = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", *env], "Cmd": command}
    made = _pack_layers(archive, reference, [layer], config)
    layer.unlink()
    return made


def _pack_layers(archive: Path, reference: str, layers: list[Path], config: dict[str, Any]) -> Path:
    """Writes an image in the format of `docker save`."""
    digests = []
    for layer in layers:
        with layer.open("rb") as f:
            digests.append(hashlib.file_digest(f, "sha256").hexdigest())
    image = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "config": config,
    }
    body = json.dumps(image).encode()
    name = hashlib.sha256(body).hexdigest() + ".json"
    parts = [f"{digest}/layer.tar" for digest in digests]
    manifest = [{"Config": name, "RepoTags": [reference], "Layers": parts}]
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w") as tar:
        for part, layer in zip(parts, layers, strict=True):
            tar.add(layer, part)
        for member, data in ((name, body), ("manifest.json", json.dumps(manifest).encode())):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return partial.rename(archive)

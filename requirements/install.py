"""Makes the virtual environment and brings it up to date: `python3 install.py VENV base notebook …`.

Only the standard library, and safe to call every time: a set whose lock file has not changed is not touched.
Versions are the locked, hashed ones; uv does the work, and where uv has no wheel for this machine pip does.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes")


def digest(name: str) -> str:
    text = (HERE / f"{name}.txt").read_bytes() + sys.version.encode()
    return hashlib.sha256(text).hexdigest()


def make(folder: Path) -> None:
    """A new environment; one that belongs to a Python that is gone, or was never finished, is made again."""
    python = folder / "bin" / "python"
    if python.exists() and ((folder / "bin" / "uv").exists() or (folder / "bin" / "pip").exists()):
        return
    try:
        venv.create(folder, with_pip=True, clear=folder.exists() and not folder.is_symlink())
    except subprocess.CalledProcessError:
        shutil.rmtree(folder, ignore_errors=True)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise SystemExit(
            f"This Python has no ensurepip. On Debian and Ubuntu: apt install python{version}-venv"
        ) from None


def install(folder: Path, name: str) -> None:
    python, lock = folder / "bin" / "python", HERE / f"{name}.txt"
    uv = folder / "bin" / "uv"
    if not uv.exists():
        subprocess.run(
            [python, *PIP, "--only-binary", ":all:", "-r", HERE / "installer.txt"], stderr=subprocess.DEVNULL
        )
    if uv.exists():
        uv_pip = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--require-hashes", "--python", python]
        subprocess.run([*uv_pip, "-r", lock], check=True)
    else:
        subprocess.run([python, *PIP, "-r", lock], check=True)


def main(folder: Path, names: list[str]) -> None:
    if sys.version_info < (3, 11):
        raise SystemExit(
            f"Python 3.11 or newer is needed, this is {sys.version.split()[0]} (name another: make PYTHON=…)"
        )
    todo = [name for name in names if stamp(folder, name) != digest(name)]
    if not todo:
        return
    print(f"Installing {', '.join(todo)} into {folder} …", flush=True)
    make(folder)
    for name in todo:
        install(folder, name)
        (folder / f".installed-{name}").write_text(digest(name))


def stamp(folder: Path, name: str) -> str:
    file = folder / f".installed-{name}"
    return file.read_text() if file.exists() and (folder / "bin" / "python").exists() else ""


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2:])
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            f"Installing failed ({error}). Is the package index reachable? `make` goes on from here."
        ) from None

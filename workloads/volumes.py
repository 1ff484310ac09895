"""A workload's working directory as the portal reaches it: list, open, store, remove. Nothing outside of it, ever.

A container may put any symbolic link into its directory; every path is resolved and must still lie inside.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from portal.errors import N_, Invalid, Problem
from workloads.drivers import driver_for
from workloads.models import Workload

MOST_SHOWN = 1000


class NoFiles(Problem):
    status = 409
    code = "no_files"
    message = N_("The files of this cluster cannot be reached from the portal.")


class NoSuchFile(Problem):
    status = 404
    code = "no_such_file"
    message = N_("There is no file %(path)s.")


@dataclass(frozen=True, slots=True)
class Entry:
    """`size` in bytes; None for a directory."""

    name: str
    path: str
    size: int | None
    changed: dt.datetime


def root_of(workload: Workload) -> Path:
    """Raises NoFiles, NoSuchFile (removed after its time), Unreachable."""
    if workload.files_removed_at is not None:
        raise NoSuchFile(path="/")
    root = driver_for(workload.pool.group.cluster).files(workload.volume)
    if root is None:
        raise NoFiles
    return root.resolve()


def inside(root: Path, path: str) -> Path:
    """The real path. Raises Invalid where it would lead outside."""
    if "\0" in path or len(path) > 1000:
        raise Invalid(N_("This is not a path."), field="path")
    target = (root / path.strip("/")).resolve()
    if target != root and root not in target.parents:
        raise Invalid(N_("%(path)s lies outside of the working directory."), field="path", path=path)
    return target


def listing(root: Path, path: str = "") -> list[Entry]:
    """Directories first. Raises NoSuchFile."""
    folder = inside(root, path)
    if not folder.is_dir():
        raise NoSuchFile(path=path)
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                facts = entry.stat(follow_symlinks=False)
            except OSError:  # gone meanwhile
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            changed = dt.datetime.fromtimestamp(facts.st_mtime, dt.UTC)
            inner = os.path.relpath(entry.path, root)
            found.append(Entry(entry.name, inner, None if is_folder else facts.st_size, changed))
            if len(found) >= MOST_SHOWN:
                break
    return sorted(found, key=lambda each: (each.size is not None, each.name))


def file_in(root: Path, path: str) -> Path:
    """A plain file. Raises NoSuchFile, Invalid."""
    target = inside(root, path)
    if not target.is_file():
        raise NoSuchFile(path=path)
    return target


def store(root: Path, path: str, chunks: Iterable[bytes]) -> None:
    """Writes whole or not at all. Raises Invalid (a directory of that name, or a file where a directory is needed)."""
    target = inside(root, path)
    if target == root or target.is_dir():
        raise Invalid(N_("%(path)s is a directory."), field="path", path=path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise Invalid(N_("A part of %(path)s is a file."), field="path", path=path) from None
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".upload-", delete=False) as new:
        try:
            for chunk in chunks:
                new.write(chunk)
        except BaseException:
            Path(new.name).unlink(missing_ok=True)
            raise
    Path(new.name).chmod(0o644)
    Path(new.name).replace(target)


def remove(root: Path, path: str) -> None:
    """A file or a whole directory; the link, not what it points to. Raises NoSuchFile, Invalid."""
    target = root / path.strip("/")
    parent = inside(root, str(Path(path.strip("/")).parent))
    target = parent / target.name
    if target.is_dir() and not target.is_symlink():
        if target.resolve() == root:
            raise Invalid(N_("This is not a path."), field="path")
        shutil.rmtree(target)
    elif target.is_symlink() or target.exists():
        target.unlink()
    else:
        raise NoSuchFile(path=path)

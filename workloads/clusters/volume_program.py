"""What is done to a working directory, where it is: list, send, store, remove. Nothing outside of it, ever.

The embedded cluster calls these functions; on Kubernetes this very file runs in a small pod that mounts the directory
(pod_files.py). So: standard library only, one file, any Python from 3.8. A container may put any symbolic link into its
directory; every path is resolved and must still lie inside.

`main` speaks on stdin and stdout: a line of JSON first, then bytes. Bytes come in as frames, each a length of four bytes
and that many bytes; an empty frame is the end, so that a broken connection is told from a finished upload.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

MOST_SHOWN = 1000  # as in workloads/clusters/files.py, which is not there in the pod
PIECE = 1 << 18  # bytes read at once
DRAFT, DRAFT_KEPT = ".upload-", 86400  # s; of an upload whose end never came
USED = Path("/tmp/used")  # noqa: S108 - the pod's own


class Cut(Exception):
    """The connection broke before the end of an upload."""


class Failed(Exception):
    """`code` is one of those in workloads/clusters/files.py."""

    def __init__(self, code: str, path: str = "", free: int = 0) -> None:
        super().__init__(code)
        self.code, self.path, self.free = code, path, free


def inside(root: Path, path: str) -> Path:
    """The real path. Raises Failed: not_a_path, outside."""
    if "\0" in path or len(path) > 1000:
        raise Failed("not_a_path", path[:100])
    target = (root / path.strip("/")).resolve()
    if target != root and root not in target.parents:
        raise Failed("outside", path)
    return target


def get(root: Path, path: str) -> tuple[dict[str, Any], BinaryIO | None]:
    """What a directory holds, directories first; or a plain file's size, and the file. Raises Failed: no_such_file."""
    target = inside(root, path)
    try:
        if target.is_dir():
            return {"entries": _entries(root, target), "free": shutil.disk_usage(str(root)).free}, None
        file = os.fdopen(os.open(str(target), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    except OSError as error:
        raise Failed("denied" if isinstance(error, PermissionError) else "no_such_file", path) from error
    facts = os.fstat(file.fileno())
    if not stat.S_ISREG(facts.st_mode):
        file.close()
        raise Failed("no_such_file", path)
    return {"name": target.name, "size": facts.st_size, "changed": facts.st_mtime}, file


def _entries(root: Path, folder: Path) -> list[dict[str, Any]]:
    found = []
    with os.scandir(str(folder)) as entries:
        for entry in entries:
            try:
                facts = entry.stat(follow_symlinks=False)
            except OSError:  # gone meanwhile
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            inner, size = os.path.relpath(entry.path, str(root)), None if is_folder else facts.st_size
            found.append({"name": entry.name, "path": inner, "size": size, "changed": facts.st_mtime})
            if len(found) >= MOST_SHOWN:
                break
    return sorted(found, key=lambda each: (each["size"] is not None, each["name"]))


def pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The first `size` bytes; fewer when it was cut meanwhile."""
    with file:
        while size > 0 and (data := file.read(min(PIECE, size))):
            size -= len(data)
            yield data


def put(root: Path, path: str, chunks: Iterable[bytes]) -> None:
    """Stores whole or not at all. Raises Failed: is_directory, part_is_file, no_space, denied."""
    target = inside(root, path)
    if target == root or target.is_dir():
        raise Failed("is_directory", path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _drop_old_drafts(target.parent)
        with tempfile.NamedTemporaryFile(dir=str(target.parent), prefix=DRAFT, delete=False) as new:
            try:
                for chunk in chunks:
                    new.write(chunk)
                new.flush()
            except BaseException:
                os.unlink(new.name)
                raise
        os.chmod(new.name, 0o644)
        os.replace(new.name, str(target))
    except (FileExistsError, NotADirectoryError):
        raise Failed("part_is_file", path) from None
    except PermissionError:
        raise Failed("denied", path) from None
    except OSError as error:
        raise Failed("no_space", path, shutil.disk_usage(str(root)).free) from error


def _drop_old_drafts(folder: Path) -> None:
    """Of uploads that were killed."""
    for draft in folder.glob(f"{DRAFT}*"):
        try:
            if draft.stat().st_mtime < time.time() - DRAFT_KEPT:
                draft.unlink()
        except OSError:
            continue


def remove(root: Path, path: str) -> None:
    """A file or a whole directory; the link, not what it points to. Raises Failed: not_a_path, no_such_file, denied."""
    asked = Path(path.strip("/"))
    target = inside(root, str(asked.parent)) / asked.name
    try:
        if target.is_symlink() or target.is_file():
            target.unlink()
        elif not target.exists():
            raise Failed("no_such_file", path)
        elif target.resolve() == root or root not in target.resolve().parents:
            raise Failed("not_a_path", path)
        elif target.is_dir():
            shutil.rmtree(str(target))
        else:
            target.unlink()
    except PermissionError:
        raise Failed("denied", path) from None


def framed(source: BinaryIO) -> Iterator[bytes]:
    """Raises Cut where the end is missing."""
    while True:
        header = source.read(4)
        length = int.from_bytes(header, "big")
        if len(header) == 4 and not length:
            return
        data = source.read(length)
        if len(header) < 4 or len(data) < length:
            raise Cut
        yield data
        use()


def use() -> None:
    """Somebody is at it: the pod stays."""
    USED.touch()


def keep(idle: float) -> None:
    """What the pod does between two calls: it ends when nobody has used it for `idle` seconds."""
    use()
    while time.time() - USED.stat().st_mtime < idle:
        time.sleep(2)


def answer(operation: str, root: Path, path: str) -> None:
    out, file = sys.stdout.buffer, None
    use()
    try:
        said: dict[str, Any] = {}
        if operation == "get":
            said, file = get(root, path)
        elif operation == "put":
            chunks = framed(sys.stdin.buffer)
            try:
                put(root, path, chunks)
            except Failed:
                for _ in framed(sys.stdin.buffer):  # who sends listens only at the end
                    pass
                raise
        else:
            remove(root, path)
    except Cut:
        return
    except Failed as failed:
        said = {"failed": failed.code, "path": failed.path, "free": failed.free}
    out.write(json.dumps(said).encode() + b"\n")
    for data in pieces(file, said["size"]) if file else ():
        out.write(data)
        use()
    out.flush()


def main(arguments: list[str]) -> None:
    if arguments[0] == "keep":
        return keep(float(arguments[1]))
    return answer(arguments[0], Path(arguments[1]).resolve(), arguments[2])


if __name__ == "__main__":
    main(sys.argv[1:])

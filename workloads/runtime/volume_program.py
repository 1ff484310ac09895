"""Operations on a working directory, where it is: list, send, store, delete, pack. Never on anything outside of it.
The embedded cluster calls these functions; on Kubernetes this very file runs in a small pod that mounts the directory
(kubernetes/volume_pods.py). So: standard library only, one file, any Python from 3.8. A container may put any symbolic link
into its directory; every path is resolved and must still be inside.
A name is bytes on a disk and text everywhere else: `text_of` and `bytes_of`. Bytes that are not UTF-8 (in an unpacked GBK
archive) become U+F780 to U+F7FF, characters that real names do not have; if a name has them all the same, its own bytes are
written in the same way.
`main` communicates on stdin and stdout: a line of JSON first, then bytes. Bytes come in as frames, each a length of four bytes
and that many bytes; an empty frame is the end, which distinguishes a finished upload from a broken connection.
"""

from __future__ import annotations

import errno
import heapq
import json
import os
import re
import shutil
import stat
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

MOST_SHOWN = 1000  # as in workloads/runtime/files.py, which the pod does not have
PIECE = 1 << 18  # bytes read at once
LONGEST_PATH = 4095  # bytes, of Linux
DRAFT, DRAFT_KEPT = ".upload-", 86400  # s; of an upload that was cut off
USED = Path("/tmp/used")  # noqa: S108 - the pod's own
KEPT_BYTE = 0xF700  # + a byte of 0x80 or more that is not UTF-8
KEPT = re.compile("[\uf780-\uf7ff]")
LEFT_OUT = "NOT-IN-THIS-ARCHIVE.txt"
KINDS = {
    stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "device", stat.S_IFCHR: "device",
}  # fmt: skip


class Cut(Exception):
    """The connection broke before the end of an upload."""


class Failed(Exception):
    """An operation failed. `code`: one of those in workloads/runtime/files.py."""

    def __init__(self, code: str, path: str = "", free: int = 0, limit: int = 0, why: str = "") -> None:
        super().__init__(code)
        self.code, self.path, self.free, self.limit, self.why = code, path, free, limit, why


def text_of(name: bytes) -> str:
    """The text of a name, different for each name; `bytes_of` returns the bytes."""

    text = name.decode("utf-8", "surrogateescape")
    text = KEPT.sub(lambda match: "".join(chr(KEPT_BYTE + byte) for byte in match[0].encode()), text)
    return "".join(chr(KEPT_BYTE + ord(sign) - 0xDC00) if "\udc80" <= sign <= "\udcff" else sign for sign in text)


def bytes_of(text: str) -> bytes:
    """The bytes of a name. Raises Failed for a text that cannot be a name: half a character, or a NUL."""
    if "\0" in text:
        raise Failed("not_a_path", text.replace("\0", " ")[:100])
    signs = (chr(ord(sign) - KEPT_BYTE + 0xDC00) if KEPT.match(sign) else sign for sign in text)
    try:
        return "".join(signs).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Failed("not_a_path", ascii(text)[:100]) from None


def inside(root: bytes, path: str) -> bytes:
    """The real path. Raises Failed: not_a_path, outside, path_too_long."""
    asked = bytes_of(path.strip("/"))
    if len(asked) > LONGEST_PATH:
        raise Failed("path_too_long", path[:100], limit=LONGEST_PATH)
    target = os.path.realpath(os.path.join(root, asked))
    if target != root and not target.startswith(root + b"/"):
        raise Failed("outside", path)
    return target


def refused(error: OSError, root: bytes, path: str) -> Failed:
    """The Failed for an error of the file system."""
    number = error.errno or 0
    if number == errno.ENAMETOOLONG:
        longest = max(len(part) for part in bytes_of(path).split(b"/"))
        limit = os.pathconf(root, "PC_NAME_MAX")
        return Failed("name_too_long" if longest > limit else "path_too_long", path, limit=limit)
    if number in (errno.ENOSPC, errno.EDQUOT):
        return Failed("no_space", path, shutil.disk_usage(root).free)
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Failed("denied", path)
    if number in (errno.EEXIST, errno.ENOTDIR):
        return Failed("part_is_file", path)
    codes = {errno.EISDIR: "is_directory", errno.ENOENT: "no_such_file", errno.ELOOP: "loop"}
    return Failed(codes.get(number, "refused"), path, why=os.strerror(number))


def get(root: bytes, path: str, after: str = "") -> tuple[dict[str, Any], BinaryIO | None]:
    """(entries of a directory, None), directories first, from the entry that follows `after`; or (name and size of a regular
    file, the file). Nothing else is opened: opening a pipe or a device has effects on its users. Raises Failed."""
    target = inside(root, path)
    try:
        mode = os.stat(target).st_mode
        if stat.S_ISDIR(mode):
            entries, more, total = _entries(root, target, after)
            free = shutil.disk_usage(root).free
            return {"entries": entries, "next": more, "total": total, "free": free}, None
        if not stat.S_ISREG(mode):
            raise Failed("not_regular", path)
        file = os.fdopen(os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    except OSError as error:
        failed = refused(error, root, path)
        raise Failed("no_such_file", path) if failed.code in ("part_is_file", "refused") else failed from error
    facts = os.fstat(file.fileno())
    if not stat.S_ISREG(facts.st_mode):
        file.close()
        raise Failed("not_regular", path)
    return {"name": text_of(os.path.basename(target)), "size": facts.st_size, "changed": facts.st_mtime}, file


def _entries(root: bytes, folder: bytes, after: str) -> tuple[list[dict[str, Any]], str, int]:
    """(a page of entries, cursor of the next page or "", how many there are). Only those shown are examined closely, because
    a directory may have hundreds of thousands."""
    total, cursor = 0, _cursor(after)

    def keys() -> Iterator[tuple[bool, bytes]]:
        nonlocal total
        with os.scandir(folder) as entries:
            for entry in entries:
                total += 1
                key = (not entry.is_dir(follow_symlinks=False), entry.name)
                if cursor is None or key > cursor:
                    yield key

    chosen = heapq.nsmallest(MOST_SHOWN + 1, keys())
    entries = []
    for is_file, name in chosen[:MOST_SHOWN]:
        path = os.path.join(folder, name)
        try:
            facts = os.lstat(path)
        except OSError:  # gone meanwhile
            continue
        size = facts.st_size if is_file else None
        inner, kind = text_of(os.path.relpath(path, root)), KINDS.get(stat.S_IFMT(facts.st_mode), "device")
        entries.append({"name": text_of(name), "path": inner, "kind": kind, "size": size, "changed": facts.st_mtime})
    more = chosen[MOST_SHOWN - 1] if len(chosen) > MOST_SHOWN else None
    return entries, "" if more is None else "df"[more[0]] + text_of(more[1]), total


def _cursor(after: str) -> tuple[bool, bytes] | None:
    """The position of `after`, which is d or f and a name: after this directory, or after this file. Raises Failed."""
    if not after:
        return None
    if after[0] not in "df":
        raise Failed("not_a_path", after[:100])
    return after[0] == "f", bytes_of(after[1:])


def pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The first `size` bytes; fewer if the file was truncated meanwhile."""
    with file:
        while size > 0 and (data := file.read(min(PIECE, size))):
            size -= len(data)
            yield data


def archive(root: bytes, path: str) -> tuple[str, Iterator[bytes]]:
    """(name, a directory as a tar), read while it is sent. GNU format: names as bytes, files of any size. Raises Failed."""
    target = inside(root, path)
    if not os.path.isdir(target):
        raise Failed("no_such_file", path)
    name = text_of(os.path.basename(target)) if target != root else ""
    return name, _packed(target, os.path.basename(target) if target != root else b"files")


def _packed(top: bytes, name: bytes) -> Iterator[bytes]:
    """The tar. Links stay links; entries that cannot be read, or are no files, are listed in LEFT_OUT at the end."""
    left_out: list[bytes] = []
    walk = os.fwalk(
        top, follow_symlinks=False, onerror=lambda error: left_out.append(os.fsencode(error.filename or b"?"))
    )
    for folder, folders, names, folder_fd in walk:
        inner = os.path.normpath(os.path.join(name, os.path.relpath(folder, top)))
        yield _header(inner, os.fstat(folder_fd), tarfile.DIRTYPE)
        links = [each for each in folders if os.path.islink(os.path.join(folder, each))]
        for each in sorted(names + links):
            try:
                yield from _member(os.path.join(inner, each), each, folder_fd)
            except OSError:
                left_out.append(os.path.join(inner, each))
    if left_out:
        text = b"\n".join(left_out) + b"\n"
        facts = os.stat_result((0o100644, 0, 0, 1, 0, 0, len(text), 0, int(time.time()), 0))
        yield _header(os.path.join(name, LEFT_OUT.encode()), facts, tarfile.REGTYPE) + _padded(text)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _member(inner: bytes, name: bytes, folder: int) -> Iterator[bytes]:
    facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(facts.st_mode):
        yield _header(inner, facts, tarfile.SYMTYPE, os.readlink(name, dir_fd=folder))
        return
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(errno.EINVAL, "no plain file")
    with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb") as file:
        facts = os.fstat(file.fileno())
        yield _header(inner, facts, tarfile.REGTYPE)
        sent = 0
        while sent < facts.st_size:  # bytes added meanwhile are left out, missing ones are filled with zeros
            data = file.read(min(PIECE, facts.st_size - sent)) or bytes(min(PIECE, facts.st_size - sent))
            sent += len(data)
            yield data
        yield bytes(-facts.st_size % tarfile.BLOCKSIZE)


def _header(name: bytes, facts: os.stat_result, kind: bytes, link: bytes = b"") -> bytes:
    info = tarfile.TarInfo(name.decode("utf-8", "surrogateescape"))
    info.type, info.mode, info.mtime = kind, stat.S_IMODE(facts.st_mode), int(facts.st_mtime)
    info.size = facts.st_size if kind == tarfile.REGTYPE else 0
    info.linkname = link.decode("utf-8", "surrogateescape")
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % tarfile.BLOCKSIZE)


def put(root: bytes, path: str, chunks: Iterable[bytes]) -> None:
    """Store a file completely or not at all. Raises Failed."""
    target = inside(root, path)
    folder = os.path.dirname(target)
    try:
        if target == root or os.path.isdir(target) or path.endswith("/"):
            raise Failed("is_directory", path)
        os.makedirs(folder, exist_ok=True)
        # Before the whole file has been received.
        if len(os.path.basename(target)) > os.pathconf(folder, "PC_NAME_MAX"):
            raise OSError(errno.ENAMETOOLONG, "")
        _drop_old_drafts(folder)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=DRAFT.encode(), suffix=b"", delete=False) as new:
            try:
                for chunk in chunks:
                    new.write(chunk)
                new.flush()
                os.chmod(new.name, 0o644)
                os.replace(new.name, target)
            except BaseException:
                os.unlink(new.name)
                raise
    except OSError as error:
        raise refused(error, root, path) from error


def _drop_old_drafts(folder: bytes) -> None:
    """Delete drafts of uploads that were killed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.name.startswith(DRAFT.encode()) and entry.stat().st_mtime < time.time() - DRAFT_KEPT:
                    os.unlink(entry.path)
            except OSError:
                continue


def remove(root: bytes, path: str) -> None:
    """Delete a file or a whole directory; of a link, not its target. Raises Failed."""
    folder, _, name = path.strip("/").rpartition("/")
    target = os.path.join(inside(root, folder), bytes_of(name))
    if name in ("", ".", ".."):
        raise Failed("not_a_path", path)
    try:
        facts = os.lstat(target)
        if stat.S_ISDIR(facts.st_mode):
            shutil.rmtree(target)
        else:
            os.unlink(target)
    except OSError as error:
        raise refused(error, root, path) from error


def framed(source: BinaryIO) -> Iterator[bytes]:
    """The content of the frames. Raises Cut if the end is missing."""
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
    """Record that the directory is in use, so that the pod stays."""
    USED.touch()


def keep(idle: float) -> None:
    """The pod's own process: it ends when the directory has not been used for `idle` seconds."""
    use()
    while time.time() - USED.stat().st_mtime < idle:
        time.sleep(2)


def answer(operation: str, root: bytes, path: str, after: str) -> None:
    out, sent = sys.stdout.buffer, iter(())  # type: BinaryIO, Iterator[bytes]
    use()
    try:
        header: dict[str, Any] = {}
        if operation == "get":
            header, file = get(root, path, after)
            sent = pieces(file, header["size"]) if file else sent
        elif operation == "archive":
            name, sent = archive(root, path)
            header = {"name": name}
        elif operation == "put":
            chunks = framed(sys.stdin.buffer)
            try:
                put(root, path, chunks)
            except Failed:
                for _ in framed(sys.stdin.buffer):  # the sender reads only at the end
                    pass
                raise
        else:
            remove(root, path)
    except Cut:
        return
    except Failed as failed:
        header = {"failed": vars(failed)}
    out.write(json.dumps(header).encode() + b"\n")
    for data in sent:
        out.write(data)
        use()
    out.flush()


def main(arguments: list[str]) -> None:
    if arguments[0] == "keep":
        return keep(float(arguments[1]))
    operation, root, path, after = arguments
    return answer(operation, os.path.realpath(os.fsencode(root)), decoded(path), decoded(after))


def decoded(word: str) -> str:
    """An argument as it was sent, whatever this Python's locale."""
    return os.fsencode(word).decode("utf-8", "replace")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Files of a working directory: the interface of every driver.

`Files.get` tells a directory from a file in one call, because a call may be a journey. Bytes are passed on in pieces and
never held as a whole. Paths are relative to the working directory; "" is that directory.

| FileFailure.code | means |
|---|---|
| `not_a_path`, `outside` | a path that leads nowhere, or out of the directory (also through a link) |
| `no_such_file` | nothing there |
| `not_regular` | a named pipe, a socket or a device: nothing that could be read as a file |
| `is_directory`, `part_is_file` | a file cannot be stored there |
| `name_too_long`, `path_too_long` | of the name or the whole path; `limit` bytes are what its file system takes |
| `loop` | links that lead to each other |
| `no_space` | the disk is full; `free` bytes are left |
| `denied` | the container has made it unreadable for its own user |
| `refused` | whatever else its file system says: `why` |

Names and paths are text as volume_program.text_of makes it of their bytes; files/names.py: shown one that a person can read.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from workloads.runtime.errors import Unreachable

MOST_SHOWN = 1000  # entries of one answer


@dataclass(frozen=True, slots=True)
class Entry:
    """`size` in bytes; None for a directory. `kind`: directory, file, link, pipe, socket or device."""

    name: str
    path: str
    kind: str
    size: int | None
    changed: dt.datetime


@dataclass(frozen=True, slots=True)
class Listing:
    """A directory: at most MOST_SHOWN of its `total` entries, directories first. `next`: what to ask for as `after` to go on,
    or "". `free`: bytes left on its disk."""

    entries: list[Entry]
    free: int
    next: str = ""
    total: int = 0


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file. `chunks` yields its bytes once, fewer if the file is truncated meanwhile. Close it if it is not
    read."""

    name: str
    size: int
    chunks: Iterator[bytes]

    def close(self) -> None:
        close = getattr(self.chunks, "close", None)
        if close is not None:
            close()


@dataclass(frozen=True, slots=True)
class Archive:
    """A directory as a tar that is read while it is sent. `name` is the directory's, "" for the whole. Close it if it
    is not read."""

    name: str
    chunks: Iterator[bytes]

    def close(self) -> None:
        close = getattr(self.chunks, "close", None)
        if close is not None:
            close()


class FileFailure(Exception):
    def __init__(self, code: str, path: str, free: int = 0, limit: int = 0, why: str = "") -> None:
        super().__init__(f"{code}: {path}")
        self.code, self.path, self.free, self.limit, self.why = code, path, free, limit, why


class NotYet(Unreachable):
    """The directory is being opened: ask again in a moment."""

    code = "files_not_yet"


class Files(Protocol):
    """Every call may raise FileFailure, Unreachable, NotYet."""

    def get(self, path: str, after: str = "") -> Listing | OpenFile: ...

    def archive(self, path: str) -> Archive:
        """Of a directory."""
        ...

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """Whole or not at all, also when `chunks` raises."""
        ...

    def remove(self, path: str) -> None:
        """A file, a link, or a directory with everything in it."""
        ...


def listing_of(answer: dict[str, Any]) -> Listing:
    """A Listing from volume_program's answer."""
    entries = [
        Entry(
            each["name"], each["path"], each["kind"], each["size"], dt.datetime.fromtimestamp(each["changed"], dt.UTC)
        )
        for each in answer["entries"]
    ]
    return Listing(entries, answer["free"], answer["next"], answer["total"])

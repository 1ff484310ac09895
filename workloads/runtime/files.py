"""Files of a working directory: the interface of every driver.

`Files.get` returns a directory or a file in one call, because each call may be slow. Bytes are passed on in pieces and
never held as a whole. Paths are relative to the working directory; "" is that directory.

| FileFailure.code | means |
|---|---|
| `not_a_path`, `outside` | an invalid path, or one that leads out of the directory (also through a link) |
| `no_such_file` | nothing there |
| `not_regular` | a named pipe, a socket or a device, which cannot be read as a file |
| `is_directory`, `part_is_file` | a file cannot be stored there |
| `name_too_long`, `path_too_long` | the name or the whole path; the file system takes at most `limit` bytes |
| `loop` | links that lead to each other |
| `no_space` | the disk is full; `free` bytes are left |
| `denied` | the container has made it unreadable for its own user |
| `refused` | any other error of the file system: `why` |
Names and paths are the text that volume_program.text_of makes of their bytes; files/names.py makes them readable for display.
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
    """One entry of a directory. `size`: in bytes; None for a directory. `kind`: directory, file, link, pipe, socket or device."""

    name: str
    path: str
    kind: str
    size: int | None
    changed: dt.datetime


@dataclass(frozen=True, slots=True)
class Listing:
    """A directory: at most MOST_SHOWN of its `total` entries, directories first. `next`: the value of `after` for the next part,
    "" if this is the last. `free`: bytes left on its disk."""

    entries: list[Entry]
    free: int
    next: str = ""
    total: int = 0


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file. `chunks` yields its bytes once, fewer if the file is truncated meanwhile. Close it if you do not read
    it."""

    name: str
    size: int
    chunks: Iterator[bytes]

    def close(self) -> None:
        close = getattr(self.chunks, "close", None)
        if close is not None:
            close()


@dataclass(frozen=True, slots=True)
class Archive:
    """A directory as a tar that is read while it is sent. `name`: that of the directory, "" for the whole working directory.
    Close it if you do not read it."""

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
    """The directory is being opened: try again in a moment."""

    code = "files_not_yet"


class Files(Protocol):
    """Every call may raise FileFailure, Unreachable, NotYet."""

    def get(self, path: str, after: str = "") -> Listing | OpenFile: ...

    def archive(self, path: str) -> Archive:
        """A directory as a tar."""
        ...

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file completely or not at all, also if `chunks` raises."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file, a link, or a directory with everything in it."""
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

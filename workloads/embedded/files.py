"""The files of a directory of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from workloads.runtime import volume_program
from workloads.runtime.file_failures import failures
from workloads.runtime.files import Archive, Listing, OpenFile, listing_of


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """A directory of this machine."""

    directory: Path

    @property
    def root(self) -> bytes:
        return os.path.realpath(os.fsencode(self.directory))

    def get(self, path: str, after: str = "") -> Listing | OpenFile:
        with failures():
            answer, file = volume_program.get(self.root, path, after)
        if file is None:
            return listing_of(answer)
        return OpenFile(answer["name"], answer["size"], volume_program.pieces(file, answer["size"]))

    def archive(self, path: str) -> Archive:
        with failures():
            return Archive(*volume_program.archive(self.root, path))

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        with failures():
            volume_program.put(self.root, path, chunks)

    def remove(self, path: str) -> None:
        with failures():
            volume_program.remove(self.root, path)

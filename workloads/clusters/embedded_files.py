"""The files of a directory of this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from workloads.clusters import volume_program
from workloads.clusters.files import FileFailure, Listing, OpenFile, listing_of


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """A directory of this machine."""

    root: Path

    def get(self, path: str) -> Listing | OpenFile:
        try:
            said, file = volume_program.get(self.root.resolve(), path)
        except volume_program.Failed as failed:
            raise FileFailure(failed.code, failed.path) from None
        if file is None:
            return listing_of(said)
        return OpenFile(said["name"], said["size"], volume_program.pieces(file, said["size"]))

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        try:
            volume_program.put(self.root.resolve(), path, chunks)
        except volume_program.Failed as failed:
            raise FileFailure(failed.code, failed.path, failed.free) from None

    def remove(self, path: str) -> None:
        try:
            volume_program.remove(self.root.resolve(), path)
        except volume_program.Failed as failed:
            raise FileFailure(failed.code, failed.path) from None

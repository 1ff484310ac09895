"""How a page shows a file of a working directory: as text, a table, or an image; never more of it than a page can hold.
Nothing in it may run on the portal's origin: text is escaped, images are recognized by their first bytes, and SVG is text.
"""

from __future__ import annotations

from dataclasses import dataclass

from portal.web.spreadsheets import first_rows
from workloads.files import volumes
from workloads.files.names import display_name
from workloads.models import Workload
from workloads.runtime.files import OpenFile

TEXT_SHOWN = 256 * 1024  # bytes
ROWS_SHOWN, COLUMNS_SHOWN, CELL_SHOWN = 200, 50, 300  # of a table; the last: characters of a cell
LARGEST_IMAGE = 16 * 2**20  # bytes
SIGNATURES = {  # first bytes → type, of images that browsers draw without running anything
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


@dataclass(frozen=True, slots=True)
class FilePreview:
    """`kind`: text, table, image, large_image or other. `cut`: there is more than is shown."""

    name: str
    path: str
    size: int
    kind: str
    text: str = ""
    rows: tuple[tuple[str, ...], ...] = ()
    cut: bool = False


def preview_of(workload: Workload, path: str, *, patience: float = volumes.PATIENCE) -> FilePreview:
    """The preview of a file. Raises what `volumes.get` raises, and NoSuchFile for a directory."""
    content = volumes.get(workload, path, patience=patience)
    if not isinstance(content, OpenFile):
        raise volumes.NoSuchFile(path=path)
    data = _beginning(content, TEXT_SHOWN + 1)
    name, cut = display_name(content.name), len(data) > TEXT_SHOWN
    if image_type(data):
        kind = "image" if content.size <= LARGEST_IMAGE else "large_image"
        return FilePreview(name, path, content.size, kind)
    text = _text(data[:TEXT_SHOWN], cut=cut)
    if text is None:
        return FilePreview(name, path, content.size, "other")
    delimiter = {"csv": ",", "tsv": "\t"}.get(name.rpartition(".")[2].lower(), "")
    limits = {"most": ROWS_SHOWN, "columns": COLUMNS_SHOWN, "letters": CELL_SHOWN}
    rows, more = first_rows(text, delimiter, is_cut=cut, **limits) if delimiter else ((), False)
    if rows:
        return FilePreview(name, path, content.size, "table", rows=rows, cut=cut or more)
    return FilePreview(name, path, content.size, "text", text=text, cut=cut)


def image_of(workload: Workload, path: str) -> tuple[str, bytes] | None:
    """(type, bytes) of an image that may be shown; None for anything else. Raises what `volumes.read` raises."""
    content = volumes.read(workload, path)
    is_large = content.size > LARGEST_IMAGE
    data = _beginning(content, 1 if is_large else LARGEST_IMAGE + 1)
    kind = image_type(data)
    return (kind, data) if kind and not is_large and len(data) <= LARGEST_IMAGE else None


def image_type(data: bytes) -> str:
    """The type of an image by its first bytes, whatever its name; "" for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in SIGNATURES.items() if data.startswith(signature)), "")


def _beginning(content: OpenFile, most: int) -> bytes:
    data = b""
    try:
        for chunk in content.chunks:
            data += chunk
            if len(data) >= most:
                break
    finally:
        content.close()
    return data[:most]


def _text(data: bytes, *, cut: bool) -> str | None:
    """The text; None if it is not UTF-8. If it was cut, an incomplete last character is left out."""
    if b"\0" in data:
        return None
    for end in range(len(data), max(0, len(data) - (4 if cut else 1)), -1):
        try:
            return data[:end].decode("utf-8-sig")
        except UnicodeDecodeError:
            continue
    return None if data else ""

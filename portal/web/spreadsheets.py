"""CSV for people who open it in a spreadsheet: it knows the encoding, and runs nothing that a cell says."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from django.http import StreamingHttpResponse

BYTE_ORDER_MARK = "\ufeff"  # without it spreadsheets take UTF-8 for something else
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "|", "%")
"""First signs that a spreadsheet takes for a formula; the full-width ones where the system is Chinese or Japanese."""


class _Echo:
    """What csv.writer writes to: hands each line on."""

    def write(self, line: str) -> str:
        return line


def cell(value: object) -> str:
    """A text that would be a formula gets a quote in front; blanks before it hide nothing. Numbers stay numbers."""
    if isinstance(value, int | float):
        return str(value)
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(FORMULA) or text.lstrip().startswith(FORMULA) else text


def lines(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """One line each, the columns' names first."""
    writer = csv.writer(_Echo())
    yield BYTE_ORDER_MARK + writer.writerow(columns)
    for row in rows:
        yield writer.writerow([cell(value) for value in row])


def download(name: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> StreamingHttpResponse:
    """Written while it is read."""
    return StreamingHttpResponse(
        lines(columns, rows),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"', "X-Accel-Buffering": "no"},
    )

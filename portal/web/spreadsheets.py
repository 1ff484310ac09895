"""CSV for spreadsheets, whose encoding is recognised and whose cells are never executed as formulas; and the first rows of a
CSV text."""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Iterable, Iterator

from django.http import StreamingHttpResponse

BYTE_ORDER_MARK = "\ufeff"  # without it spreadsheets do not recognise UTF-8
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "|", "%")
"""First characters that make a spreadsheet take a cell for a formula; the full-width ones on Chinese and Japanese systems."""


class _Echo:
    """The file that csv.writer writes to: returns each line."""

    def write(self, line: str) -> str:
        return line


def cell(value: object) -> str:
    """The value as text, times in ISO 8601; a text that looks like a formula, also after blanks, gets a leading quote. Numbers
    stay numbers."""
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dt.datetime):
        return value.isoformat()
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(FORMULA) or text.lstrip().startswith(FORMULA) else text


def lines(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """CSV lines, the header first."""
    writer = csv.writer(_Echo())
    yield BYTE_ORDER_MARK + writer.writerow(columns)
    for row in rows:
        yield writer.writerow([cell(value) for value in row])


def download(name: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> StreamingHttpResponse:
    """The CSV as a streamed download."""
    return StreamingHttpResponse(
        lines(columns, rows),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"', "X-Accel-Buffering": "no"},
    )


Table = tuple[tuple[str, ...], ...]


def first_rows(text: str, delimiter: str, *, most: int, columns: int, letters: int, is_cut: bool) -> tuple[Table, bool]:
    """(the first rows of a CSV text, whether there are more rows or columns), with at most so many rows, columns and characters
    in a cell; no rows if it is not a table. `is_cut`: the text is cut off, so its last row may be incomplete."""
    rows: list[tuple[str, ...]] = []
    more = False
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if len(rows) == most:
                return tuple(rows), True
            more = more or len(row) > columns
            rows.append(tuple(each[:letters] for each in row[:columns]))
    except csv.Error:  # a field of more than 128 KiB
        return (), False
    return tuple(rows[:-1] if is_cut else rows), more

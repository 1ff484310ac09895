"""Cover a period, without gap or overlap, by whole days, whole hours, and a rest that is read from the ledger itself. Pure."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

HOUR = dt.timedelta(hours=1)
DAY = dt.timedelta(days=1)
EPOCH = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
Span = tuple[dt.datetime, dt.datetime]


@dataclass(frozen=True, slots=True)
class Cover:
    """Spans that together are the period: of whole UTC days, of whole UTC hours, and the rest."""

    days: tuple[Span, ...]
    hours: tuple[Span, ...]
    rest: tuple[Span, ...]


def cover(start: dt.datetime, end: dt.datetime, cuts: Iterable[dt.datetime], *, rolled: dt.datetime,
          final: dt.datetime, hours_from: dt.datetime = EPOCH) -> Cover:  # fmt: skip
    """Days before `rolled` are summed as days; the sums of hours before `final` no longer change; hours before `hours_from` (a
    whole hour) may be deleted already. No span of the rest contains one of the `cuts`, or begins or ends within a day or hour
    that is read whole. All times in UTC."""
    days: list[Span] = []
    whole: list[Span] = []
    rest: list[Span] = []
    marks = sorted({cut for cut in cuts if start < cut < end} | {start, end})
    for begin, until in pairwise(marks):
        for piece in _take(days, (begin, until), min(rolled, final), DAY):
            old, recent = (piece[0], min(piece[1], hours_from)), (max(piece[0], hours_from), piece[1])
            rest += [old] if old[0] < old[1] else []
            rest += _take(whole, recent, final, HOUR) if recent[0] < recent[1] else []
    return Cover(tuple(days), tuple(whole), tuple(rest))


def _take(spans: list[Span], span: Span, limit: dt.datetime, step: dt.timedelta) -> list[Span]:
    """Move the whole steps of a span before `limit` to `spans`, and return what is left of the span."""
    begin = _floor(span[0] + step - dt.timedelta(seconds=1), step)
    end = _floor(min(span[1], limit), step)
    if begin >= end:
        return [span]
    spans.append((begin, end))
    return [piece for piece in ((span[0], begin), (end, span[1])) if piece[0] < piece[1]]


def _floor(moment: dt.datetime, step: dt.timedelta) -> dt.datetime:
    return EPOCH + (moment - EPOCH) // step * step

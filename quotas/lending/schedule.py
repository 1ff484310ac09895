"""Lending windows: the lend limit as a function of time. Pure: no clock, no database.

A window is in force whenever the local time of its zone is within it. So a window inside the hour that is skipped when the
clocks go forward does not occur, and one inside the hour that is repeated occurs twice. Outside all windows the quota's own
lend limit applies. Minutes count from midnight; weekdays count from Monday = 0 and are those on which a window begins.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from zoneinfo import ZoneInfo

DAY = 24 * 60
WEEK = 7 * DAY
UTC = ZoneInfo("UTC")
ROUND = dt.timedelta(days=8)  # a week, and a day for changes of the clocks: every window begins and ends once

Limit = int | None  # units that others may use; None: all


@dataclass(frozen=True, slots=True)
class Window:
    """Lend at most `lend_limit` from minute `start` until minute `end` on these weekdays. If `end` ≤ `start`, it is on the next
    day."""

    days: tuple[int, ...]
    start: int
    end: int
    lend_limit: Limit

    def spans(self) -> Iterator[tuple[int, int]]:
        """[begin, end) in minutes of the week; a span that passes Sunday midnight continues at 0."""
        for day in self.days:
            begin = day * DAY + self.start
            end = day * DAY + self.end + (DAY if self.end <= self.start else 0)
            yield begin, min(end, WEEK)
            if end > WEEK:
                yield 0, end - WEEK


@dataclass(frozen=True)
class Schedule:
    """One quota's lend limit over time. Hashable; `windows` may not overlap (see `overlap`)."""

    lend_limit: Limit
    windows: tuple[Window, ...] = ()
    zone: ZoneInfo = UTC

    def at(self, when: dt.datetime) -> Limit:
        """The limit in force at a time (with a time zone)."""
        local = when.astimezone(self.zone)
        minute = local.weekday() * DAY + local.hour * 60 + local.minute
        return next((limit for begin, end, limit in self._spans if begin <= minute < end), self.lend_limit)

    @property
    def most(self) -> Limit:
        """The largest limit at any time."""
        return max((self.lend_limit, *(window.lend_limit for window in self.windows)), key=height)

    def lowest(self, begin: dt.datetime, end: dt.datetime) -> Limit:
        """The smallest limit in force at any time in [begin, end]."""
        if not self.windows:
            return self.lend_limit
        return min((self.at(when) for when in (begin, *self.turns(begin, end))), key=height)

    def changes(self, after: dt.datetime) -> Iterator[tuple[dt.datetime, Limit]]:
        """Every change in the following eight days as (when, new limit), in order."""
        before = self.at(after)
        for when in self.turns(after, after + ROUND):
            limit = self.at(when)
            if limit != before:
                yield when, limit
            before = limit

    def next_change(self, after: dt.datetime) -> tuple[dt.datetime, Limit] | None:
        """The next change as (when, new limit); None if there is never one."""
        return next(self.changes(after), None)

    def next_fall(self, after: dt.datetime, lent: int) -> tuple[dt.datetime, Limit] | None:
        """When the limit next falls below `lent` units, as (when, new limit); None if never. A limit that rises but
        stays below `lent` does not count, because nothing is recalled."""
        before = self.at(after)
        for when, limit in self.changes(after):
            if height(limit) < min(height(before), lent):
                return when, limit
            before = limit
        return None

    def next_above(self, after: dt.datetime, limit: Limit) -> dt.datetime | None:
        """When more than `limit` may next be lent; None if never."""
        return next((when for when, then in self.changes(after) if height(then) > height(limit)), None)

    def turns(self, begin: dt.datetime, end: dt.datetime) -> list[dt.datetime]:
        """Times in (begin, end] at which the limit may change: edges of windows and changes of the clocks."""
        moments = set(_clock_changes(self.zone, begin, end))
        minutes = {minute % DAY for window in self.windows for minute in (window.start, window.end)}
        day, last = begin.astimezone(self.zone).date(), end.astimezone(self.zone).date()
        while minutes and day <= last:
            for minute in minutes:
                wall = dt.datetime.combine(day, dt.time(minute // 60, minute % 60), self.zone)
                moments |= {wall.astimezone(dt.UTC), wall.replace(fold=1).astimezone(dt.UTC)}
            day += dt.timedelta(days=1)
        return sorted(when for when in moments if begin < when <= end)

    @cached_property
    def _spans(self) -> tuple[tuple[int, int, Limit], ...]:
        return tuple((begin, end, window.lend_limit) for window in self.windows for begin, end in window.spans())


def height(limit: Limit) -> float:
    """A limit as a comparable number: no limit is above all others."""
    return math.inf if limit is None else limit


def overlap(windows: tuple[Window, ...]) -> tuple[Window, Window] | None:
    """Two windows that are in force at the same minute of the week (or one window twice); None if there are none."""
    spans = sorted(((*span, n) for n, window in enumerate(windows) for span in window.spans()))
    for (_, end, first), (begin, _, second) in pairwise(spans):
        if begin < end:
            return windows[first], windows[second]
    return None


def _clock_changes(zone: ZoneInfo, begin: dt.datetime, end: dt.datetime) -> Iterator[dt.datetime]:
    """Times in (begin, end] at which the zone's UTC offset changes, to the second."""

    def offset(when: dt.datetime) -> dt.timedelta | None:
        return when.astimezone(zone).utcoffset()

    low = begin.astimezone(dt.UTC)
    while low < end:
        high = min(low + dt.timedelta(days=1), end.astimezone(dt.UTC))
        if offset(low) != offset(high):
            before, after = low, high
            while after - before > dt.timedelta(seconds=1):
                middle = before + (after - before) / 2
                before, after = (middle, after) if offset(middle) == offset(low) else (before, middle)
            yield after.replace(microsecond=0)
        low = high

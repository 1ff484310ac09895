"""Ticks and coordinates of drawings over time."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.text.timeline import HEIGHT, HOUR, WIDTH, Timeline

BEGIN = dt.datetime(2026, 5, 4, 7, 30, tzinfo=dt.UTC)


@given(st.floats(0.01, 24 * 400), st.integers(1, 9))
def test_ticks_are_few_sorted_inside_the_range_and_on_full_hours(hours: float, most: int) -> None:
    ticks = Timeline(BEGIN, BEGIN + hours * HOUR, 1, most).ticks
    assert len(ticks) <= most + 1
    assert [tick.at for tick in ticks] == sorted(tick.at for tick in ticks)
    assert all(BEGIN < tick.at < BEGIN + hours * HOUR and tick.at.minute == 0 for tick in ticks)


def test_ticks_of_days_are_at_midnight_in_the_readers_zone() -> None:
    end = (BEGIN + 7 * 24 * HOUR).astimezone(ZoneInfo("Asia/Shanghai"))
    ticks = Timeline(BEGIN, end, 1).ticks
    assert {(tick.at.hour, tick.hour) for tick in ticks} == {(0, False)}


@pytest.mark.parametrize(("at", "x"), [(-1, 0), (0, 0), (6, 500), (12, 1000), (13, 1000)])
def test_time_outside_the_range_is_drawn_at_the_edge(at: int, x: int) -> None:
    line = Timeline(BEGIN, BEGIN + 12 * HOUR, 8)
    assert line.x(BEGIN + at * HOUR) == x
    assert (line.y(0), line.y(8), line.y(2)) == (HEIGHT, 0, 75)
    assert (line.width, line.height) == (WIDTH, HEIGHT)

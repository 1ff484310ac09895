"""Lending windows as a function of time: weekdays, midnight, the two nights on which the clocks change, overlaps."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.lending.schedule import DAY, WEEK, Schedule, Window, height, overlap

BERLIN = ZoneInfo("Europe/Berlin")
OFFICE = Window((0, 1, 2, 3, 4), 9 * 60, 18 * 60, 2)
HOUR, MINUTE = dt.timedelta(hours=1), dt.timedelta(minutes=1)


def berlin(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=BERLIN)


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def office(limit: int | None = 8) -> Schedule:
    return Schedule(limit, (OFFICE,), BERLIN)


def test_window_applies_from_its_start_until_just_before_its_end() -> None:
    schedule = office()
    monday = "2026-11-23 "
    assert [schedule.at(berlin(monday + at)) for at in ("08:59:59", "09:00", "17:59:59", "18:00")] == [8, 2, 2, 8]
    assert schedule.at(berlin("2026-11-22 12:00")) == 8  # a Sunday


def test_window_follows_the_wall_clock_of_its_own_zone() -> None:
    schedule = Schedule(None, (OFFICE,), ZoneInfo("Asia/Shanghai"))
    assert schedule.at(utc("2026-11-23 00:59")) is None
    assert schedule.at(utc("2026-11-23 01:00")) == 2  # 09:00 in Shanghai


def test_without_windows_the_limit_never_changes() -> None:
    schedule = Schedule(3)
    now = utc("2026-11-23 00:00")
    assert (schedule.at(now), schedule.next_change(now), schedule.lowest(now, now + 9 * HOUR)) == (3, None, 3)


def test_next_change_and_next_fall_are_found_across_a_weekend() -> None:
    schedule = office()
    friday = berlin("2026-11-20 17:00")
    assert schedule.next_change(friday) == (berlin("2026-11-20 18:00"), 8)
    assert schedule.next_fall(friday, 5) == (berlin("2026-11-23 09:00"), 2)
    assert schedule.next_fall(friday, 2) is None
    night = Schedule(3, (Window((1,), 10 * 60, 23 * 60, 0),), BERLIN)
    tuesday = berlin("2026-11-24 20:54")  # at 23:00 more is lent than now, though still less than 4
    assert night.next_fall(tuesday, 4) == (berlin("2026-12-01 10:00"), 0)
    assert schedule.next_above(friday, 2) == berlin("2026-11-20 18:00")
    assert schedule.next_above(friday, 8) is None


def test_lowest_limit_of_a_period_includes_windows_that_begin_in_it() -> None:
    schedule = office()
    assert schedule.lowest(berlin("2026-11-23 08:40"), berlin("2026-11-23 08:55")) == 8
    assert schedule.lowest(berlin("2026-11-23 08:50"), berlin("2026-11-23 09:05")) == 2
    assert schedule.lowest(berlin("2026-11-23 08:50"), berlin("2026-11-23 09:00")) == 2


def test_a_window_over_midnight_belongs_to_the_day_it_begins_on() -> None:
    night = Schedule(0, (Window((4,), 22 * 60, 6 * 60, None),), BERLIN)
    at = ["2026-11-20 21:59", "2026-11-20 22:00", "2026-11-21 05:59", "2026-11-21 06:00", "2026-11-21 22:30"]
    assert [night.at(berlin(each)) for each in at] == [0, None, None, 0, 0]


def test_window_over_the_end_of_the_week_continues_on_monday() -> None:
    sunday = Schedule(0, (Window((6,), 20 * 60, 4 * 60, 5),), BERLIN)
    assert [sunday.at(berlin(each)) for each in ("2026-11-22 23:59", "2026-11-23 03:59", "2026-11-23 04:00")] == [
        5,
        5,
        0,
    ]


def test_whole_day_window_ends_at_24() -> None:
    saturday = Schedule(0, (Window((5,), 0, DAY, 5),), BERLIN)
    at = ["2026-11-20 23:59", "2026-11-21 00:00", "2026-11-21 23:59", "2026-11-22 00:00"]
    assert [saturday.at(berlin(each)) for each in at] == [0, 5, 5, 0]


def test_window_within_the_skipped_hour_never_applies() -> None:
    schedule = Schedule(8, (Window((6,), 2 * 60, 3 * 60, 1),), BERLIN)  # 29 March 2026: 02:00 becomes 03:00
    begin = utc("2026-03-29 00:00")
    assert all(schedule.at(begin + n * MINUTE) == 8 for n in range(180))
    assert schedule.next_change(begin) == (berlin("2026-04-05 02:00"), 1)


def test_a_window_that_begins_in_the_skipped_hour_begins_when_the_clocks_jump() -> None:
    schedule = Schedule(8, (Window((6,), 150, 5 * 60, 1),), BERLIN)  # from 02:30, which does not exist
    assert schedule.next_change(utc("2026-03-29 00:00")) == (utc("2026-03-29 01:00"), 1)
    assert schedule.next_change(utc("2026-03-29 01:00")) == (utc("2026-03-29 03:00"), 8)


def test_window_within_the_repeated_hour_applies_twice() -> None:
    schedule = Schedule(8, (Window((6,), 150, 170, 1),), BERLIN)  # 25 October 2026: 02:30–02:50 twice
    changes = list(schedule.changes(utc("2026-10-24 22:00")))[:4]
    assert changes == [
        (utc("2026-10-25 00:30"), 1), (utc("2026-10-25 00:50"), 8),
        (utc("2026-10-25 01:30"), 1), (utc("2026-10-25 01:50"), 8),
    ]  # fmt: skip


def test_overlaps_are_found_across_midnight_and_the_end_of_the_week() -> None:
    late = Window((4,), 17 * 60, 20 * 60, 0)
    assert overlap((OFFICE, late)) == (OFFICE, late)
    assert overlap((OFFICE, Window((4,), 18 * 60, 20 * 60, 0))) is None
    night, early = Window((6,), 22 * 60, 6 * 60, 1), Window((0,), 5 * 60, 7 * 60, 1)
    assert set(overlap((night, early)) or ()) == {night, early}
    assert overlap((Window((0, 1), 10 * 60, 9 * 60, 1),)) is None
    assert overlap(()) is None


windows = st.builds(
    Window,
    st.sets(st.integers(0, 6), min_size=1).map(lambda days: tuple(sorted(days))),
    st.integers(0, DAY - 1), st.integers(1, DAY), st.none() | st.integers(0, 8),
).filter(lambda window: window.start != window.end)  # fmt: skip
zones = st.sampled_from([BERLIN, ZoneInfo("UTC"), ZoneInfo("America/St_Johns"), ZoneInfo("Australia/Lord_Howe")])
moments = st.integers(0, 365 * DAY).map(lambda minute: utc("2026-01-01") + minute * MINUTE)


@settings(max_examples=150)
@given(st.lists(windows, max_size=3).map(tuple), zones, moments)
def test_limit_changes_only_at_the_announced_times(
    candidates: tuple[Window, ...], zone: ZoneInfo, now: dt.datetime
) -> None:
    schedule = Schedule(4, candidates if overlap(candidates) is None else candidates[:0], zone)
    limit, turns = schedule.at(now), dict(schedule.changes(now))
    for step in range(1, 3 * 24 * 12):  # three days in steps of five minutes
        when = now + step * 5 * MINUTE
        passed = [at for at in turns if at <= when]
        assert schedule.at(when) == (turns[max(passed)] if passed else limit)
    end_of_period = now + 26 * HOUR
    inside = [limit, *(limit for at, limit in turns.items() if at <= end_of_period)]
    assert schedule.lowest(now, end_of_period) == min(inside, key=height)


@given(st.lists(windows, max_size=4).map(tuple))
def test_windows_overlap_exactly_if_they_share_a_minute(candidates: tuple[Window, ...]) -> None:
    minutes: dict[int, int] = {}
    for window in candidates:
        for begin, end in window.spans():
            for minute in range(begin, end):
                assert 0 <= minute < WEEK
                minutes[minute] = minutes.get(minute, 0) + 1
    assert (overlap(candidates) is not None) == any(count > 1 for count in minutes.values())

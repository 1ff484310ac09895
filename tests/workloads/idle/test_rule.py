"""When work is idle: only by what was measured, and never sooner than the rule says."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from workloads.idle.rule import (
    BUCKET,
    GAP,
    LIMITS,
    RECENT,
    Action,
    Activity,
    Bucket,
    Now,
    Rule,
    combined,
    judge,
    looser_than,
    stopped_at,
    with_activity,
)

NOON = dt.datetime(2026, 11, 2, 12, tzinfo=dt.UTC)
LONG_AGO = NOON - dt.timedelta(days=10)
HOUR = Rule(below=5, minutes=60, action=Action.STOP)


def buckets(*values: float | None, until: dt.datetime = NOON) -> list[Bucket]:
    """The last one ends at `until`; None: not measured."""
    first = until - BUCKET * len(values)
    return [Bucket(first + BUCKET * n, value) for n, value in enumerate(values)]


def test_an_hour_below_the_threshold_is_idle_and_a_minute_less_is_not() -> None:
    whole = judge(buckets(40, *[1] * 12), 5, floor=LONG_AGO, now=NOON)
    assert (whole.now, whole.since, whole.measured) == (Now.QUIET, NOON - HOUR.length, HOUR.length)
    assert whole.is_idle(HOUR)
    short = judge(buckets(40, *[1] * 12), 5, floor=NOON - dt.timedelta(minutes=59), now=NOON)
    assert short.now is Now.QUIET
    assert not short.is_idle(HOUR)


def test_exactly_the_threshold_is_busy() -> None:
    assert judge(buckets(*[1] * 20, 5.0), 5, floor=LONG_AGO, now=NOON).now is Now.BUSY
    assert judge(buckets(*[1] * 20, 4.9), 5, floor=LONG_AGO, now=NOON).now is Now.QUIET


def test_work_that_was_never_measured_is_never_idle() -> None:
    assert judge([], 5, floor=LONG_AGO, now=NOON).now is Now.UNKNOWN
    assert judge(buckets(*[None] * 200), 5, floor=LONG_AGO, now=NOON).now is Now.UNKNOWN


def test_a_gap_pauses_and_an_hour_without_measurement_ends_the_spell() -> None:
    gap = judge(buckets(*[0] * 8, *[None] * 6, *[0] * 4), 5, floor=LONG_AGO, now=NOON)
    assert gap.now is Now.QUIET
    assert gap.since == NOON - 18 * BUCKET
    assert gap.measured == 12 * BUCKET, "the half hour that was not measured does not count"
    lost = judge(buckets(*[0] * 8, *[None] * 12, *[0] * 4), 5, floor=LONG_AGO, now=NOON)
    assert (lost.since, lost.measured) == (NOON - 4 * BUCKET, 4 * BUCKET)


def test_spell_is_paused_when_measuring_stops_and_unknown_after_the_gap() -> None:
    quiet = buckets(*[0] * 20)
    assert judge(quiet, 5, floor=LONG_AGO, now=NOON + RECENT).is_idle(HOUR)
    paused = judge(quiet, 5, floor=LONG_AGO, now=NOON + RECENT + BUCKET)
    assert paused.now is Now.PAUSED
    assert not paused.is_idle(HOUR)
    assert judge(quiet, 5, floor=LONG_AGO, now=NOON + GAP).now is Now.UNKNOWN


def test_gang_is_not_idle_while_one_rank_is_busy_or_not_measured() -> None:
    part = [Bucket(NOON - BUCKET * n, 0.0, complete=False) for n in range(1, 30)]
    assert judge(part, 5, floor=LONG_AGO, now=NOON).now is Now.UNKNOWN
    busy = [replace(each, most=80.0) for each in part]
    assert judge(busy, 5, floor=LONG_AGO, now=NOON).now is Now.BUSY, (
        "a rank that computes makes the gang busy, whatever the others do"
    )


def test_notebook_is_idle_only_while_its_server_reports_no_activity() -> None:
    quiet = judge(buckets(*[0] * 24), 5, floor=LONG_AGO, now=NOON)
    assert with_activity(quiet, Activity(busy=False), NOON).is_idle(HOUR)
    assert with_activity(quiet, Activity(busy=True), NOON).now is Now.BUSY
    assert with_activity(quiet, None, NOON).now is Now.PAUSED
    typed = with_activity(quiet, Activity(busy=False, last=NOON - dt.timedelta(minutes=20)), NOON)
    assert typed.since == NOON - dt.timedelta(minutes=20)
    assert not typed.is_idle(HOUR)
    ahead = with_activity(quiet, Activity(busy=False, last=NOON + dt.timedelta(hours=9)), NOON)
    assert ahead.measured == dt.timedelta(0), "a clock that is ahead makes nothing idle sooner"


values = st.lists(st.one_of(st.none(), st.floats(0, 100)), max_size=60)


@given(values, st.integers(0, 59))
def test_raising_activity_never_makes_work_idle(series: list[float | None], at: int) -> None:
    before = judge(buckets(*series), 5, floor=LONG_AGO, now=NOON)
    busier = [100.0 if n == at else value for n, value in enumerate(series)]
    after = judge(buckets(*busier), 5, floor=LONG_AGO, now=NOON)
    assert after.measured <= before.measured


@given(values, st.sets(st.integers(0, 59)))
def test_losing_measurements_never_makes_work_idle(series: list[float | None], lost: set[int]) -> None:
    """Only quiet measurements are lost here; work of which busy ones are lost can look idle."""
    kept = [None if n in lost and value is not None and value < 5 else value for n, value in enumerate(series)]
    before = judge(buckets(*series), 5, floor=LONG_AGO, now=NOON)
    assert judge(buckets(*kept), 5, floor=LONG_AGO, now=NOON).measured <= before.measured


@given(values, st.integers(0, 400))
def test_a_spell_has_no_busy_bucket_and_counts_no_more_than_its_length(
    series: list[float | None], minutes: int
) -> None:
    floor = NOON - dt.timedelta(minutes=minutes)
    found = judge(buckets(*series), 5, floor=floor, now=NOON)
    if found.since is None:
        assert found.measured == dt.timedelta(0)
        return
    assert floor <= found.since < NOON
    inside = [each for each in buckets(*series) if each.at + BUCKET > found.since]
    assert all(each.most is None or each.most < 5 for each in inside)
    assert dt.timedelta(0) < found.measured <= NOON - found.since


rules = st.builds(
    Rule, action=st.sampled_from(Action), **{name: st.integers(*limits) for name, limits in LIMITS.items()}
)


@given(rules, rules)
def test_combined_rule_is_as_strict_as_each_of_its_parts(wider: Rule, own: Rule) -> None:
    both = combined([wider, own])
    assert both is not None
    assert looser_than(wider, both) == []
    assert looser_than(own, both) == []
    assert (looser_than(wider, own) == []) == (both == own)
    assert combined([both, wider, own]) == both == combined([own, wider])


@given(rules, rules, values)
def test_tighter_rule_finds_everything_idle_that_the_wider_one_does(
    wider: Rule, own: Rule, series: list[float | None]
) -> None:
    tighter = combined([wider, own]) or own

    def idle(rule: Rule) -> bool:
        return judge(buckets(*series), rule.below, floor=LONG_AGO, now=NOON).is_idle(rule)

    assert idle(tighter) or not idle(wider)


def test_time_at_which_a_rule_would_have_stopped_is_found_in_the_history() -> None:
    history = buckets(*[50] * 3, *[0] * 30)
    quiet_from = NOON - 30 * BUCKET
    assert stopped_at(history, HOUR, floor=LONG_AGO) == quiet_from + dt.timedelta(minutes=75)
    assert stopped_at(history, replace(HOUR, action=Action.WARN), floor=LONG_AGO) == quiet_from + dt.timedelta(
        minutes=60
    )
    assert stopped_at(buckets(*[0] * 13, 50, *[0] * 13), HOUR, floor=LONG_AGO) is None, "busy during the countdown"
    assert stopped_at(buckets(*[0] * 10, *[None] * 12, *[0] * 10), HOUR, floor=LONG_AGO) is None


@given(rules, values)
def test_the_preview_stops_nothing_that_the_rounds_would_not(rule: Rule, series: list[float | None]) -> None:
    history = buckets(*series)
    at = stopped_at(history, rule, floor=LONG_AGO)
    if at is not None:
        until_then = [each for each in history if each.at < at]
        assert judge(until_then, rule.below, floor=LONG_AGO, now=at).is_idle(rule)

"""The attempts of a workload on one time line, to scale."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from workloads.pages.attempt_timeline import DRAWN, ROW, Phase, timeline_of

NOW = timezone.now()


def phase(code: str, began: float, ended: float | None) -> Phase:
    """`began` and `ended` are minutes ago."""
    at = [None if minutes is None else NOW - dt.timedelta(minutes=minutes) for minutes in (began, ended)]
    assert at[0] is not None
    return Phase(code, code, at[0], at[1])


def test_bars_are_proportional_to_the_duration_of_phases() -> None:
    drawn = timeline_of([(1, [phase("queued", 100, 90), phase("running", 90, 50)]), (2, [phase("queued", 50, 0)])])
    assert drawn is not None
    first, second = drawn.lanes
    assert [(bar.code, bar.x, bar.width) for bar in first.bars] == [
        ("queued", "0.00%", "10.00%"),
        ("running", "10.00%", "40.00%"),
    ]
    assert [(bar.x, bar.width) for bar in second.bars] == [("50.00%", "50.00%")]
    assert (second.y, drawn.height, drawn.live, drawn.earlier) == (ROW, 2 * ROW, False, 0)


def test_bar_of_a_current_phase_ends_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    drawn = timeline_of([(1, [phase("queued", 60, 30), phase("running", 30, None)])])
    assert drawn is not None
    assert drawn.live
    assert float(drawn.lanes[0].bars[1].width.rstrip("%")) == pytest.approx(50, abs=0.5)


def test_short_phases_stay_visible_and_only_the_newest_attempts_are_drawn() -> None:
    many = [(n, [phase("running", 100 - n, 99.999 - n)]) for n in range(1, 50)]
    drawn = timeline_of(many)
    assert drawn is not None
    assert [lane.number for lane in drawn.lanes] == list(range(50 - DRAWN, 50))
    assert drawn.earlier == 49 - DRAWN
    last = drawn.lanes[-1].bars[0]
    assert float(last.width.rstrip("%")) >= 0.4
    assert float(last.x.rstrip("%")) + float(last.width.rstrip("%")) <= 100.01


def test_no_timeline_without_any_duration() -> None:
    assert timeline_of([]) is None
    assert timeline_of([(1, [phase("queued", 0, 0)])]) is None

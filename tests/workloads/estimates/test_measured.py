"""How well drawn runtimes and estimated starts hold, as bench/runtimes.py and bench/estimates.py measure it."""

from __future__ import annotations

from random import Random
from statistics import mean
from xml.etree import ElementTree

from bench.estimates import Moment, cells, drawing
from bench.runtimes import ranks
from workloads.estimates.calibrate import ENOUGH
from workloads.estimates.forward import Estimate
from workloads.replay.traces import Row

HOUR, DAY = 3600, 86400


def demand(begin: int, seed: int = 1) -> list[Row]:
    """Two weeks of one department that submits twelve jobs every twelve hours: in some bursts all short, in others all long."""
    chance, rows = Random(seed), list[Row]()
    for burst in range(28):
        usual = chance.choice([HOUR, 8 * HOUR])
        for _ in range(12):
            rows.append(Row(begin + burst * 12 * HOUR, round(usual * chance.uniform(0.9, 1.1)), 1, "vision"))
    return rows


def in_the_range(correlation: float) -> float:
    found = ranks(demand(0), [7 * DAY], [correlation])[correlation, "a department's that wait"]
    assert all(jobs == 12 for _, jobs in found)
    return mean(0.1 <= rank <= 0.9 for rank, _ in found)


def test_similar_jobs_are_within_the_range_only_if_drawn_together() -> None:
    assert in_the_range(0.0) < 0.2
    assert in_the_range(0.9) > 0.7


def moment(hour: int, waits: list[int]) -> Moment:
    """Estimates of 1 to 2 hours made in this hour, and the starts after the actual waits (seconds)."""
    now = hour * HOUR
    each = Estimate(now + HOUR, now + 90 * 60, now + 2 * HOUR, 16)
    return now, [(each, now + waited) for waited in waits]


def test_error_that_repeats_in_other_hours_is_corrected() -> None:
    moments = [moment(hour, [4 * HOUR]) for hour in range(ENOUGH + 1)]
    assert cells(moments)[:5] == ["21", "0%", "0%", "100%", "0%"]
    assert cells(moments, corrected=True)[:5] == ["21", "100%", "0%", "0%", "100%"]


def test_hour_is_not_corrected_by_its_own_outcomes_and_counts_once() -> None:
    moments = [moment(hour, [100 * 60]) for hour in range(ENOUGH)] + [moment(ENOUGH, [4 * HOUR] * 20)]
    for corrected in (False, True):
        assert cells(moments, corrected)[:5] == ["40", "50%", "0%", "50%", "95%"]


def test_the_drawing_has_a_point_or_a_cross_for_each_start() -> None:
    drawn = drawing([moment(0, [100 * 60, 4 * HOUR, 5 * HOUR])])
    paths = [each.get("d", "") for each in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}path")]
    assert [path.count("h0") for path in paths] == [0, 0, 1, 0]
    assert [path.count("l4 4") for path in paths] == [0, 0, 0, 2]

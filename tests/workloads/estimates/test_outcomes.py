"""How well first estimates held, and the plot of it."""

from __future__ import annotations

import datetime as dt
import re

import pytest

from workloads.estimates.calibrate import ENOUGH
from workloads.estimates.outcomes import Outcome, calibration_of
from workloads.estimates.plot import LEAST, MOST, SIZE, place, plot_of

MADE = dt.datetime(2026, 5, 4, tzinfo=dt.UTC)
MINUTE, HOUR = dt.timedelta(minutes=1), dt.timedelta(hours=1)


def outcome(low: float, middle: float, high: float | None, start: float, made: dt.datetime = MADE) -> Outcome:
    """An outcome with times in minutes after the estimate was made."""
    last = None if high is None else made + high * MINUTE
    return Outcome(made, made + low * MINUTE, made + middle * MINUTE, last, made + start * MINUTE)


def test_first_estimates_are_compared_with_starts() -> None:
    found = calibration_of(
        [outcome(10, 20, 30, 31), outcome(10, 20, 30, 8), outcome(10, 20, 30, 40), outcome(10, 20, None, 500)]
    )
    assert (found.count, found.held, found.earlier, found.later, found.held_percent) == (4, 2, 1, 1, 50)
    assert (found.hours, found.is_enough) == (1, False)
    assert found.error_seconds == pytest.approx((12 + 20) / 2 * 60)
    assert calibration_of([]).held_percent == 0


@pytest.mark.parametrize("hours", [ENOUGH - 1, ENOUGH])
def test_burst_of_outcomes_counts_as_a_single_hour(hours: int) -> None:
    burst = [outcome(10, 20, 30, 40)] * 500
    others = [outcome(10, 20, 30, 25, MADE + hour * HOUR) for hour in range(1, hours)]
    assert calibration_of(burst).is_enough is False
    assert calibration_of([*burst, *others]).is_enough is (hours == ENOUGH)


def test_scales_are_logarithmic_from_a_minute_to_a_week() -> None:
    assert [place(0), place(LEAST), place(MOST), place(10 * MOST)] == [0, 0, SIZE, SIZE]
    assert place(600) - place(300) == pytest.approx(place(86400) - place(43200), abs=0.11)


def test_exact_estimate_is_drawn_on_the_diagonal_and_a_late_start_above_it() -> None:
    plot = plot_of([outcome(50, 60, 70, 60), outcome(50, 60, 70, 600), outcome(50, 60, 70, 600)])
    [(x, y)] = re.findall(r"M([0-9.]+) ([0-9.]+)h0", plot.held)
    assert float(x) == pytest.approx(SIZE - float(y), abs=0.11)
    [(left, top)] = re.findall(r"M([0-9.]+) ([0-9.]+)l4", plot.missed)  # twice the same is one cross
    assert float(left) + 2 == pytest.approx(float(x))
    assert float(top) + 2 == pytest.approx(SIZE - place(36000))
    assert plot_of([]).held == ""

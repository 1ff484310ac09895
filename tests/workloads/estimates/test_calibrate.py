"""Past errors correct new estimates: properties of the correction for any past."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from workloads.estimates.calibrate import ENOUGH, Correction, Past, correction_of
from workloads.estimates.forward import HORIZON, Estimate

HOUR = 3600


def past(hour: int, *times: int) -> Past:
    low, median, high, waited = times
    return Past(hour, low, median, high, waited)


def test_outcomes_of_too_few_hours_correct_nothing() -> None:
    late = [past(hour, HOUR, HOUR, HOUR, 9 * HOUR) for hour in range(ENOUGH)]
    assert correction_of(late[1:] * 100) == Correction()
    assert correction_of(late) != Correction()


def test_burst_of_outcomes_weighs_as_much_as_a_single_one() -> None:
    single = [past(hour, HOUR, 2 * HOUR, 3 * HOUR, (hour + 1) * HOUR // 4) for hour in range(ENOUGH)]
    burst = [past(ENOUGH, HOUR, 2 * HOUR, 3 * HOUR, 60)]
    assert correction_of([*single, *burst * 500]) == correction_of([*single, *burst])


def test_uniform_waits_correct_every_bound_to_the_actual_wait() -> None:
    found = correction_of([past(hour, HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR) for hour in range(ENOUGH)])
    assert (found.low, found.median, round(found.high, 3)) == (4, 2, 1.333)
    assert found.of(Estimate(HOUR, 2 * HOUR, 3 * HOUR, 16), 0) == Estimate(4 * HOUR, 4 * HOUR, 4 * HOUR, 16)


def test_ranges_that_were_too_narrow_hold_in_four_of_five_cases_after_correction() -> None:
    chance = Random(5)
    waits = [round(HOUR * chance.lognormvariate(0, 1)) for _ in range(2000)]
    found = correction_of([past(hour, HOUR - 60, HOUR, HOUR + 60, waited) for hour, waited in enumerate(waits[:1000])])
    corrected = found.of(Estimate(HOUR - 60, HOUR, HOUR + 60, 16), 0)
    assert corrected.high is not None
    held = sum(corrected.low <= waited <= corrected.high for waited in waits[1000:]) / 1000
    assert 0.75 < held < 0.85


numbers = st.integers(0, HORIZON)


@given(
    st.lists(st.tuples(st.integers(0, 40), numbers, numbers, numbers, numbers), max_size=60),
    st.tuples(numbers, numbers, numbers),
)
def test_corrected_range_is_ordered_and_never_before_now(
    pasts: list[tuple[int, int, int, int, int]], ends: tuple[int, int, int]
) -> None:
    low, median, high = sorted(ends)
    outcomes = [past(hour, *sorted(times[:3]), times[3]) for hour, *times in pasts]
    corrected = correction_of(outcomes).of(Estimate(low, median, high, 16), 0)
    assert 0 <= corrected.low <= corrected.median
    assert corrected.high is None or corrected.median <= corrected.high <= HORIZON

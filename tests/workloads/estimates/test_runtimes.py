"""How well drawn runtimes hold, as bench/runtimes.py measures it."""

from __future__ import annotations

from random import Random
from statistics import mean

from bench.runtimes import ranks
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


def test_jobs_that_are_alike_hold_only_if_they_are_drawn_together() -> None:
    assert in_the_range(0.0) < 0.2
    assert in_the_range(0.9) > 0.7

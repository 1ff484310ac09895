"""What `gpuq list` says of when something will start."""

from __future__ import annotations

import pytest
from gpuq.cli import start_of

LOW, HIGH = "2017-10-02T12:10:05+00:00", "2017-10-02T13:30:00+00:00"


@pytest.mark.parametrize(("high", "said"), [(LOW, "about {low}"), (HIGH, "{low} to {high}"), (None, "{low} to ?")])
def test_a_range_of_one_time_is_one_time(high: str | None, said: str) -> None:
    told = {name: start_of({"promised_at": at}).removeprefix("by ") for name, at in (("low", LOW), ("high", HIGH))}
    assert start_of({"estimate": {"low": LOW, "high": high}}) == said.format(**told)

"""Amounts as people read them."""

from __future__ import annotations

import pytest
from django.utils import translation

from portal.text import words


@pytest.mark.parametrize(
    ("mebibytes", "said"),
    [
        (None, ""),
        (0, "0 GiB"),
        (512, "512 MiB"),
        (-512, "-512 MiB"),
        (1024, "1 GiB"),
        (1536, "1.5 GiB"),
        (163840, "160 GiB"),
    ],
)
def test_memory_is_said_in_the_unit_that_keeps_it_short_and_nothing_in_that_of_its_neighbours(
    mebibytes: int | None, said: str
) -> None:
    assert words.memory(mebibytes) == said
    if mebibytes is not None:
        assert words.amount(mebibytes, "MiB") == said


@pytest.mark.parametrize(
    ("share", "said", "chinese"),
    [
        (None, "", ""),
        (0.0, "0 %", "0 %"),
        (0.004, "0.4 %", "0.4 %"),
        (0.25, "25 %", "25 %"),
        (9.99, "999 %", "999 %"),
        (40.24, "40×", "40 倍"),
        (4024.0, "4,024×", "4,024 倍"),
    ],
)
def test_a_share_is_a_percentage_and_from_ten_times_on_a_factor(share: float | None, said: str, chinese: str) -> None:
    assert words.percent(share) == said
    with translation.override("zh-hans"):
        assert words.percent(share) == chinese

"""Amounts as people read them."""

from __future__ import annotations

import pytest

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

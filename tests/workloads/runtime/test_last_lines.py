"""The last lines of a log, whose final line can still be incomplete."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.runtime.base import last_lines


@pytest.mark.parametrize(
    ("log", "count", "lines"),
    [
        (b"", 3, b""),
        (b"one\ntwo\n", 0, b""),
        (b"one\ntwo\n", 1, b"two\n"),
        (b"one\ntwo\nthr", 1, b"thr"),
        (b"one\ntwo\nthr", 2, b"two\nthr"),
        (b"one\ntwo\n", 2, b"one\ntwo\n"),
        (b"one\ntwo\n", 9, b"one\ntwo\n"),
        (b"10 %\r20 %\r30 %\ndone\n", 2, b"10 %\r20 %\r30 %\ndone\n"),
        (b"\n\n\n", 2, b"\n\n"),
    ],
)
def test_last_lines_are_those_at_the_end(log: bytes, count: int, lines: bytes) -> None:
    assert last_lines(log, count) == lines


@given(st.lists(st.sampled_from([b"", b"a", b"bc\r"]), max_size=6), st.booleans(), st.integers(0, 8))
def test_last_lines_are_as_many_as_requested_or_all(lines: list[bytes], ended: bool, count: int) -> None:
    whole = [line + b"\n" for line in lines]
    if lines and not ended:
        whole[-1] = lines[-1]
    kept = [line for line in whole if line]
    assert last_lines(b"".join(kept), count) == b"".join(kept[len(kept) - min(count, len(kept)) :])

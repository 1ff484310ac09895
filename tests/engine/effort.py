"""The number of examples of property tests: some in every run, many with NIGHTLY=1, few with QUICK=1 (mutation testing, which
runs the tests for every mutant)."""

import os

import pytest

NIGHTLY = bool(os.environ.get("NIGHTLY"))
QUICK = bool(os.environ.get("QUICK"))

patient = pytest.mark.timeout(4 * 3600 if NIGHTLY else 300)
"""The time limit of tests that try many examples."""


def examples(some: int, nightly: int) -> int:
    if NIGHTLY:
        return nightly
    return max(5, some // 5) if QUICK else some

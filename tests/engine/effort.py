"""How many examples a property is tried on: some in every run, many with NIGHTLY=1, few with QUICK=1 (mutation testing,
where every mutant costs a run)."""

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

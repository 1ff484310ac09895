"""How many examples a property is tried on: few in every run, many with NIGHTLY=1."""

import os

NIGHTLY = bool(os.environ.get("NIGHTLY"))


def examples(few: int, nightly: int) -> int:
    return nightly if NIGHTLY else few

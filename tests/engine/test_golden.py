"""Plans stay as they are, or somebody says why they changed (tests/engine/golden.py)."""

from itertools import chain

from tests.engine import golden
from tests.engine.effort import NIGHTLY, patient

pytestmark = patient
EVERY = 1 if NIGHTLY else 10


def test_plans_are_those_that_are_kept() -> None:
    kept = golden.kept()
    changed = [
        f"{name}: {kept.get(name, ('', 'not kept'))[1]} → {score}"
        for name, snapshot in chain(golden.recorded(), golden.towns(EVERY))
        for found, score in [golden.planned(name, snapshot)]
        if kept.get(name, ("",))[0] != found
    ]
    assert changed == [], "python -m tests.engine.golden compares all; --write keeps them, and the commit says why"

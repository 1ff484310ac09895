"""Plans stay as they are unless a commit renews the golden digests and says why (tests/engine/golden.py)."""

from itertools import chain

from tests.engine import golden
from tests.engine.effort import NIGHTLY, patient

pytestmark = patient
EVERY = 1 if NIGHTLY else 10


def test_plans_match_the_golden_digests() -> None:
    stored = golden.stored()
    changed = [
        f"{name}: {stored.get(name, ('', 'not stored'))[1]} → {score}"
        for name, snapshot in chain(golden.recorded(), golden.towns(EVERY))
        for plan_digest, score in [golden.planned(name, snapshot)]
        if stored.get(name, ("",))[0] != plan_digest
    ]
    assert changed == [], "python -m tests.engine.golden compares all; --write stores them, and the commit says why"

"""On the real node: every container gets exactly the cards it asked for, and no card is given to two at once.

NIGHTLY=1 makes two hundred random starts and stops; otherwise a few.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.clusters.beds import PlainBed, ended, eventually, in_phase, log
from workloads.clusters.base import Phase, RunSpec

STEPS = 200 if os.environ.get("NIGHTLY") else 10
MOST = 4  # cards at a time: other tests may use the node too
TELLS = "import os, time\nprint('cards', os.environ['NVIDIA_VISIBLE_DEVICES'], flush=True)\nwhile True: time.sleep(1)"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600 if os.environ.get("NIGHTLY") else 600)]


def started(bed: PlainBed, cards: int) -> tuple[RunSpec, set[str]]:
    """A run that is up, and the cards its program sees; the kubelet says the same."""
    spec = bed.spec("forever", units_per_pod=cards, command=(bed.python, "-u", "-c", TELLS))
    bed.driver.ensure(spec)
    run = in_phase(bed.driver, spec.ref, Phase.RUNNING)
    line = eventually(lambda: next((x for x in log(bed.driver, spec.ref).splitlines() if x.startswith("cards")), ""))
    seen = line.split(" ", 1)[1].split(",")
    run = eventually(lambda: (found := in_phase(bed.driver, spec.ref, Phase.RUNNING)) and found.cards and found)
    assert sorted(run.cards) == sorted(seen)
    return spec, set(seen)


def test_no_card_is_given_to_two_under_random_starts_and_stops(kubernetes_bed: PlainBed) -> None:
    dice = random.Random(20261121)
    here: dict[str, tuple[RunSpec, set[str]]] = {}
    for _ in range(STEPS):
        free = MOST - sum(len(cards) for _, cards in here.values())
        if free and (not here or dice.random() < 0.6):
            asked = dice.randint(1, min(free, 3))
            spec, cards = started(kubernetes_bed, asked)
            assert len(cards) == asked
            for other, taken in here.values():
                assert not taken & cards, (spec.ref.name, other.ref.name)
            here[spec.ref.name] = (spec, cards)
        else:
            gone, _ = here.pop(dice.choice(sorted(here)))
            kubernetes_bed.driver.stop(gone.ref, 1)
            ended(kubernetes_bed.driver, gone.ref)
            kubernetes_bed.driver.remove(gone.ref)

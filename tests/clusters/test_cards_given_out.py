"""On the real node: every container gets exactly the cards it asked for, and no card is given to two at once.

NIGHTLY=1 makes two hundred random starts and stops, several at once; otherwise a few.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.clusters.beds import PlainBed, eventually, log, seen
from workloads.runtime.base import Observed, Phase, RunSpec

STEPS = 200 if os.environ.get("NIGHTLY") else 12
LANES = 3  # at once, each with dice of its own: starts that race are where a card would be given twice
PATIENCE = 300  # s: how fast it goes is measured elsewhere
OVER = {Phase.SUCCEEDED, Phase.FAILED, Phase.LOST}
MOST = 4  # cards at a time: other tests may use the node too
TELLS = "import os, time\nprint('cards', os.environ['NVIDIA_VISIBLE_DEVICES'], flush=True)\nwhile True: time.sleep(1)"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600 if os.environ.get("NIGHTLY") else 600)]


class Table:
    """Who holds which cards. A run is in it from the moment it is seen to run until it is told to stop."""

    def __init__(self, bed: PlainBed) -> None:
        self.bed, self.lock = bed, threading.Lock()
        self.free, self.here = MOST, dict[str, set[str]]()
        self.starts, self.stops = 0, 0
        self.broken = threading.Event()

    def seen(self, spec: RunSpec) -> Observed | None:
        return seen(self.bed.driver, spec.ref)

    def reserve(self, dice: random.Random) -> int:
        """How many cards to start with; 0: something has to stop first."""
        with self.lock:
            asked = dice.randint(1, min(self.free, 3)) if self.free else 0
            self.free -= asked
            return asked

    def start(self, asked: int) -> RunSpec:
        """A run that is up, and the cards its program sees: as many as asked, nobody else's; the kubelet says the same."""
        spec = self.bed.spec("forever", units_per_pod=asked, command=(self.bed.python, "-u", "-c", TELLS))
        self.bed.driver.ensure(spec)
        run = eventually(
            lambda: (found := self.seen(spec)) and found.phase is Phase.RUNNING and found.cards and found, PATIENCE
        )
        told = eventually(lambda: re.findall("(?m)^cards (.*)\\n", log(self.bed.driver, spec.ref)), PATIENCE)
        cards = set(told[0].split(","))
        assert (len(cards), set(run.cards)) == (asked, cards)
        with self.lock:
            for other, taken in self.here.items():
                assert not taken & cards, (spec.ref.name, other)
            self.here[spec.ref.name] = cards
            self.starts += 1
        return spec

    def stop(self, spec: RunSpec) -> None:
        with self.lock:
            cards = self.here.pop(spec.ref.name)
        self.bed.driver.stop(spec.ref, 0)
        eventually(lambda: (found := self.seen(spec)) and found.phase in OVER, PATIENCE)
        self.bed.driver.remove(spec.ref)
        with self.lock:
            self.free += len(cards)
            self.stops += 1
            if not (self.starts + self.stops) % 20:
                print(f"{self.starts} starts, {self.stops} stops", flush=True)


def lane(table: Table, number: int) -> None:
    """Starts and stops at random, and stops in the end what still runs: another lane may be waiting for the cards. One that
    fails ends the others."""
    dice, mine = random.Random(20261121 + number), list[RunSpec]()
    left = STEPS // LANES + (number < STEPS % LANES)
    try:
        while (left > 0 or mine) and not table.broken.is_set():
            asked = table.reserve(dice) if left > 0 and (not mine or dice.random() < 0.6) else 0
            if asked:
                mine.append(table.start(asked))
            elif mine:
                table.stop(mine.pop(dice.randrange(len(mine))))
            else:  # the other lanes hold all cards
                time.sleep(0.1)
                continue
            left -= 1
    except BaseException:
        table.broken.set()
        raise


def test_no_card_is_given_to_two_under_random_starts_and_stops(kubernetes_bed: PlainBed) -> None:
    table = Table(kubernetes_bed)
    with ThreadPoolExecutor(LANES) as pool:
        for done in [pool.submit(lane, table, number) for number in range(LANES)]:
            done.result()
    assert table.starts == table.stops >= STEPS // 2
    assert (table.free, table.here) == (MOST, {})

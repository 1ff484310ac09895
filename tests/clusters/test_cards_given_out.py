"""On the real node: every container gets exactly as many cards as it requests, and no card is given to two at once.

NIGHTLY=1 makes two hundred random starts and stops, several at once; otherwise there are only a few.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.clusters.beds import PlainBed, eventually, find_run, log
from workloads.runtime.base import Observed, Phase, RunSpec

STEPS = 200 if os.environ.get("NIGHTLY") else 12
LANES = 3  # concurrent, each with its own random numbers: racing starts are where a card could be given twice
PATIENCE = 300  # s: speed is measured elsewhere
OVER = {Phase.SUCCEEDED, Phase.FAILED, Phase.LOST}
MOST = 4  # cards at a time: other tests may be using the node too
PRINTS_CARDS = (
    "import os, time\nprint('cards', os.environ['NVIDIA_VISIBLE_DEVICES'], flush=True)\nwhile True: time.sleep(1)"
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600 if os.environ.get("NIGHTLY") else 600)]


class Table:
    """Which run holds which cards, from the moment it is observed running until it is stopped."""

    def __init__(self, bed: PlainBed) -> None:
        self.bed, self.lock = bed, threading.Lock()
        self.free, self.held = MOST, dict[str, set[str]]()
        self.starts, self.stops = 0, 0
        self.broken = threading.Event()

    def find_run(self, spec: RunSpec) -> Observed | None:
        return find_run(self.bed.driver, spec.ref)

    def reserve(self, rng: random.Random) -> int:
        """The number of cards for the next start; 0 if a run has to stop first."""
        with self.lock:
            count = rng.randint(1, min(self.free, 3)) if self.free else 0
            self.free -= count
            return count

    def start(self, count: int) -> RunSpec:
        """Starts a run; its program and the kubelet report the same cards: as many as requested, and none of another run."""
        spec = self.bed.spec("forever", units_per_pod=count, command=(self.bed.python, "-u", "-c", PRINTS_CARDS))
        self.bed.driver.ensure(spec)
        run = eventually(
            lambda: (found := self.find_run(spec)) and found.phase is Phase.RUNNING and found.cards and found, PATIENCE
        )
        printed = eventually(lambda: re.findall("(?m)^cards (.*)\\n", log(self.bed.driver, spec.ref)), PATIENCE)
        cards = set(printed[0].split(","))
        assert (len(cards), set(run.cards)) == (count, cards)
        with self.lock:
            for other, taken in self.held.items():
                assert not taken & cards, (spec.ref.name, other)
            self.held[spec.ref.name] = cards
            self.starts += 1
        return spec

    def stop(self, spec: RunSpec) -> None:
        with self.lock:
            cards = self.held.pop(spec.ref.name)
        self.bed.driver.stop(spec.ref, 0)
        eventually(lambda: (found := self.find_run(spec)) and found.phase in OVER, PATIENCE)
        self.bed.driver.remove(spec.ref)
        with self.lock:
            self.free += len(cards)
            self.stops += 1
            if not (self.starts + self.stops) % 20:
                print(f"{self.starts} starts, {self.stops} stops", flush=True)


def lane(table: Table, number: int) -> None:
    """Starts and stops runs at random, and finally stops those that still run: another lane may be waiting for their cards.
    A lane that fails ends the others."""
    rng, mine = random.Random(20261121 + number), list[RunSpec]()
    left = STEPS // LANES + (number < STEPS % LANES)
    try:
        while (left > 0 or mine) and not table.broken.is_set():
            count = table.reserve(rng) if left > 0 and (not mine or rng.random() < 0.6) else 0
            if count:
                mine.append(table.start(count))
            elif mine:
                table.stop(mine.pop(rng.randrange(len(mine))))
            else:  # the other lanes hold all cards
                time.sleep(0.1)
                continue
            left -= 1
    except BaseException:
        table.broken.set()
        raise


def test_no_card_is_given_to_two_runs_under_random_starts_and_stops(kubernetes_bed: PlainBed) -> None:
    table = Table(kubernetes_bed)
    with ThreadPoolExecutor(LANES) as pool:
        for done in [pool.submit(lane, table, number) for number in range(LANES)]:
            done.result()
    assert table.starts == table.stops >= STEPS // 2
    assert (table.free, table.held) == (MOST, {})

"""Runtimes of workloads, learned from earlier ones. Pure; durations in seconds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from statistics import NormalDist

TOGETHER = 0.2
"""How strongly the runtimes of one person's jobs are correlated (rank correlation of two jobs of the same origin). Chosen so that
80 % ranges hold in the Philly trace (bench/README.md). There it is 0.6 for jobs that were submitted within an hour, but most of
that is explained by their size and by how long they have run already."""
NORMAL = NormalDist()
ENOUGH = 8
"""Ended runs that a class needs to be used: with fewer, the 80 % range would be all of them."""


class Class(StrEnum):
    """What similar runs have in common, the narrowest class first. LIMIT: there are none, the maximum runtime is used."""

    USER_AND_IMAGE = "user_and_image"
    USER = "user"
    DEPARTMENT = "department"
    KIND = "kind"
    ANY = "any"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of a workload on which its runtime may depend. `size` is its number of cards, rounded up (size_of)."""

    user: str
    department: str
    image: str
    kind: str
    size: int

    def classes(self) -> tuple[tuple[Class, tuple[object, ...]], ...]:
        return (
            (Class.USER_AND_IMAGE, (self.user, self.department, self.image, self.kind, self.size)),
            (Class.USER, (self.user, self.department, self.kind)),
            (Class.DEPARTMENT, (self.department, self.kind)),
            (Class.KIND, (self.kind,)),
            (Class.ANY, ()),
        )


def size_of(cards: float) -> int:
    """The number of cards rounded up to a power of two; 0 for a part of a card."""
    return 0 if cards < 1 else 1 << (int(cards) - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Curve:
    """The survival curve of the runs of a class, as estimated by Kaplan and Meier: `longer` is the part of the runs that take
    longer than each of `times`, the sorted durations of ended runs. Running ones count as long as they have lasted so far. `last`
    is the longest duration of all."""

    times: tuple[int, ...]
    longer: tuple[float, ...]
    last: int

    @staticmethod
    def of(runs: list[tuple[int, bool]]) -> Curve:
        """The curve of `runs`: (duration, whether the run has ended)."""
        times, longer, left, part = list[int](), list[float](), len(runs), 1.0
        for duration, over in sorted(runs, key=lambda run: (run[0], not run[1])):
            if over:
                part *= 1 - 1 / left
                times.append(duration)
                longer.append(part)
            left -= 1
        return Curve((*times,), (*longer,), max(duration for duration, _ in runs))

    def draw(self, elapsed: int, chance: float) -> int:
        """The duration that the part `chance` (above 0, up to 1) of the runs longer than `elapsed` exceeds. Beyond the known
        durations, a run takes twice as long as so far in half of the cases, as is known of heavy-tailed runtimes."""
        at = bisect_right(self.times, elapsed)
        if at == len(self.times):
            return round(elapsed / chance)
        wanted = chance * (self.longer[at - 1] if at else 1.0)
        at_least = bisect_left(self.longer, -wanted, lo=at, key=lambda part: -part)
        return self.times[at_least] if at_least < len(self.times) else round(self.last * self.longer[-1] / wanted)


class Chances:
    """For each run of one simulation, a random number: the part of similar runs that takes longer. The numbers of one person are
    correlated: two hundred jobs submitted at once may be short or long, but most alike. Drawn independently, their sum would
    always be near the mean."""

    def __init__(self, random: Random, together: float = TOGETHER) -> None:
        self._random, self._together = random, together
        self._shared: dict[tuple[str, str, str], float] = {}

    def of(self, traits: Traits) -> float:
        """A number above 0, up to 1, uniformly distributed."""
        origin = traits.user, traits.department, traits.kind
        shared = self._shared.setdefault(origin, self._random.gauss())
        own, together = self._random.gauss(), self._together
        return max(1e-9, NORMAL.cdf(together**0.5 * shared + (1 - together) ** 0.5 * own))


class Runtimes:
    """The durations of runs by class; running ones count as long as they have lasted so far."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[Class, tuple[object, ...]], list[tuple[int, bool]]] = defaultdict(list)
        self._curves: dict[tuple[Class, tuple[object, ...]], Curve] = {}

    def learn(self, traits: Traits, duration: int, *, over: bool = True) -> None:
        for key in traits.classes():
            self._by_key[key].append((duration, over))
            self._curves.pop(key, None)

    def like(self, traits: Traits, elapsed: int = 0) -> tuple[Class, Curve] | None:
        """The curve of the narrowest class in which ENOUGH ended runs took longer than `elapsed`, else of the widest with ENOUGH
        ended runs; None if there is none."""
        widest = None
        for key in traits.classes():
            if key not in self._by_key:
                continue
            curve = self._curves.get(key) or self._curves.setdefault(key, Curve.of(self._by_key[key]))
            if len(curve.times) - bisect_right(curve.times, elapsed) >= ENOUGH:
                return key[0], curve
            if len(curve.times) >= ENOUGH:
                widest = key[0], curve
        return widest

    def draw(self, traits: Traits, chance: float, elapsed: int = 0, at_most: int | None = None) -> int | None:
        """The duration, longer than `elapsed`, that the part `chance` of similar runs exceeds, limited to `at_most`. None if too
        few similar runs are known and there is no `at_most`."""
        alike = self.like(traits, elapsed)
        if alike is None:
            return at_most
        drawn = max(elapsed + 1, alike[1].draw(elapsed, chance))
        return drawn if at_most is None else min(drawn, at_most)

"""How long workloads run, learned from those that have ended. Pure; durations in seconds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from statistics import NormalDist

TOGETHER = 0.2
"""How far the runtimes of one person's work go together: the correlation of the ranks of two jobs of the same origin. Chosen so
that 80 % ranges hold in the Philly trace (bench/README.md); of jobs that were submitted within an hour it is 0.6 there, but what
is known of runs under way and of their size explains most of that."""
NORMAL = NormalDist()
ENOUGH = 8
"""Ended runs that a class needs before it says anything: the 80 % range of fewer is the whole of them."""


class Class(StrEnum):
    """What the runs that are compared have in common, the narrowest first. LIMIT: none are, the maximum runtime is taken."""

    USER_AND_IMAGE = "user_and_image"
    USER = "user"
    DEPARTMENT = "department"
    KIND = "kind"
    ANY = "any"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Traits:
    """Of a workload: what its runtime may depend on. `size` is its number of cards to the next power of two."""

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
    """1, 2, 4, … for so many cards; 0 for a part of one."""
    return 0 if cards < 1 else 1 << (int(cards) - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Curve:
    """Which part of the runs of a class takes longer than each of `times`, the sorted durations of those that are over: the
    estimate of Kaplan and Meier, in which runs under way count as long as they have lasted. `last` is the longest of all."""

    times: tuple[int, ...]
    longer: tuple[float, ...]
    last: int

    @staticmethod
    def of(runs: list[tuple[int, bool]]) -> Curve:
        """`runs`: (duration, whether it is over)."""
        times, longer, left, part = list[int](), list[float](), len(runs), 1.0
        for duration, over in sorted(runs, key=lambda run: (run[0], not run[1])):
            if over:
                part *= 1 - 1 / left
                times.append(duration)
                longer.append(part)
            left -= 1
        return Curve((*times,), (*longer,), max(duration for duration, _ in runs))

    def draw(self, elapsed: int, chance: float) -> int:
        """The duration that a part `chance` (above 0, up to 1) of those that take longer than `elapsed` exceeds. Beyond what is
        known a run that has lasted long lasts as long again in half of the cases, as is known of work of that kind."""
        at = bisect_right(self.times, elapsed)
        if at == len(self.times):
            return round(elapsed / chance)
        wanted = chance * (self.longer[at - 1] if at else 1.0)
        at_least = bisect_left(self.longer, -wanted, lo=at, key=lambda part: -part)
        return self.times[at_least] if at_least < len(self.times) else round(self.last * self.longer[-1] / wanted)


class Chances:
    """For each run of one play, the part of its like that lasts longer. Two hundred jobs that one person submits at once may be
    short or long, but most of them are the same: were each drawn by itself, together they would always take the mean."""

    def __init__(self, random: Random, together: float = TOGETHER) -> None:
        self._random, self._together = random, together
        self._shared: dict[tuple[str, str, str], float] = {}

    def of(self, traits: Traits) -> float:
        """Above 0, up to 1; each is equally likely."""
        origin = traits.user, traits.department, traits.kind
        shared = self._shared.setdefault(origin, self._random.gauss())
        own, together = self._random.gauss(), self._together
        return max(1e-9, NORMAL.cdf(together**0.5 * shared + (1 - together) ** 0.5 * own))


class Runtimes:
    """How long runs took, by class; those under way count with how long they have lasted."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[Class, tuple[object, ...]], list[tuple[int, bool]]] = defaultdict(list)
        self._curves: dict[tuple[Class, tuple[object, ...]], Curve] = {}

    def learn(self, traits: Traits, duration: int, *, over: bool = True) -> None:
        for key in traits.classes():
            self._by_key[key].append((duration, over))
            self._curves.pop(key, None)

    def like(self, traits: Traits, elapsed: int = 0) -> tuple[Class, Curve] | None:
        """The curve of the narrowest class in which ENOUGH runs that are over took longer than `elapsed`, else of the widest in
        which ENOUGH are over; None if there is none."""
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
        """The duration, longer than `elapsed`, that a part `chance` of its like exceeds; no longer than `at_most`. None where too
        little is known and there is no maximum."""
        alike = self.like(traits, elapsed)
        if alike is None:
            return at_most
        drawn = max(elapsed + 1, alike[1].draw(elapsed, chance))
        return drawn if at_most is None else min(drawn, at_most)

"""How long workloads run, learned from those that have ended. Pure; durations in seconds."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from random import Random

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


class Runtimes:
    """Durations of ended runs by class."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[Class, tuple[object, ...]], list[int]] = defaultdict(list)

    def learn(self, traits: Traits, duration: int) -> None:
        for key in traits.classes():
            insort(self._by_key[key], duration)

    def like(self, traits: Traits, elapsed: int = 0) -> tuple[Class, list[int]] | None:
        """The durations of the narrowest class in which ENOUGH runs took longer than `elapsed`; None if there is none."""
        for key in traits.classes():
            known = self._by_key.get(key, ())
            longer = len(known) - bisect_right(known, elapsed)
            if longer >= ENOUGH:
                return key[0], list(known[len(known) - longer :])
        return None

    def draw(self, traits: Traits, random: Random, elapsed: int = 0, at_most: int | None = None) -> int | None:
        """One duration, longer than `elapsed`, that is as likely as it was among its like; no longer than `at_most`. None where
        too little is known and there is no maximum."""
        alike = self.like(traits, elapsed)
        if alike is None:
            return at_most
        drawn = random.choice(alike[1])
        return drawn if at_most is None else min(drawn, at_most)

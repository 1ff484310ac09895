"""What departments have borrowed and lent lately: sums of unit-seconds that lose half of what they have in each half-life. Pure.

Use counts by UTC hours. Within an hour it adds up; as an hour ends all that was counted is multiplied by 2^(-1 h ÷ half-life).
That is the integral of u · 2^((t - now) ÷ half-life), for use spread evenly over its hour and seen from the end of the present
one, times a constant. All is done in integers, rounded down once an hour, so that it is the same number on every machine,
whether it was counted on from hour to hour or from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

HOUR = 3600
FACTOR_BITS, PART_BITS = 32, 20  # of the factor of an hour, and of a unit-second


class Bounds(NamedTuple):
    least: int
    most: int


HALF_LIFE = Bounds(HOUR, 90 * 24 * HOUR)
"""In seconds, what one may be."""

K = TypeVar("K")


class Lately(NamedTuple):
    """Unit-seconds times 2 to the power of PART_BITS, decayed."""

    borrowed: int = 0
    lent: int = 0

    def hours(self) -> tuple[Fraction, Fraction]:
        """Unit-hours (borrowed, lent)."""
        return Fraction(self.borrowed, HOUR << PART_BITS), Fraction(self.lent, HOUR << PART_BITS)


@lru_cache(maxsize=64)
def factor_of(half_life: int) -> int:
    """What an hour leaves of a sum, times 2 to the power of FACTOR_BITS. In decimals: floats differ between machines."""
    with localcontext() as context:
        context.prec = 40
        return int(Decimal(2) ** (FACTOR_BITS - Decimal(HOUR) / half_life))


class Decaying(Generic[K]):
    """Sums by department (K) as they are in one `hour`, counted from 1970, with what was used in it so far."""

    def __init__(self, half_life: int, hour: int, sums: Mapping[K, Lately] = MappingProxyType({})) -> None:
        self.half_life, self.hour = half_life, hour
        self.sums = dict(sums)

    def count(self, who: K, *, borrowed: int = 0, lent: int = 0) -> None:
        """Counts unit-seconds of the present hour."""
        sums = self.sums.get(who, Lately())
        self.sums[who] = Lately(sums.borrowed + (borrowed << PART_BITS), sums.lent + (lent << PART_BITS))

    def pass_to(self, hour: int) -> None:
        """Lets time pass until a later hour."""
        factor = factor_of(self.half_life)
        while self.hour < hour and self.sums:
            self.sums = {
                who: Lately(borrowed * factor >> FACTOR_BITS, lent * factor >> FACTOR_BITS)
                for who, (borrowed, lent) in self.sums.items()
                if borrowed or lent
            }
            self.hour += 1
        self.hour = max(self.hour, hour)

    def balances(self) -> dict[K, int]:
        """What each has borrowed on average less what it has lent, in thousandths of a unit, but those that are even. Who has
        always borrowed one unit has 1000 at the end of an hour."""
        hour = Fraction((1 << FACTOR_BITS) - factor_of(self.half_life), HOUR << FACTOR_BITS + PART_BITS)
        net = {who: round((sums.borrowed - sums.lent) * hour * 1000) for who, sums in self.sums.items()}
        return {who: balance for who, balance in net.items() if balance}

    @staticmethod
    def by_hours(since: int, until: int) -> Iterator[tuple[int, int]]:
        """A time in seconds since 1970, as hours with the seconds of it within each."""
        while since < until:
            ends = min(until, (since // HOUR + 1) * HOUR)
            yield since // HOUR, ends - since
            since = ends

    # Remembered -------------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        sums = {str(who): [*each] for who, each in self.sums.items()}
        return {"half_life": self.half_life, "hour": self.hour, "sums": sums}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Decaying[int]:
        """Of departments that are named by numbers."""
        sums = {int(who): Lately(*each) for who, each in data["sums"].items()}
        return Decaying(data["half_life"], data["hour"], sums)

"""What departments have borrowed and lent lately: sums of unit-seconds that are halved in each half-life. Pure.

Use is counted by UTC hours. Within an hour it adds up; at the end of each hour, all sums are multiplied by
2^(-1 h ÷ half-life). Up to a constant factor, this is the integral of u · 2^((t - now) ÷ half-life), for use spread evenly over
its hour and seen from the end of the current hour. All is computed in integers, rounded down once an hour, so the result is
the same on every machine, whether it was counted on from hour to hour or from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

HOUR = 3600
FACTOR_BITS, PART_BITS = 32, 20  # fractional bits of the hourly factor, and of a unit-second


K = TypeVar("K")


class Lately(NamedTuple):
    """Decayed unit-seconds, times 2 to the power of PART_BITS."""

    borrowed: int = 0
    lent: int = 0

    def hours(self) -> tuple[Fraction, Fraction]:
        """Unit-hours (borrowed, lent)."""
        return Fraction(self.borrowed, HOUR << PART_BITS), Fraction(self.lent, HOUR << PART_BITS)


@lru_cache(maxsize=64)
def factor_of(half_life: int) -> int:
    """The factor by which a sum decays in an hour, times 2 to the power of FACTOR_BITS. In decimals: floats differ between
    machines."""
    with localcontext() as context:
        context.prec = 40
        return int(Decimal(2) ** (FACTOR_BITS - Decimal(HOUR) / half_life))


class Decaying(Generic[K]):
    """Sums by department (K) in one hour, including its use so far. `hour`: hours since 1970."""

    def __init__(self, half_life: int, hour: int, sums: Mapping[K, Lately] = MappingProxyType({})) -> None:
        self.half_life, self.hour = half_life, hour
        self.sums = dict(sums)

    def count(self, who: K, *, borrowed: int = 0, lent: int = 0) -> None:
        """Add unit-seconds used in the current hour."""
        sums = self.sums.get(who, Lately())
        self.sums[who] = Lately(sums.borrowed + (borrowed << PART_BITS), sums.lent + (lent << PART_BITS))

    def pass_to(self, hour: int) -> None:
        """Decay the sums up to a later hour."""
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
        """The average number of units borrowed minus lent, in thousandths; zeros are left out. A department that has always
        borrowed one unit has 1000 at the end of an hour."""
        hour = Fraction((1 << FACTOR_BITS) - factor_of(self.half_life), HOUR << FACTOR_BITS + PART_BITS)
        net = {who: round((sums.borrowed - sums.lent) * hour * 1000) for who, sums in self.sums.items()}
        return {who: balance for who, balance in net.items() if balance}

    @staticmethod
    def by_hours(since: int, until: int) -> Iterator[tuple[int, int]]:
        """Split a span, in seconds since 1970: (hour, seconds of the span in it)."""
        while since < until:
            ends = min(until, (since // HOUR + 1) * HOUR)
            yield since // HOUR, ends - since
            since = ends

    # As JSON ----------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        sums = {str(who): [*each] for who, each in self.sums.items()}
        return {"half_life": self.half_life, "hour": self.hour, "sums": sums}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Decaying[int]:
        """Read `to_json` of sums whose keys are department ids."""
        sums = {int(who): Lately(*each) for who, each in data["sums"].items()}
        return Decaying(data["half_life"], data["hour"], sums)

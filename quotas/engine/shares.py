"""Whose share a victim set lowers: with fair sharing, who borrows most gives first.

Sets are compared by the shares that all departments but the taker's are left with, from the highest on. Of a thousand
departments a set touches a few, so only what it changes is written down and compared.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, total_ordering
from itertools import zip_longest

from quotas.engine.quota_tree import Account, Share, share

BELOW_ALL: tuple[Share, int] = (-1, 0)


@total_ordering
@dataclass(frozen=True, slots=True)
class Change:
    """How many more departments have a share than before, or fewer (negative), from the highest such share on."""

    counts: tuple[tuple[Share, int], ...] = ()

    def __lt__(self, other: "Change") -> bool:
        """Whether what is left by this change is less: of the highest share that makes a difference there are fewer."""
        for (mine, more), (theirs, many) in zip_longest(self.counts, other.counts, fillvalue=BELOW_ALL):
            if mine != theirs:
                return more < 0 if mine > theirs else many > 0
            if more != many:
                return more < many
        return False

    def __add__(self, other: "Change") -> "Change":
        """Both changes, of different departments."""
        if not other.counts:
            return self
        return summed([*self.counts, *other.counts]) if self.counts else other


NO_CHANGE = Change()


def summed(counts: Iterable[tuple[Share, int]]) -> Change:
    """The change that is made of these, in any order."""
    sums: dict[Share, int] = {}
    for one, more in counts:
        sums[one] = sums.get(one, 0) + more
    return Change(tuple(sorted(((one, more) for one, more in sums.items() if more), reverse=True)))


def lowered(account: Account, units: int) -> Change:
    """What it changes that a department gives so many units."""
    return _from_to(share(account, account.usage), share(account, account.usage - units))


@lru_cache(maxsize=10_000)
def _from_to(before: Share, after: Share) -> Change:
    """One department's change of share. That the same change is the same object spares millions of comparisons."""
    return Change(((before, -1), (after, 1))) if after < before else NO_CHANGE

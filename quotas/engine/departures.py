"""Those who leave a pool: by when, and for whom.

A leaver leaves for the pending claim that holds it, if that claim has a hold now; else for nobody, until somebody needs
it. What a leaver frees beyond its holder's need may serve others as well: `awaited` has all who wait for it.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator

from quotas.engine.types import Claim, ClaimId

Turn = tuple[int, ClaimId]


class Departures:
    """The leaving claims of one pool. `turn(claim)` says by when a claim is gone, and breaks ties."""

    def __init__(self, turn: Callable[[Claim], Turn]) -> None:
        self._turn = turn
        self.leaving: dict[ClaimId, Claim] = {}
        self.holder: dict[ClaimId, ClaimId] = {}
        self._held_by: dict[ClaimId, set[ClaimId]] = {}
        self._told_for: dict[ClaimId, set[ClaimId]] = {}
        self.awaited: dict[ClaimId, set[ClaimId]] = {}
        self._awaits: dict[ClaimId, set[ClaimId]] = {}
        self.for_nobody: set[ClaimId] = set()
        self._line: list[Turn] = []

    def enter(self, leaver: Claim) -> None:
        """The claim leaves, for whom the snapshot says if anyone."""
        self.leaving[leaver.id] = leaver
        self.for_nobody.add(leaver.id)
        insort(self._line, self._turn(leaver))
        if leaver.held_for is not None:
            self._told_for.setdefault(leaver.held_for, set()).add(leaver.id)
            self._hold(leaver.id, leaver.held_for)

    def stay(self, leaver: Claim) -> None:
        """The claim does not leave after all."""
        del self.leaving[leaver.id]
        self.for_nobody.discard(leaver.id)
        del self._line[bisect_left(self._line, self._turn(leaver))]
        holder = self.holder.pop(leaver.id, None)
        if holder is not None:
            self._held_by[holder].discard(leaver.id)

    def hold(self, leaver: Claim, claim: Claim) -> None:
        """The claim waits for the leaver, which leaves for it unless it does for another already."""
        self.awaited.setdefault(leaver.id, set()).add(claim.id)
        self._awaits.setdefault(claim.id, set()).add(leaver.id)
        if leaver.id not in self.holder:
            self._hold(leaver.id, claim.id)

    def _hold(self, leaver: ClaimId, claim: ClaimId) -> None:
        self.holder[leaver] = claim
        self._held_by.setdefault(claim, set()).add(leaver)

    def release(self, claim: Claim) -> None:
        """Nobody leaves for the claim any more."""
        for leaver in self._awaits.pop(claim.id, ()):
            self.awaited[leaver].discard(claim.id)
        for leaver in self._held_by.pop(claim.id, ()):
            del self.holder[leaver]

    def begin(self, claim: Claim) -> None:
        """The claim has a hold from now on."""
        self.for_nobody -= self._held_by.get(claim.id, set())

    def end(self, claim: Claim) -> None:
        """The claim has no hold, for a while or for good."""
        self.for_nobody |= self._held_by.get(claim.id, set())

    def of(self, claim: Claim) -> list[Claim]:
        """Those who leave so that the claim can start."""
        return [self.leaving[leaver] for leaver in sorted(self._held_by.get(claim.id, ()))]

    def nearest(self, claim: Claim, among: Collection[ClaimId] | None = None) -> Iterator[Claim]:
        """Everyone who leaves (`among` these), in the order in which the claim may count on them: its own, then those who
        leave for nobody, then the others; each by the time it is gone."""
        mine = self._held_by.get(claim.id, set()) | self._told_for.get(claim.id, set())
        leaving = self.leaving.keys() if among is None else self.leaving.keys() & among
        yield from self._in_turn(leaving & mine)
        nobodys = (leaving & self.for_nobody) - mine
        yield from self._in_turn(nobodys)
        if among is not None:
            yield from self._in_turn(leaving - mine - nobodys)
            return
        for _, leaver in self._line:
            if leaver not in mine and leaver not in nobodys:
                yield self.leaving[leaver]

    def _in_turn(self, leavers: Collection[ClaimId]) -> list[Claim]:
        return sorted((self.leaving[leaver] for leaver in leavers), key=self._turn)

"""Victims for a claim inside its guarantee, where borrowed capacity can come back whole: the everyday case, quickly.

While every lender's borrower stays at or above its own guarantee, a set costs its priority ceiling, its lost work, its
number and its surplus, whoever the claims belong to. So it is enough to look at the cheapest claims of each size and
priority, over all departments. Only when the best of those would take more from one department than it borrows – or
when there is no such set – is the exact search over departments needed (exact.py).

Claims are kept in order between takers. A claim that does not qualify is put aside with its department until that
department's usage has moved.
"""

from bisect import insort
from collections.abc import Iterable

from quotas.engine.ledger import Ledger
from quotas.engine.types import Claim, ClaimId, DepartmentId

Offer = tuple[int, ClaimId, Claim]
"""(lost work, id, the claim); no two are the same, so they sort by cost"""
Value = tuple[int, int, int, tuple[ClaimId, ...]]
"""(lost work, how many, units, which)"""


class Recallable:
    """The claims of `offers` that borrow, by priority and size, cheapest first. `holding` says who still runs."""

    def __init__(
        self, ledger: Ledger, holding: dict[DepartmentId, dict[ClaimId, Claim]], offers: Iterable[Offer]
    ) -> None:
        self._ledger, self._holding = ledger, holding
        self._moved = ledger.watch()
        self._shelves: dict[int, dict[int, list[Offer]]] = {}
        self._aside: dict[DepartmentId, list[Offer]] = {}
        for offer in sorted(offers):
            self._shelf(offer[2]).append(offer)
        self._shelves = dict(sorted(self._shelves.items()))

    def best_set(self, need: int, below: int | None) -> tuple[Claim, ...] | None:
        """The best claims of priority less than `below` that give `need` units and leave every department what it is
        promised. None when that is not known."""
        self._look_again()
        sizes: dict[int, list[Offer]] = {}
        for priority, shelves in self._shelves.items():
            if below is not None and priority >= below:
                return None
            for size, shelf in shelves.items():
                many = -(-need // size)
                sizes[size] = sorted(sizes.get(size, []) + self._cheapest(size, shelf, many))[:many]
            if sum(size * len(offers) for size, offers in sizes.items()) >= need:
                claims = _cheapest_sum(sizes, need)
                return claims if self._borrowed(claims) else None
        return None

    def _shelf(self, claim: Claim) -> list[Offer]:
        return self._shelves.setdefault(claim.priority, {}).setdefault(claim.units, [])

    def _spare(self, department: DepartmentId) -> int:
        account = self._ledger[department]
        return account.usage - account.guaranteed

    def _cheapest(self, size: int, shelf: list[Offer], many: int) -> list[Offer]:
        """The first offers on a shelf that qualify; those before them that do not are put aside."""
        index = 0
        while index < min(many, len(shelf)):
            claim = shelf[index][2]
            if claim.id in self._holding[claim.department] and self._spare(claim.department) >= size:
                index += 1
            else:
                self._aside.setdefault(claim.department, []).append(shelf.pop(index))
        return shelf[:many]

    def _look_again(self) -> None:
        """Put back what was set aside of departments whose usage has moved since."""
        for department in self._moved:
            for offer in self._aside.pop(department, ()):
                insort(self._shelf(offer[2]), offer)
        self._moved.clear()

    def _borrowed(self, claims: Iterable[Claim]) -> bool:
        """Whether no department would fall below its guarantee without the claims."""
        taken: dict[DepartmentId, int] = {}
        for claim in claims:
            taken[claim.department] = taken.get(claim.department, 0) + claim.units
        return all(units <= self._spare(department) for department, units in taken.items())


def _cheapest_sum(sizes: dict[int, list[Offer]], need: int) -> tuple[Claim, ...]:
    """The claims that give at least `need` together at the least cost, by a table of what every sum costs."""
    table: dict[int, Value] = {0: (0, 0, 0, ())}
    for size, offers in sizes.items():
        for given, (lost, count, units, ids) in list(table.items()):
            for more, id, _ in offers[: -(-(need - given) // size)]:
                lost, count, units, ids = lost + more, count + 1, units + size, tuple(sorted((*ids, id)))
                value, state = (lost, count, units, ids), min(units, need)
                if state not in table or value < table[state]:
                    table[state] = value
    claims = {id: claim for offers in sizes.values() for _, id, claim in offers}
    return tuple(claims[id] for id in table[need][3])

"""Victims for a claim inside its guarantee, where borrowed capacity can come back whole: the everyday case, quickly.

While every lender's borrower stays at or above its own guarantee, a set costs its priority ceiling, its lost work, its
number and its surplus, whoever the claims belong to. So it is enough to look at the cheapest claims of each size and
priority, over all departments. Only when the best of those would take more from one department than it borrows – or
when there is no such set – is the exact search over departments needed (exact.py).

Claims are kept in order between takers. A claim that does not qualify is put aside with its department until that
department's usage has moved.
"""

from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator
from itertools import accumulate, islice

from quotas.engine.books import Books
from quotas.engine.permission import Taker, stoppable
from quotas.engine.quota_tree import Ledger
from quotas.engine.types import Claim, ClaimId, DepartmentId

Offer = tuple[int, ClaimId, Claim]
"""(lost work, id, the claim); no two are the same, so they sort by cost"""
Value = tuple[int, int, int, tuple[ClaimId, ...]]
"""(lost work, how many, units, which)"""
NOTHING = (1, 0)
"""(lost work, size) of what gives nothing: anything loses less for its size"""


def recallable_for(books: Books, taker: Taker) -> "Recallable":
    """What can come back to the taker: the same for all takers of a pass over a flat pool that are as patient."""
    if taker.patient not in books.recallable:
        offers = (
            (books.lost_work(claim), claim.id, claim)
            for claims in books.holding.values()
            for claim in claims.values()
            if claim.units and stoppable(books, taker.patient, claim)
        )
        books.recallable[taker.patient] = Recallable(books.ledger, books.holding, offers)
    return books.recallable[taker.patient]  # type: ignore[no-any-return]


def priorities_below(taker: Taker) -> int | None:
    """The priority that a borrowed claim must be below to be called back for the taker; None: any will do."""
    return None if taker.policy.reclaim == "any" else taker.claim.priority


class Recallable:
    """The claims of `offers` that borrow, by priority and size, cheapest first. `holding` says who still runs."""

    def __init__(
        self, ledger: Ledger, holding: dict[DepartmentId, dict[ClaimId, Claim]], offers: Iterable[Offer]
    ) -> None:
        self._ledger, self._holding = ledger, holding
        self._moved = ledger.watch()
        self._shelves: dict[int, dict[int, list[Offer]]] = {}
        self._aside: dict[DepartmentId, list[Offer]] = {}
        for offer in offers:
            self._shelf(offer[2]).append(offer)
        self._shelves = dict(sorted(self._shelves.items()))
        shelves = [(size, shelf) for sizes in self._shelves.values() for size, shelf in sizes.items()]
        for _, shelf in shelves:
            shelf.sort()
        self._least = 1 if ledger.keepers else min((size for size, _ in shelves), default=1)

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
                cheapest = islice(self._qualifying(size, shelf), many)
                sizes[size] = sorted([*sizes.get(size, ()), *cheapest])[:many]
            if sum(size * len(offers) for size, offers in sizes.items()) >= need:
                claims = cheapest_sum(sizes, need)
                return claims if self._borrowed(claims) else None
        return None

    def worth_asking(self, need: int, below: int | None, rivals: Container[DepartmentId]) -> set[DepartmentId]:
        """The departments, of the `rivals`, that the best set can take from: of each size and priority those of the cheapest
        claims, as many as one set can take from. Whoever takes a dearer claim could as well take a cheaper one of a department
        that is still untouched. Only where these are too few, also those that would fall below their guarantee."""
        self._look_again()
        many = max(1, -(-need // self._least))
        asked: set[DepartmentId] = set()
        for priority, shelves in self._shelves.items():
            if below is not None and priority >= below:
                break
            for size, shelf in shelves.items():
                cheapest: set[DepartmentId] = set()
                for department in (claim.department for _, _, claim in self._qualifying(size, shelf)):
                    if department in rivals:
                        cheapest.add(department)
                    if len(cheapest) == many:
                        break
                else:
                    cheapest |= {department for department in self._aside if self._spare(department) > 0}
                asked |= cheapest
        return asked

    def _shelf(self, claim: Claim) -> list[Offer]:
        return self._shelves.setdefault(claim.priority, {}).setdefault(claim.units, [])

    def _spare(self, department: DepartmentId) -> int:
        account = self._ledger[department]
        return account.usage - account.guaranteed

    def _qualifying(self, size: int, shelf: list[Offer]) -> Iterator[Offer]:
        """The offers on a shelf whose departments keep what they are promised without them; the others are put aside."""
        index = 0
        while index < len(shelf):
            claim = shelf[index][2]
            if claim.id in self._holding[claim.department] and self._spare(claim.department) >= size:
                yield shelf[index]
                index += 1
            else:
                self._aside.setdefault(claim.department, []).append(shelf.pop(index))

    def _look_again(self) -> None:
        """Put back what qualifies again of departments whose usage has moved since."""
        for department in [department for department in self._moved if department in self._aside]:
            spare, holding, aside = self._spare(department), self._holding[department], self._aside[department]
            back = [offer for offer in aside if offer[2].units <= spare and offer[1] in holding]
            for offer in back:
                aside.remove(offer)
                insort(self._shelf(offer[2]), offer)
        self._moved.clear()

    def _borrowed(self, claims: Iterable[Claim]) -> bool:
        """Whether no department would fall below its guarantee without the claims."""
        taken: dict[DepartmentId, int] = {}
        for claim in claims:
            taken[claim.department] = taken.get(claim.department, 0) + claim.units
        return all(units <= self._spare(department) for department, units in taken.items())


def cheapest_sum(sizes: dict[int, list[Offer]], need: int) -> tuple[Claim, ...]:
    """The claims that give at least `need` together at the least cost, by a table of what every sum costs."""
    if need <= min(sizes):  # one is enough
        _, size, id, claim = min(
            (lost, size, id, claim) for size, offers in sizes.items() for lost, id, claim in offers[:1]
        )
        return (claim,)
    table: dict[int, Value] = {0: (0, 0, 0, ())}
    worth = [*_worth_trying(sizes, need)]
    enough = _lost_at_most([offer for _, offers in worth for offer in offers], need)
    left = [*accumulate([NOTHING, *((offers[0][0], size) for size, offers in reversed(worth))], _cheaper_unit)][::-1]
    for (size, offers), cheapest in zip(worth, left[1:], strict=True):
        for given, (lost, count, units, ids) in list(table.items()):
            for more, id, _ in offers[: -(-(need - given) // size)]:
                lost, count, units, ids = lost + more, count + 1, units + size, (*ids, id)
                value, state = (lost, count, units, ids), min(units, need)
                if state not in table or _is_better(value, table[state]):
                    table[state] = value
        table = _undominated(table, need, enough, cheapest)
    claims = {id: claim for offers in sizes.values() for _, id, claim in offers}
    return tuple(claims[id] for id in sorted(table[need][3]))


def _is_better(one: Value, other: Value) -> bool:
    return one[:3] < other[:3] or (one[:3] == other[:3] and sorted(one[3]) < sorted(other[3]))


def _lost_at_most(offers: list[Offer], need: int) -> int:
    """What some sum that is enough loses: of those that lose least for their size."""
    lost = 0
    for offer in sorted(offers, key=lambda offer: (offer[0] / offer[2].units, offer[1])):
        if need > 0:
            lost, need = lost + offer[0], need - offer[2].units
    return lost


def _cheaper_unit(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Which of two (lost work, size) loses less for its size."""
    return one if one[0] * other[1] <= other[0] * one[1] else other


def _worth_trying(sizes: dict[int, list[Offer]], need: int) -> Iterator[tuple[int, list[Offer]]]:
    """Of each size the offers that can be in the best sum: fewer that lose less and are no smaller than would be enough."""
    losses: list[int] = []
    for size in sorted(sizes, reverse=True):
        many = -(-need // size)
        offers = [offer for offer in sizes[size] if bisect_left(losses, offer[0]) < many]
        for lost, _, _ in offers:
            insort(losses, lost)
        if offers:
            yield size, offers


def _undominated(table: dict[int, Value], need: int, enough: int, cheapest: tuple[int, int]) -> dict[int, Value]:
    """The table without sums that are less than another and cost more, whatever is added to them, and without those that lose
    more than `enough` would even if all they lack came from the `cheapest` that is left."""
    lost, size = cheapest
    kept: dict[int, Value] = {}
    least: tuple[int, int] | None = None
    for given, value in sorted(table.items(), reverse=True):
        if (least is None or value[:2] <= least) and size * (value[0] - enough) + (need - given) * lost <= 0:
            kept[given], least = value, value[:2]
    return kept

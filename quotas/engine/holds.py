"""Holds: what is kept free for a claim that cannot start yet, and who may pass.

(a) A claim inside its guarantee holds what it still lacks. (b) A claim that would borrow and has waited longer than
`starvation_after` holds too, one in each pool, never against claims inside their guarantee. A hold names places and
exists only while the claim's limits and the present capacity could satisfy it.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from quotas.engine.books import Books
from quotas.engine.rights import Hold
from quotas.engine.room import Room, emptiest_host, find_places, free_units
from quotas.engine.space import Places, Space
from quotas.engine.types import Claim, ClaimId, Decision, Node
from quotas.engine.units import ends_at

Attempt = Callable[[Claim], Decision | None]


class Holds:
    """The holds of a pass over one pool, in the order in which they were made."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._made: list[Hold] = []
        self._starving: Hold | None = None
        self._nodes = [host.node for host in books.hosts.values()]
        self._ends: list[tuple[int, ClaimId]] = sorted(
            (end, claim.id)
            for claims in books.holding.values()
            for claim in claims.values()
            if (end := ends_at(claim)) is not None
        )

    def count_on_end(self, claim: Claim) -> None:
        """The claim starts now: who waits may wait for its end."""
        if claim.max_runtime is not None:
            insort(self._ends, (self._books.now + claim.max_runtime, claim.id))

    def forget_end(self, claim: Claim) -> None:
        """It does not start after all."""
        self._ends = [(end, id) for end, id in self._ends if id != claim.id]

    def passing(self, claim: Claim, attempt: Attempt) -> Decision | None:
        """Attempt to start the claim past the holds it may pass: it is over before their holders could start, or they
        are a borrower's and it is inside its guarantee."""
        holds = self._outranked(claim)
        if claim.max_runtime is not None:
            end = self._books.now + claim.max_runtime
            early = [hold for hold in self._made if hold.start is not None and end <= hold.start]
            holds = [*early, *(hold for hold in holds if hold not in early)]
        return self._without(holds, claim, attempt)

    def outranking(self, claim: Claim, attempt: Attempt) -> Decision | None:
        """Attempt to find the claim a place regardless of borrowers' holds, if it is inside its guarantee."""
        return self._without(self._outranked(claim), claim, attempt)

    def _outranked(self, claim: Claim) -> list[Hold]:
        return [self._starving] if self._starving is not None and self._books.inside(claim) else []

    def _without(self, holds: list[Hold], claim: Claim, attempt: Attempt) -> Decision | None:
        """The attempt as if the holds were not there; they are put back after it."""
        if not holds:
            return attempt(claim)
        for hold in holds:
            self._books.lift(hold)
        decision = attempt(claim)
        for hold in holds:
            self._books.put(hold)
        if decision is not None and any(self._lost_its_right(hold) for hold in holds):
            self._books.openings += 1
        return decision

    def _lost_its_right(self, hold: Hold) -> bool:
        """Whether the hold of a claim inside its guarantee, passed by one of its own department, is no longer inside."""
        account = self._books.ledger[hold.claim.department]
        return hold.charged > 0 and account.own_left < 0

    def clear(self) -> None:
        """Take all holds out for good."""
        for hold in self._made:
            self._books.lift(hold)
        self._made.clear()
        self._starving = None

    def make(self, claim: Claim, starving: bool) -> None:
        """Hold for the claim what it lacks, where it could start soonest."""
        if starving and (self._starving is not None or not self._within_limits(claim)):
            return
        if not self._possible(claim):
            return
        places, start = self._soonest(claim)
        later = self._books.need(claim, places)
        hold = Hold(claim, 0 if starving else self._books.asked(claim), later, start=start, starving=starving)
        self._books.put(hold)
        self._made.append(hold)
        self._starving = hold if starving else self._starving

    def _within_limits(self, claim: Claim) -> bool:
        """Else what its department uses keeps it from starting, not others: they need not leave anything idle for it."""
        return self._books.ledger.within_limits(claim.department, self._books.asked(claim))

    def _possible(self, claim: Claim) -> bool:
        """Whether the claim's limits and the present capacity could satisfy it."""
        books = self._books
        ceiling = books.ledger[claim.department].present_ceiling
        return books.asked(claim) <= ceiling and books.fits_when_empty(claim)

    def _soonest(self, claim: Claim) -> tuple[Places, int | None]:
        """Where and when the claim could start as running claims reach their maximum runtime; the time is None when
        that depends on one that has none."""
        books = self._books
        low, high = 0, len(self._ends)
        best = self._places_after(claim, high)
        if best is None:
            return self._anywhere(claim), None
        while low < high:
            middle = (low + high) // 2
            places = self._places_after(claim, middle)
            if places is None:
                low = middle + 1
            else:
                best, high = places, middle
        return best, max(books.now, self._ends[low - 1][0]) if low else books.now

    def _places_after(self, claim: Claim, count: int) -> Places | None:
        """Places once the first `count` running claims with an end are gone; what those give who are told is free already."""
        books = self._books
        ended = [id for _, id in self._ends[:count] if id not in books.told]
        with books.free_later.also(books.vectors[id] for id in ended):
            return books.places(claim, books.free_later)

    def _anywhere(self, claim: Claim) -> Places:
        """On the nodes where most is free already, as few as will do, when nobody knows what ends first."""
        books = self._books
        emptiest = None if claim.is_recall else emptiest_host(books.pool, books.free_later)
        if emptiest is None:
            return ()
        places = self._places_on([emptiest.node], claim)  # as a rule that is enough
        return self._on_free_cards(places or self._on_few(claim))

    def _on_few(self, claim: Claim) -> Places:
        """The same, where one node is not enough."""
        free = free_units(self._books.pool, self._books.free_later)
        nodes = [self._nodes[turn] for turn in sorted(self._by_name, key=free.__getitem__, reverse=True)]
        most = 1
        while (places := self._places_on(nodes[:most], claim)) is None and most < len(nodes):
            most = min(2 * most, len(nodes))
        few = bisect_left(range(most), True, most // 2 + 1, key=lambda n: self._places_on(nodes[:n], claim) is not None)
        return (places if few == most else self._places_on(nodes[:few], claim)) or ()

    @cached_property
    def _by_name(self) -> list[int]:
        """The pool's nodes by name, each by its turn in the pool's order."""
        return sorted(range(len(self._nodes)), key=lambda turn: self._nodes[turn].name)

    def _places_on(self, nodes: list[Node], claim: Claim) -> Places | None:
        """Places on these nodes alone, were they empty."""
        pool = replace(self._books.pool, nodes=tuple(nodes))
        return find_places(claim, pool, Room(Space((pool,))))

    def _on_free_cards(self, places: Places) -> Places:
        """The same nodes, on cards that are free already rather than on busy ones; only whole cards can be swapped."""
        books, pool = self._books, self._books.pool
        left = {host.name: books.free_later.row[host.stretch] for host in books.in_order({p.node for p in places})}
        cards = {
            name: sorted(range(len(units)), key=lambda card: -units[card])
            for name, units in left.items()
            if pool.mig is None and all(card.units == 1 for card in books.hosts[name].node.cards)
        }
        return tuple(
            replace(placed, cards=tuple(sorted(cards[placed.node].pop(0) for _ in placed.cards)))
            if placed.node in cards
            else placed
            for placed in places
        )

"""What claims on a node could give to who needs a place there, thing by thing, and what the cheapest of them cost.

A node is asked hundreds of times in a pass, and between two questions mostly one of its claims has changed. So only what
that one gives is entered anew, and each pile remembers what was asked of it until it changes.
"""

from bisect import insort
from collections.abc import Iterable

from quotas.engine.books import Books
from quotas.engine.bounds import Gift, Offer, cheapest
from quotas.engine.permission import stoppable
from quotas.engine.ranking import Rank
from quotas.engine.space import Host, Slot
from quotas.engine.types import Claim, ClaimId


class Pile:
    """What several claims give of something: the `gifts` in the order of priority, and how much is `given` in all."""

    __slots__ = ("_ranks", "gifts", "given")

    def __init__(self, gifts: Iterable[Gift] = ()) -> None:
        self.gifts = sorted(gifts)
        self.given = sum([amount for _, amount in self.gifts])
        self._ranks: dict[tuple[int, bool, bool], Rank | None] = {}

    def change(self, amount: int, old: Offer | None, new: Offer | None) -> None:
        """A claim that gives the amount comes, goes or costs something else."""
        if old is not None:
            self.gifts.remove((old, amount))
            self.given -= amount
        if new is not None:
            insort(self.gifts, (new, amount))
            self.given += amount
        self._ranks.clear()

    def rank(self, need: int, by_units: bool, one_may_do: bool) -> Rank | None:
        """What any set costs at least that gives the need, None if there is none; if one claim may do and none costs less
        than one, its whole cost."""
        if one_may_do and len(self.gifts) == 1:  # as most are
            ((priority, short, lost, units, id), amount) = self.gifts[0]
            return (0, short, priority, lost, 1, units, id) if amount >= need else None
        question = need, by_units, one_may_do
        if question not in self._ranks:
            self._ranks[question] = self._ranked(need, by_units, one_may_do)
        return self._ranks[question]

    def _ranked(self, need: int, by_units: bool, one_may_do: bool) -> Rank | None:
        least = cheapest(self.gifts, need, by_units)
        if least is None or not one_may_do:
            return least
        enough = [(0, o[1], o[0], o[2], 1, o[3], o[4]) for o, amount in self.gifts if amount >= need]
        one = min(enough, default=least)
        return one if one[:4] == least else least


NOTHING = Pile()


def together(piles: Iterable[Pile]) -> Pile:
    """What each claim gives of all of them."""
    sums: dict[Offer, int] = {}
    for offer, amount in (gift for pile in piles for gift in pile.gifts):
        sums[offer] = sums.get(offer, 0) + amount
    return Pile(sums.items())


class Here:
    """What claims on a node could give: each of them, and by slot (space.py) the `pile` of all."""

    __slots__ = ("_least", "_piles", "_vectors", "cards", "offers", "seen")

    def __init__(self, books: Books, host: Host, offers: Iterable[Offer]) -> None:
        self.offers = {offer[4]: offer for offer in offers}
        self.seen = 0
        self._vectors = books.vectors
        self.cards = [Pile(gifts) for gifts in self._by_card(host)]
        self._piles: dict[Slot, Pile] = dict(zip(host.cards, self.cards, strict=True))
        self._least: tuple[int, int, int] | None = None

    def _by_card(self, host: Host) -> list[list[Gift]]:
        """What they give of each card."""
        first, gifts = host.cards.start, [list[Gift]() for _ in host.cards]
        for id, offer in self.offers.items():
            for slot, amount in self._vectors[id].items():
                if slot in host.cards:
                    gifts[slot - first].append((offer, amount))
        return gifts

    @property
    def least(self) -> tuple[int, int, int] | None:
        """What every set costs at least: (units below the guarantee, priority, lost work) of the cheapest alone."""
        if self._least is None:
            alone = [(short, priority, lost) for priority, short, lost, _, _ in self.offers.values()]
            self._least = min(alone, default=None)
        return self._least

    @property
    def least_units(self) -> int:
        """The fewest units that every set has."""
        return min([offer[3] for offer in self.offers.values()], default=0)

    def pile(self, slot: Slot) -> Pile:
        """What all of them give of it."""
        if slot not in self._piles:
            given = [(offer, self._vectors[id].get(slot)) for id, offer in self.offers.items()]
            self._piles[slot] = Pile([(offer, amount) for offer, amount in given if amount is not None])
        return self._piles[slot]

    def change(self, id: ClaimId, new: Offer | None) -> None:
        """A claim comes, goes or costs something else."""
        old = self.offers.pop(id, None)
        if new is not None:
            self.offers[id] = new
        if old != new:
            for slot, amount in self._vectors[id].items():
                if slot in self._piles:
                    self._piles[slot].change(amount, old, new)
            self._least = None


def offer_of(books: Books, claim: Claim) -> Offer:
    """What the claim's leaving costs, were it the only one taken from its department."""
    account = books.ledger.accounts[claim.department]
    short = max(0, claim.units - account.usage + account.guaranteed)
    return claim.priority, short, books.lost_work(claim), claim.units, claim.id


class Offered:
    """What may come back of claims, node by node: of all, or of those of a priority `below`; remembered until they stir.
    `cheaper` has who has come to cost less, and where, in turn."""

    def __init__(self, books: Books, patient: bool, below: int | None) -> None:
        self._books, self._patient, self._below = books, patient, below
        self._here: dict[str, Here] = {}
        self._seen = len(books.stirs.cheaper)
        self.cheaper: list[tuple[str, Offer]] = []

    def on(self, host: Host) -> Here:
        """What claims on the node could give."""
        here, stirs = self._here.get(host.name), self._books.stirs.on(host.name)
        if here is None:
            found = map(self._offer, self._books.on_node.get(host.name, {}).values())
            here = self._here[host.name] = Here(self._books, host, [offer for offer in found if offer is not None])
        elif here.seen < len(stirs):
            claims = self._books.on_node[host.name]
            for id in {*stirs[here.seen :]}:
                here.change(id, self._offer(claims[id]) if id in claims else None)
        here.seen = len(stirs)
        return here

    def settle(self) -> None:
        """Note who has come to cost less since this was asked last."""
        cheaper, on_node = self._books.stirs.cheaper, self._books.on_node
        for name, id in {*cheaper[self._seen :]} if self._seen < len(cheaper) else ():
            claim = on_node[name].get(id)
            offer = None if claim is None else self._offer(claim)
            if offer is not None:
                self.cheaper.append((name, offer))
        self._seen = len(cheaper)

    def _offer(self, claim: Claim) -> Offer | None:
        """What its leaving costs, if it may be taken and its department borrows."""
        if (self._below is not None and claim.priority >= self._below) or not stoppable(
            self._books, self._patient, claim
        ):
            return None
        offer = offer_of(self._books, claim)
        return offer if offer[1] < claim.units else None


def offered(books: Books, patient: bool, below: int | None) -> Offered:
    """What may come back, as the books are now."""
    books.stirs.settle()
    known: dict[tuple[bool, int | None], Offered] = books.offered
    if (patient, below) not in known:
        known[patient, below] = Offered(books, patient, below)
    known[patient, below].settle()
    return known[patient, below]

"""What any victim set at a place costs at least: what places and nodes are put in order by, so that most are never looked
at. A bound is the beginning of a cost (victims.py). It takes each claim as if it were the only one taken from its department.
"""

from collections.abc import Container, Mapping
from functools import reduce
from operator import add

from quotas.engine.books import Books
from quotas.engine.permission import Taker
from quotas.engine.problem import need_of
from quotas.engine.shares import NO_CHANGE, Change, lowered
from quotas.engine.types import Claim, ClaimId

Bound = tuple[object, ...]
"""The beginning of a cost that no set at a place is below."""
Offer = tuple[int, int, int, int, ClaimId]
"""(priority, units below the guarantee were it the only one taken, lost work, units, id)"""
Gift = tuple[Offer, int]
"""(a claim, how much it gives of something)"""
Least = tuple[int, int, int, int]
"""The least (units, where they come first, units below guarantees, priority ceiling, lost work)."""


def bound(taker: Taker, gifts: list[Gift], need: int, mine: Container[ClaimId]) -> Bound:
    """The least cost of gifts that cover the need: of others' claims, and of the taker's own as far as they come before."""
    if taker.inside:
        gifts, _ = _others(taker, gifts, mine)
    elif mine:
        gifts = [(_for_nothing(offer) if offer[4] in mine else offer, amount) for offer, amount in gifts]
    least = cheapest(gifts, need, by_units=not taker.inside)
    return (1,) if least is None else (least[0], NO_CHANGE, *least[1:])


def _for_nothing(own: Offer) -> Offer:
    """What the taker's own claim costs: no units of others, nor does it matter how far its department falls."""
    priority, _, lost, _, id = own
    return priority, 0, lost, 0, id


def fair_bound(
    books: Books,
    taker: Taker,
    here: Mapping[ClaimId, Claim],
    gifts: list[Gift],
    need: int,
    mine: Container[ClaimId],
    wide: bool,
) -> Bound:
    """The same with fair sharing, where the more go the better it looks: if more may have to go than cover the need
    (`wide`), as if all did. Who would borrow takes the fewest units of others, and so no more than that in any case."""
    theirs, given = _others(taker, gifts, mine)
    changes = [(offer[3], alone(books, here[offer[4]]), amount) for offer, amount in theirs]
    least = _most_changed(changes, need - given, by_units=not taker.inside)
    if least is None:
        return (1,)
    if taker.inside and wide:
        return 0, reduce(add, (change for _, change, _ in changes), NO_CHANGE)
    return least[:1] if given else least


def _others(taker: Taker, gifts: list[Gift], mine: Container[ClaimId]) -> tuple[list[Gift], int]:
    """The gifts of others, and what the taker's own would give of it before them: own claims go last for who is inside."""
    if not mine:
        return gifts, 0
    theirs = [gift for gift in gifts if gift[0][4] not in mine]
    return theirs, 0 if taker.inside else sum(amount for offer, amount in gifts if offer[4] in mine)


def is_wide(books: Books, taker: Taker) -> bool:
    """Whether more may have to go than frees a place: units of the pool, or by right, that are not those of the place."""
    _, by_right, of_pool = need_of(books, taker, 0)
    return bool(books.ledger.keepers) or (max(by_right, of_pool) > 0 and (by_right > of_pool or books.some_recalls))


def alone(books: Books, claim: Claim) -> Change:
    """What shares change at most by the claim's leaving."""
    return lowered(books.ledger.accounts[claim.department], books.standing.charges[claim.id])


def _most_changed(gifts: list[tuple[int, Change, int]], need: int, by_units: bool) -> tuple[int, Change] | None:
    """The least (units, change of shares) of (units, change, amount) that cover the need, none of them in vain."""
    if need <= 0:
        return 0, NO_CHANGE
    table: dict[int, tuple[int, Change]] = {0: (0, NO_CHANGE)}
    for units, change, given in gifts:
        for amount, old in list(table.items()):
            if amount < need:
                value = (old[0] + units if by_units else 0, old[1] + change)
                state = min(amount + given, need)
                if state not in table or value < table[state]:
                    table[state] = value
    return table.get(need)


def cheapest(gifts: list[Gift], need: int, by_units: bool) -> Least | None:
    """The least that gifts which cover a need (above 0) cost. They come by priority, so the last of a set is its ceiling."""
    amounts = [given for _, given in gifts]
    if need > sum(amounts) - min(amounts, default=0):  # without one of them it is not covered
        if need > sum(amounts):
            return None
        every = all_of([offer for offer, _ in gifts])
        return every if by_units else (0, *every[1:])
    found: list[Least] = []
    table: dict[int, tuple[int, int, int]] = {0: (0, 0, 0)}
    for (priority, short, lost, units, _), given in gifts:
        for amount, old in list(table.items()):
            if amount < need:
                value = (old[0] + units if by_units else 0, old[1] + short, old[2] + lost)
                state = amount + given if amount + given < need else need
                if state not in table or value < table[state]:
                    table[state] = value
                    if state == need:
                        found.append((value[0], value[1], priority, value[2]))
    return min(found, default=None)


def all_of(offers: list[Offer]) -> Least:
    """What it costs if all go. They come by priority."""
    units, short = sum([offer[3] for offer in offers]), sum([offer[1] for offer in offers])
    return units, short, offers[-1][0], sum([offer[2] for offer in offers])

"""Which of the permitted victim sets: the order of preference, and where to look for the best.

A taker that goes to one place (a pool that only counts, or one node or card) gets the exact optimum of each place from
exact.py and the best of them all. Trees and gangs are searched, see search.py.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from quotas.engine.books import Books
from quotas.engine.exact import Goods, Problem, best_set, need_of
from quotas.engine.ledger import Share, share
from quotas.engine.permission import (
    Fairness,
    Taker,
    candidates_of,
    lending_back,
    own_candidates,
    permitted,
    stoppable,
    taker_of,
)
from quotas.engine.placement import Key, Places
from quotas.engine.recallable import Recallable
from quotas.engine.search import makes_room, search
from quotas.engine.types import Claim, DepartmentId, Node
from quotas.engine.units import lost_work

Cost = tuple[int, tuple[tuple[int, Fraction], ...], int, int, int, int, int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Victims, and the places their leaving makes for the taker."""

    victims: tuple[Claim, ...]
    places: Places


def choose(books: Books, claim: Claim, patient: bool = False) -> Chosen | None:
    """The victims for a claim, or None when no permitted set makes it fit."""
    taker = taker_of(books, claim, patient)
    borrowed = _borrowed(books, taker)
    if borrowed is not None:
        return Chosen(tuple(sorted(borrowed, key=lambda victim: victim.id)), ())
    own = own_candidates(books, taker)
    if own and not taker.inside:  # who would borrow spares others if its own claims suffice
        chosen = _best(books, taker, own, [], Fairness.BEFORE)
        if chosen is not None:
            return chosen
    rivals = lending_back(books, taker) if _may_take(books, taker, own) else []
    if not rivals and not (taker.inside and own):
        return None
    for fairness in _fairness(books, taker):
        chosen = _best(books, taker, own, rivals, fairness)
        if chosen is not None:
            return chosen
    return None


def _fairness(books: Books, taker: Taker) -> Iterable[Fairness]:
    """The ways to look at shares, in the order in which they are tried."""
    return Fairness if books.settings.fair_sharing and not taker.inside else (Fairness.BEFORE,)


def _may_take(books: Books, taker: Taker, own: list[Claim]) -> bool:
    """Whether the taker may have any right to others' claims, at best once all its own are stopped."""
    if taker.inside or books.settings.fair_sharing or taker.policy.borrow_preempt is not None:
        return True
    usage_after = taker.account.usage + taker.asked - sum(books.standing.charges[claim.id] for claim in own)
    return usage_after <= taker.account.guaranteed if books.ledger.flat else bool(own)


def _borrowed(books: Books, taker: Taker) -> tuple[Claim, ...] | None:
    """The victims, where the everyday case is enough: a flat pool that counts, a taker inside its guarantee."""
    counted = books.pool.nodes is None or taker.claim.is_recall
    never = taker.policy.reclaim == "never" or books.settings.fair_sharing
    if never or not (taker.inside and counted and books.ledger.flat):
        return None
    if taker.patient not in books.recallable:
        offers = (
            (lost_work(claim, books.now, books.settings), claim.id, claim)
            for claims in books.holding.values()
            for claim in claims.values()
            if claim.units and stoppable(books, taker.patient, claim)
        )
        books.recallable[taker.patient] = Recallable(books.ledger, books.holding, offers)
    need = max(need_of(books, taker, taker.asked - books.free_later["pool", books.pool.id]))
    below = None if taker.policy.reclaim == "any" else taker.claim.priority
    return books.recallable[taker.patient].best_set(need, below) if need > 0 else None


def still_needed(books: Books, claim: Claim, leaving: Iterable[Claim]) -> Chosen | None:
    """Of those who leave for the claim, the ones it still needs; None when it would not fit, or not by right, if all went."""
    told = tuple(leaving)
    books.stay(told)
    try:
        taker = taker_of(books, claim)
        found = (_settled(books, taker, told, fairness) for fairness in _fairness(books, taker))
        return next((chosen for chosen in found if chosen is not None), None)
    finally:
        books.go(told)


def _best(
    books: Books, taker: Taker, own: list[Claim], rivals: list[DepartmentId], fairness: Fairness
) -> Chosen | None:
    counted = books.pool.nodes is None
    if books.ledger.flat and (counted or taker.claim.pods <= 1):
        found: list[Chosen] = []
        for gives, lacking in _sites(books, taker, own, rivals):
            problem = Problem(books, taker, own, rivals, gives, need_of(books, taker, lacking), fairness)
            chosen = _settled(books, taker, best_set(problem), fairness)
            if chosen is not None:
                found.append(chosen)
        if found:
            return min(found, key=lambda chosen: cost(books, taker, chosen.victims))
    if counted and books.ledger.flat:
        return None
    claims = own + [claim for department in rivals for claim in candidates_of(books, taker, department)]
    victims = search(books, taker, claims, fairness, lambda victims: cost(books, taker, victims))
    return _settled(books, taker, victims, fairness)


def cost(books: Books, taker: Taker, victims: Iterable[Claim]) -> Cost:
    """What a victim set costs, in the order in which sets are compared; the least wins."""
    victims = tuple(victims)
    taken: dict[str, int] = {}
    for victim in victims:
        taken[victim.department] = taken.get(victim.department, 0) + victim.units
    mine = taken.pop(taker.account.id, 0)
    left: list[Share] = []
    below = 0
    for department, units in taken.items():
        account = books.ledger[DepartmentId(department)]
        below += max(0, account.guaranteed - (account.usage - units))
    if books.settings.fair_sharing:
        accounts = books.ledger.accounts.values()
        left = [share(a, a.usage - taken.get(a.id, 0)) for a in accounts if a is not taker.account and not a.children]
    return (
        mine if taker.inside else sum(taken.values()),
        tuple(sorted(left, reverse=True)),
        below,
        max((victim.priority for victim in victims), default=-(10**9)),
        sum(lost_work(victim, books.now, books.settings) for victim in victims),
        len(victims),
        sum(victim.units for victim in victims),
        tuple(sorted(victim.id for victim in victims)),
    )


# Fitting --------------------------------------------------------------------------------------------------------------


def _settled(books: Books, taker: Taker, victims: tuple[Claim, ...] | None, fairness: Fairness) -> Chosen | None:
    """The set without those who can be put back – dearest first – or None when it makes no room after all."""
    places = None if victims is None else makes_room(books, taker, victims)
    if victims is None or places is None:
        return None
    kept = list(victims)
    for victim in sorted(victims, key=lambda v: cost(books, taker, (v,)), reverse=True):
        rest = [other for other in kept if other is not victim]
        if permitted(books, taker, rest, fairness) or not permitted(books, taker, kept, fairness):
            room = makes_room(books, taker, rest)
            if room is not None:
                kept, places = rest, room
    if not permitted(books, taker, kept, fairness):
        return None
    return Chosen(tuple(sorted(kept, key=lambda victim: victim.id)), places)


# Places one pod may go to ---------------------------------------------------------------------------------------------


def _sites(
    books: Books, taker: Taker, own: list[Claim], rivals: list[DepartmentId]
) -> Iterator[tuple[Goods | None, int]]:
    """Every place the taker might go to: what each claim would give there (None: all it has), and how much is lacking.

    A pool without nodes is one place; else a node for whole cards, a card for a part of it, a node's instances of a
    profile. Freely cut cards have no such sum and are searched.
    """
    pool, claim = books.pool, taker.claim
    if pool.nodes is None or claim.is_recall:
        yield None, taker.asked - books.free_later["pool", pool.id]
        return
    on_node = _by_node(own + [c for department in rivals for c in candidates_of(books, taker, department)])
    for node in pool.nodes:
        for keys, amount in _site_keys(books, claim, node):
            lacking = amount - sum(books.free_later[key] for key in keys)
            gives = {c.id: sum(books.vectors[c.id].get(key, 0) for key in keys) for c in on_node.get(node.name, ())}
            if sum(gives.values()) >= lacking:
                yield gives, lacking


def _by_node(claims: list[Claim]) -> dict[str, list[Claim]]:
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        for node in dict.fromkeys(placed.node for placed in claim.placement or ()):
            found.setdefault(node, []).append(claim)
    return found


def _site_keys(books: Books, claim: Claim, node: Node) -> Iterator[tuple[list[Key], int]]:
    """The keys of the free vector that make up a place on the node, and how much of them the claim needs."""
    pool = books.pool
    if pool.mig is not None:
        if claim.profile in (node.instances or {}):
            yield [("instance", pool.id, node.name, claim.profile or "")], 1
        return
    cards: list[Key] = [("card", pool.id, node.name, index) for index in range(len(node.cards))]
    whole = max((card.units for card in node.cards), default=0)
    if whole == 1:
        yield cards, claim.units_per_pod
    elif claim.units_per_pod <= whole:
        yield from (([card], claim.units_per_pod) for card in cards)

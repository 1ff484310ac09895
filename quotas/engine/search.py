"""Victim sets where no exact method applies – trees of departments, gangs over several nodes: a search that can only
get better. Greedy then put back, from several starting orders; the best set of all wins."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from quotas.engine.books import Books
from quotas.engine.permission import Fairness, Taker, permitted
from quotas.engine.placement import Places
from quotas.engine.types import Claim
from quotas.engine.units import lost_work

Cost = Callable[[tuple[Claim, ...]], Any]


def search(books: Books, taker: Taker, claims: list[Claim], fairness: Fairness, cost: Cost) -> tuple[Claim, ...] | None:
    """The best set found, or None when no order of taking leads to one."""
    found = [
        victims
        for order in _orders(books, taker, claims)
        if (victims := _greedy(books, taker, order, fairness)) is not None
    ]
    return min(found, key=cost, default=None)


def _orders(books: Books, taker: Taker, claims: list[Claim]) -> Iterator[list[Claim]]:
    """Ways to go through the candidates: dearest last in the order of preference, by size, and newest first."""
    mine = taker.account.id

    def loss(claim: Claim) -> int:
        return lost_work(claim, books.now, books.settings)

    def others_first(claim: Claim) -> bool:
        return (claim.department == mine) == taker.inside

    yield sorted(claims, key=lambda c: (others_first(c), c.priority, loss(c), c.id))
    yield sorted(claims, key=lambda c: (others_first(c), c.priority, -c.units, loss(c), c.id))
    yield sorted(claims, key=lambda c: (others_first(c), c.priority, c.units, loss(c), c.id))
    yield sorted(claims, key=lambda c: (others_first(c), -_started(c), c.id))


def _started(claim: Claim) -> int:
    return claim.submitted_at if claim.started_at is None else claim.started_at


def _greedy(books: Books, taker: Taker, order: list[Claim], fairness: Fairness) -> tuple[Claim, ...] | None:
    """Take one after the other while it is permitted, until the taker fits; then put back whoever is not needed."""
    victims: list[Claim] = []
    for claim in order:
        if permitted(books, taker, [*victims, claim], fairness):
            victims.append(claim)
            if makes_room(books, taker, victims) is not None:
                break
    else:
        return None
    for victim in reversed(victims[:-1]):
        rest = [other for other in victims if other is not victim]
        if permitted(books, taker, rest, fairness) and makes_room(books, taker, rest) is not None:
            victims = rest
    return tuple(victims)


def makes_room(books: Books, taker: Taker, victims: Iterable[Claim]) -> Places | None:
    """Places for the taker once the victims and all who leave are gone, by right and in space; None if there are none.
    The books are the same afterwards."""
    victims = tuple(victims)
    books.go(victims)
    try:
        return books.places(taker.claim, books.free_later) if books.entitled(taker.claim) else None
    finally:
        books.stay(victims)

"""Reservations looked at where they stand, without taking them back: whether one could start now, and whether it needs all
who leave for it."""

from collections.abc import Collection

from quotas.engine.books import Books
from quotas.engine.rights import Hold
from quotas.engine.room import find_places, has_spot
from quotas.engine.space import Vector
from quotas.engine.types import Claim, ClaimId


def could_start(books: Books, claim: Claim) -> bool:
    """Whether there is a place now for a claim with a reservation: its own, or another."""
    hold, free = books.holds[claim.id], books.free_now.row
    if free[books.pool_slot] + hold.now[books.pool_slot] < hold.charged:
        return False
    if not [slot for slot, amount in hold.later.items() if free[slot] + hold.now[slot] < amount]:
        return True
    others = books.free_for_all
    if claim.pods == 1 and not claim.same_domain:
        return has_spot(others, claim, books.pool)
    with others.also([hold.now]):
        return find_places(claim, books.pool, others, hold.charged) is not None


def may_stay(books: Books, leaver: ClaimId) -> bool:
    """Whether it leaves because somebody needs it to. Others leave in any case; so does, from what is not there any more, who
    gives nothing by leaving."""
    if leaver in books.stranded and books.stranded[leaver] == books.departures.leaving[leaver].units:
        return False
    return leaver in books.told or books.departures.leaving[leaver].held_for is not None


def needs_all(books: Books, claim: Claim, leavers: Collection[ClaimId]) -> bool:
    """Whether a claim with a reservation would have no place if any one of those it waits for stayed."""
    hold, free, slot = books.holds[claim.id], books.free_later, books.pool_slot
    if books.pool.nodes is None or claim.is_recall:  # those who leave for others do so in any case
        given = [books.vectors[leaver][slot] for leaver in leavers]
        surplus = max(0, books.free_now.row[slot]) + hold.now[slot] + sum(given) - hold.charged
        return surplus < min(given, default=0) and not books.departures.for_nobody
    if claim.pods == 1 and not claim.same_domain and not has_spot(free, claim, books.pool):
        return not any(_fits_there(books, hold, leaver) for leaver in leavers)
    with free.also([hold.later]):
        return not any(_fits_beside(books, claim, books.vectors[leaver], hold.charged) for leaver in leavers)


def _fits_there(books: Books, hold: Hold, leaver: ClaimId) -> bool:
    """Whether its own place would do beside a claim that stays, where no other is free."""
    free, vector = books.free_later, books.vectors[leaver]
    if free.row[books.pool_slot] < vector[books.pool_slot]:
        return False
    host = None if hold.node is None else books.hosts.get(hold.node)
    if host is None or hold.needed.get(leaver) == (version := free.version(host)):
        return False
    fits = free.spot_with(hold.claim, [host], [(hold.later, 1), (vector, -1)]) is not None
    if not fits:
        hold.needed[leaver] = version
    return fits


def _fits_beside(books: Books, claim: Claim, vector: Vector, asked: int) -> bool:
    with books.free_later.also([vector], -1):
        return find_places(claim, books.pool, books.free_later, asked) is not None

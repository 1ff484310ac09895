"""Whom a claim waits for: those who must be gone before it can start at its places."""

from collections.abc import Iterable

from quotas.engine.books import Books
from quotas.engine.space import NO_MACHINE, Slot, Vector
from quotas.engine.types import Claim, ClaimId


def leavers_needed(books: Books, claim: Claim, need: Vector, first: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """The leaving claims that must be gone before the claim can have what it will `need`: those given as `first`, then its
    own, then unheld ones, then what others do not need of theirs; each by the time it leaves."""
    lacking = {slot: amount - books.free_now.row[slot] for slot, amount in need.items()}
    needed, gives = list(first), {leaver.id: books.vectors[leaver.id] for leaver in first}
    for vector in gives.values():
        _add(lacking, vector, -1)
    short = {slot for slot, amount in lacking.items() if amount > 0}
    if not short:  # as a rule the victims are enough
        return first
    for here in (_leaving_at(books, short), None):
        short = short if here is not None else short & {books.pool_slot}  # those may come from anywhere
        for leaver in books.departures.nearest(claim, here) if short else ():
            vector = books.vectors[leaver.id] if here is None else _spare(books, leaver, claim)
            if leaver.id not in gives and not short.isdisjoint(vector):
                _add(lacking, vector, -1)
                needed.append(leaver)
                gives[leaver.id] = vector
                short = {slot for slot in short if lacking[slot] > 0}
                if not short:
                    break
    for leaver in needed[len(first) : -1]:  # the last gives enough without some of those before it
        vector = gives[leaver.id]
        if all(amount + vector.get(slot, 0) <= 0 for slot, amount in lacking.items()):
            _add(lacking, vector)
            needed.remove(leaver)
    return tuple(needed)


def _spare(books: Books, leaver: Claim, claim: Claim) -> Vector:
    """What the leaver gives that the others who wait for it do not need of it."""
    gives = books.vectors[leaver.id]
    others = [
        books.holds[id] for id in books.departures.awaited.get(leaver.id, ()) if id != claim.id and id in books.holds
    ]
    if not others:
        return gives
    spare = {slot: amount - sum(hold.needs(slot, amount) for hold in others) for slot, amount in gives.items()}
    return {slot: amount for slot, amount in spare.items() if amount > 0}


def _leaving_at(books: Books, slots: Iterable[Slot]) -> set[ClaimId]:
    """Those who leave from the machines of these slots."""
    machines = {books.space.at[slot] for slot in slots} - {NO_MACHINE}
    return {leaver for machine in machines for leaver in books.leaving_on.get(machine, ())}


def _add(vector: Vector, other: Vector, times: int = 1) -> None:
    """vector += times × other, as far as the vector goes."""
    for slot, amount in other.items():
        if slot in vector:
            vector[slot] += times * amount

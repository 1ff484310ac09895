"""The largest request of a claim's shape that could ever run: what `impossible` names.

Shape means: no more pods, no more units in each, the same CPU, memory and domain, and for MIG any profile that is no
larger. The quotas bound it, and an empty pool must have the places.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from quotas.engine.books import Books
from quotas.engine.mig_layouts import profiles_of
from quotas.engine.types import Claim
from quotas.engine.units import beside_units, card_cores, card_units, comes_with_a_card, resized

SOME_PODS = 16
"""Numbers of pods that parts of cards are tried for one by one; more only all together."""


def largest(books: Books, claim: Claim, by_quota: bool = True) -> int:
    """Units of the largest request like the claim that the quotas, the user's cap and the empty pool would hold; or the empty
    pool alone."""
    limit = _limit(books, claim) if by_quota else books.ledger.capacity
    if claim.is_recall:
        return limit
    if books.pool.nodes is None:
        return max(pods * min(claim.units_per_pod, limit // pods) for pods in range(1, claim.pods + 1))
    return max((_with_most_pods(books, pod, claim.pods, limit) for pod in _pods(books, claim, limit)), default=0)


def _limit(books: Books, claim: Claim) -> int:
    """Units that the department's ceiling, its guarantee for who must stay inside, and the user's cap allow."""
    account = books.ledger[claim.department]
    limits = [account.ceiling]
    if claim.must_stay_inside:
        limits.append(account.guaranteed)
    cap = books.departments[claim.department].user_caps.get(books.pool.id)
    if cap is not None and not claim.is_recall:
        limits.append(cap)
    return max(0, min(limits))


def _with_most_pods(books: Books, pod: Claim, pods: int, limit: int) -> int:
    """Units of as many such pods, at most `pods`, as fit together."""
    most = _most(min(pods, limit // pod.units_per_pod), lambda count: books.fits_when_empty(replace(pod, pods=count)))
    return most * pod.units_per_pod


def _pods(books: Books, claim: Claim, limit: int) -> Iterator[Claim]:
    """Single pods worth trying: the claim's own, and the largest smaller ones."""
    if books.pool.mig is not None:
        yield from _profiles(books, claim)
        return
    for units in _sizes(books, claim, limit):
        if 0 < units <= claim.units_per_pod:
            yield _smaller(books, claim, units)


def _profiles(books: Books, claim: Claim) -> Iterator[Claim]:
    """Every profile no larger than the claim's; any when its own does not exist."""
    for name, profile in profiles_of(books.pool.mig).items():
        if not claim.on_card or profile.size <= claim.on_card:
            yield resized(replace(claim, pods=1, profile=name), profile.size, books.pool)


def _sizes(books: Books, claim: Claim, limit: int) -> Iterator[int]:
    """Every number of whole cards; of a part of a card the most that so many pods can each have."""
    nodes = books.pool.nodes or ()
    for whole in {card.units for node in nodes for card in node.cards if card.units}:
        yield from (count * whole for count in range(1, max(len(node.cards) for node in nodes) + 1))
        for pods in {*range(1, min(claim.pods, SOME_PODS) + 1), claim.pods} if whole > 1 else ():
            like = replace(claim, pods=pods)
            yield _largest_part(books, like, min(whole, claim.units_per_pod, limit // pods))


def _largest_part(books: Books, like: Claim, most: int) -> int:
    """Units, at most so many, that each pod of such a claim can be charged."""
    return _most(most, lambda units: books.fits_when_empty(replace(_smaller(books, like, units), pods=like.pods)))


def _smaller(books: Books, claim: Claim, units: int) -> Claim:
    """One pod of the claim that is charged so many units: with no more of a card's compute, and of the CPU and memory that
    come with cards, than that pays for."""
    cores, whole = claim.cores_per_pod, card_units(books.pool)
    if cores is not None and whole:
        cores = min(cores, card_cores(books.pool) * units // whole)
    cpu, memory = claim.cpu_milli, claim.memory_mib
    share = comes_with_a_card(books.pool)
    if whole and beside_units((cpu, memory), whole, share) <= claim.units_per_pod:  # as it is charged for them
        cpu, memory = (
            min(asked, most * units // whole) if most else asked
            for asked, most in zip((cpu, memory), share, strict=True)
        )
    return replace(
        claim, pods=1, units_per_pod=units, asked_per_pod=min(claim.on_card, units), cores_per_pod=cores,
        cpu_milli=cpu, memory_mib=memory,
    )  # fmt: skip


def _most(high: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `high` that fits; what is smaller than one that fits does too, and 0 always."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low

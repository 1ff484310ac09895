"""Which node to clear for one pod: each node's cheapest way to make a place, and the cheapest of all nodes first."""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from quotas.engine.books import Books
from quotas.engine.knapsack import lowest_sum
from quotas.engine.permission import Taker, open_to
from quotas.engine.quota_tree import share
from quotas.engine.ranking import LAST
from quotas.engine.shares import NO_CHANGE
from quotas.engine.space import NOWHERE, Host, Slot
from quotas.engine.types import Claim, ClaimId, DepartmentId

Bound = tuple[object, ...]
"""The beginning of a cost (victims.py) that no set on the node is below."""
NEVER: Bound = LAST
"""Of a node where no set makes a place."""


class Way(NamedTuple):
    """What clearing a node costs at least, and the `victims` that cost no more, if they are known."""

    bound: Bound
    victims: tuple[Claim, ...] = ()


def cheapest_nodes(
    books: Books, taker: Taker, own: Sequence[Claim], rivals: Collection[DepartmentId]
) -> Iterator[tuple[Way, Host, list[Claim]]]:
    """The nodes that may have a place once candidates there have gone, the cheapest first, with these candidates."""
    mine, hosts = {claim.id for claim in own}, [*books.hosts.values()]

    def candidates(host: Host) -> list[Claim]:
        here = books.on_node.get(host.name, {}).values()
        theirs = open_to(books, taker, [claim for claim in here if claim.department in rivals])
        return [*(claim for claim in here if claim.id in mine), *theirs]

    def way(host: Host) -> Way:
        return _way(books, taker, host, candidates(host), mine)

    known: dict[int, Way] = {}
    if taker.inside and not mine and books.ledger.flat and not books.settings.fair_sharing:
        books.note_moved()
        words = (taker.policy, taker.claim.priority) if taker.policy.reclaim != "any" else "any"
        kind = words, taker.patient
        floors = books.free_later.ranking(("floor", kind), books.pool, partial(_floor_on, books, taker)).ranks()
        way = partial(_remembered, books, (taker.claim.shape, kind), way)
    else:
        if not rivals:
            hosts = books.in_order({placed.node for claim in own for placed in claim.placement or ()})
        known = dict(enumerate(map(way, hosts)))
        floors = [each.bound for each in known.values()]
    heap = [(floor, index) for index, floor in enumerate(floors) if floor != NEVER]
    heapify(heap)
    while heap:
        _, index = heappop(heap)
        if index not in known:
            known[index] = way(hosts[index])
            if known[index].bound != NEVER:
                heappush(heap, (known[index].bound, index))
        else:
            yield known[index], hosts[index], candidates(hosts[index])


def _remembered(books: Books, kind: Hashable, ask: Callable[[Host], Way], host: Host) -> Way:
    """The node's way, for all who ask for the same; asked anew only where something has changed."""
    key, version = (kind, host.name), books.free_later.version(host)
    if key not in books.ways or books.ways[key][0] != version:
        books.ways[key] = version, ask(host)
    way: Way = books.ways[key][1]
    return way


def _floor_on(books: Books, taker: Taker, host: Host) -> Bound | None:
    """What victims on the node cost at least, for every taker inside its guarantee with such a policy."""
    borrowed = [claim for claim in books.on_node.get(host.name, {}).values() if claim.department in books.ledger.above]
    claims = open_to(books, taker, borrowed)
    return _floor(books, claims) if claims else None


def _floor(books: Books, claims: list[Claim]) -> Bound:
    """What any set of these claims costs at least, whoever asks."""
    priority, lost = min([(claim.priority, books.lost_work(claim)) for claim in claims])
    return 0, NO_CHANGE, min(map(books.short_by, claims)), priority, lost


def _way(books: Books, taker: Taker, host: Host, claims: list[Claim], mine: Collection[ClaimId] = ()) -> Way:
    """The cheapest way to make a place on the node if some of these claims go."""
    if (
        not claims
        or books.free_later.spot_with(taker.claim, (host,), [(books.vectors[c.id], 1) for c in claims]) is None
    ):
        return Way(NEVER)
    own = sum(claim.id in mine for claim in claims)
    if own not in (0, len(claims)) or (own and taker.inside):
        return Way((0,))
    if books.settings.fair_sharing:  # who borrows most gives first
        units = 0 if own or taker.inside else min(claim.units for claim in claims)
        return Way(
            (units, -max(share(account, account.usage) for account in (books.ledger[c.department] for c in claims)))
        )
    if not (own or taker.inside):
        return Way((min(claim.units for claim in claims),))
    bound = _floor(books, claims)
    at_least = Way((*bound[:2], 0, *bound[3:]) if own else bound)
    if host.shared and taker.claim.on_card > host.whole:
        return _whole_cards(books, taker.claim, host, claims, bool(own)) or at_least
    found: list[Way] = []
    for gifts, need in _cells(books, taker.claim, host, claims):
        if sum(gifts.values()) >= need:
            found.append(_cheapest(books, [claim for claim in claims if claim.id in gifts], gifts, need, bool(own)))
    return min(found, key=lambda way: way.bound, default=at_least)


def _cells(books: Books, claim: Claim, host: Host, claims: list[Claim]) -> Iterator[tuple[dict[ClaimId, int], int]]:
    """What places on the node are made of: what each claim gives of it, and how much is lacking. Where a card has enough, the
    first that the machine has too little of; nothing where places are no sums."""
    free, shape = books.free_later.row, host.pool.mig
    cards: Sequence[tuple[Collection[Slot], int]] = ()
    if shape is None and host.whole <= 1:
        cards = [(host.cards, claim.on_card - sum(free[host.stretch]))]
    elif host.shared and claim.on_card <= host.whole:
        cards = [((card,), claim.on_card - free[card]) for card in host.cards]
    elif slot := host.instances.get(claim.profile or "", NOWHERE):
        cards = [((slot,), 1 - free[slot])]
    if any(need <= 0 for _, need in cards):
        asked = [(host.beside.get(what, NOWHERE), amount) for what, amount in claim.beside]
        lacking = [((slot,), amount - free[slot]) for slot, amount in asked if slot is not None and free[slot] < amount]
        cards = lacking[:1]
    at = {slot: index for index, (slots, _) in enumerate(cards) for slot in slots}
    gifts: list[dict[ClaimId, int]] = [{} for _ in cards]
    for one in claims:
        for slot, amount in books.vectors[one.id].items():
            if slot in at:
                cell = gifts[at[slot]]
                cell[one.id] = cell.get(one.id, 0) + amount
    return ((gift, need) for gift, (_, need) in zip(gifts, cards, strict=True))


def _whole_cards(books: Books, claim: Claim, host: Host, claims: list[Claim], own: bool) -> Way | None:
    """Several cards that others share, whole: the cheapest of them, without all who stand there. None where enough are empty, or
    candidates do not empty enough."""
    left, need = books.free_later.row, claim.on_card // host.whole
    costs: list[tuple[Bound, list[Claim]]] = []
    for card in host.cards:
        here = [one for one in claims if card in books.vectors[one.id]]
        if left[card] + sum(books.vectors[one.id][card] for one in here) == host.whole:
            short = 0 if own else sum(map(books.short_by, here))
            ceiling = max([one.priority for one in here], default=-(10**9))
            costs.append(((short, ceiling, sum(map(books.lost_work, here)), len(here)), here))
    costs.sort(key=lambda cost: cost[0])
    victims = {one.id: one for _, here in costs[:need] for one in here}
    if len(costs) < need or not victims:
        return None
    priority, lost = max(one.priority for one in victims.values()), sum(map(books.lost_work, victims.values()))
    return Way((0, NO_CHANGE, 0, priority, lost, len(victims)), tuple(victims.values()))


def _cheapest(books: Books, claims: list[Claim], gives: dict[ClaimId, int], need: int, own: bool) -> Way:
    """The cheapest victims, of claims that leave their departments what is promised if these give enough."""
    spare, short = claims if own else [claim for claim in claims if not books.short_by(claim)], 0
    if sum([gives[claim.id] for claim in spare]) < need:
        short = min([short for claim in claims if (short := books.short_by(claim))])
        spare = claims
    victims = lowest_sum(spare, need, lambda claim: gives[claim.id], books.lost_work) or ()
    lost, ceiling = sum(map(books.lost_work, victims)), max(victim.priority for victim in victims)
    return Way((0, NO_CHANGE, short, ceiling, lost, len(victims)), victims)

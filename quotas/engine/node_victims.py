"""Which node to clear for one pod: each node's cheapest way to make a place, and the cheapest of all nodes first."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from quotas.engine.books import Books
from quotas.engine.knapsack import cheapest_sum
from quotas.engine.permission import Taker, open_to
from quotas.engine.quota_tree import share
from quotas.engine.shares import NO_CHANGE
from quotas.engine.space import NOWHERE, Host, Slot
from quotas.engine.types import Claim, ClaimId, DepartmentId

Bound = tuple[object, ...]
"""The beginning of a cost (victims.py) that no set on the node is below."""
NEVER: Bound = (float("inf"),)


class Way(NamedTuple):
    """What clearing a node costs at least, and the `victims` that cost no more, if they are known."""

    bound: Bound
    victims: tuple[Claim, ...] = ()


def cheapest_nodes(
    books: Books, taker: Taker, own: Sequence[Claim], rivals: Collection[DepartmentId]
) -> Iterator[tuple[Way, Host, list[Claim]]]:
    """The nodes that may have a place once candidates there have gone, the cheapest first, with these candidates."""
    mine = {claim.id for claim in own}

    def candidates(host: Host) -> list[Claim]:
        here = books.on_node.get(host.name, {}).values()
        theirs = open_to(books, taker, [claim for claim in here if claim.department in rivals])
        return [*(claim for claim in here if claim.id in mine), *theirs]

    if taker.inside and not mine and books.ledger.flat and not books.settings.fair_sharing:
        key = taker.claim.shape, taker.policy.reclaim == "any" or taker.claim.priority, taker.patient
        known: Ways = books.ways.setdefault(key, Ways(books))
        ways = known.now(lambda host: _way(books, taker, host, candidates(host)))
    else:
        ways = [_way(books, taker, host, candidates(host), mine) for host in books.hosts.values()]
    hosts = [*books.hosts.values()]
    ranked = [(way.bound, index) for index, way in enumerate(ways)]
    while ranked and (first := min(ranked))[0] != NEVER:
        index = first[1]
        ranked[index] = NEVER, index
        yield ways[index], hosts[index], candidates(hosts[index])


class Ways:
    """The way of every node of a pool, for all who ask for the same; asked anew only where something has changed."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._versions = [-1] * len(books.hosts)
        self._ways = [Way(NEVER)] * len(books.hosts)

    def now(self, ask: Callable[[Host], Way]) -> list[Way]:
        books = self._books
        books.note_moved()
        for index, host in enumerate(books.hosts.values()):
            version = books.free_later.version(host)
            if version != self._versions[index]:
                self._versions[index], self._ways[index] = version, ask(host)
        return self._ways


def _way(books: Books, taker: Taker, host: Host, claims: list[Claim], mine: Collection[ClaimId] = ()) -> Way:
    """The cheapest way to make a place on the node if some of these claims go."""
    gone = [(books.vectors[claim.id], 1) for claim in claims]
    if not claims or books.free_later.spot_with(taker.claim, (host,), gone) is None:
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
    priority, lost = min((claim.priority, books.lost_work(claim)) for claim in claims)
    at_least = Way((0, NO_CHANGE, 0 if own else min(map(books.short_by, claims)), priority, lost))
    if host.shared and taker.claim.on_card > host.whole:
        return _whole_cards(books, taker.claim, host, claims, bool(own)) or at_least
    found: list[Way] = []
    for gifts, need in _cells(books, taker.claim, host, claims):
        if need <= 0:
            return at_least
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
        beside = ((host.beside.get(what, NOWHERE), amount) for what, amount in claim.beside)
        cards = [((slot,), amount - free[slot]) for slot, amount in beside if slot is not None and free[slot] < amount][
            :1
        ]
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
    """Of claims that leave their departments what is promised, if these do, the lowest priorities that suffice, and of them those
    that lose the least work."""
    spare, short = claims if own else [claim for claim in claims if not books.short_by(claim)], 0
    if sum([gives[claim.id] for claim in spare]) < need:
        short = min([short for claim in claims if (short := books.short_by(claim))])
        spare = claims
    for ceiling in sorted({claim.priority for claim in spare}):
        low = [claim for claim in spare if claim.priority <= ceiling]
        if sum([gives[claim.id] for claim in low]) >= need:
            victims = tuple(low)
            if len(low) > 1:
                victims = cheapest_sum(low, need, lambda claim: gives[claim.id], books.lost_work) or ()
            return Way((0, NO_CHANGE, short, ceiling, sum(map(books.lost_work, victims)), len(victims)), victims)
    return Way(NEVER)

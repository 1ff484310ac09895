"""Preemption: which of the permitted victim sets, by the order of preference (`cost`), and where to look for the best.

A pool (or a recall) that only counts units takes the cheapest borrowed claims, by one knapsack. One pod goes to one node: the
nodes are looked at one after the other, the cheapest first. Few candidates, and trees of departments, are searched set by set
(victim_search.py); gangs have their nodes cleared one by one (node_clearing.py). Who may be a victim at all is said in
preemption_rules.py.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from quotas.engine.node_clearing import clear
from quotas.engine.pass_state import Books
from quotas.engine.placement import LAST, NOWHERE, Host, Places, Slot
from quotas.engine.preemption_rules import (
    Fairness,
    Taker,
    lacking_anywhere,
    lacking_of_pool,
    open_to,
    own_candidates,
    permitted,
    rivals_of,
    taker_of,
)
from quotas.engine.quota_tree import NO_CHANGE, Change, lowered, share
from quotas.engine.reservations import needs_all
from quotas.engine.types import Claim, ClaimId, DepartmentId
from quotas.engine.victim_search import MANY, cheapest, cheapest_sum, lowest_sum, makes_room, needs_own, search

Cost = tuple[int, Change, int, int, int, int, int, tuple[str, ...]]
FEW, CROWD = 8, 100
"""Of so few candidates every set is searched; among more than a crowd a search finds nothing that clearing nodes does not."""
COMPARED = 4
"""So many nodes that could cost the same are compared for one pod."""


Bound = tuple[object, ...]
"""The beginning of a cost (victims.py) that no set on the node is below."""
NEVER: Bound = LAST
"""Of a node where no set makes a place."""


class Way(NamedTuple):
    """What clearing a node costs at least, and the `victims` that cost no more, if they are known."""

    bound: Bound
    victims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """Victims, and the places their leaving makes for the taker."""

    victims: tuple[Claim, ...]
    places: Places


def choose(books: Books, claim: Claim, patient: bool = False) -> Chosen | None:
    """The victims for a claim, or None when no permitted set makes it fit."""
    taker = taker_of(books, claim, patient)
    own = own_candidates(books, taker)
    if own and not taker.inside:  # who would borrow spares others if its own claims suffice
        chosen = _best(books, taker, own, (), Fairness.BEFORE)
        if chosen is not None:
            return chosen
    rivals = rivals_of(books, taker, own)
    if not rivals and not (taker.inside and own):
        return None
    many = len(own) + sum(len(books.holding.get(rival, ())) for rival in rivals) > MANY
    if own and many and not taker.inside and _by_right_alone(books, taker):
        return _own_first(books, taker, own, rivals)
    for fairness in _fairness(books, taker):
        chosen = _best(books, taker, own, rivals, fairness)
        if chosen is not None:
            return chosen
    return None


def _fairness(books: Books, taker: Taker) -> Iterable[Fairness]:
    """The ways to look at shares, in the order in which they are tried."""
    by_right = taker.inside and books.ledger.flat  # in a tree it may borrow further up
    return Fairness if books.settings.fair_sharing and not by_right else (Fairness.BEFORE,)


def _by_right_alone(books: Books, taker: Taker) -> bool:
    """Whether it may take others' claims only inside its guarantee."""
    return books.ledger.flat and not books.settings.fair_sharing and taker.policy.borrow_preempt is None


def _own_first(books: Books, taker: Taker, own: list[Claim], rivals: Collection[DepartmentId]) -> Chosen | None:
    """Enough of its own claims to stand inside its guarantee, then others' by right of it."""
    charges = books.standing.charges
    mine = cheapest_sum(own, taker.beyond, lambda claim: charges[claim.id], books.lost_work) or ()
    with books.as_if(mine, gone=True):
        rest = [claim for claim in own if claim not in mine]
        others = _best(books, taker_of(books, taker.claim, taker.patient), rest, rivals, Fairness.BEFORE)
    return None if others is None else _settled(books, taker, (*mine, *others.victims), Fairness.BEFORE)


def still_needed(
    books: Books, claim: Claim, told: Collection[Claim], behind: int = 0, reserved_behind: int = 0
) -> Chosen | None:
    """Of those who leave for the claim, the ones it still needs; None when it would not fit, or not by right, if all went.
    What others of its department use who come after it (`behind`) does not take its right to them, and for what those have
    only reserved above the guarantee nobody need go on its account."""
    account = books.ledger[claim.department]
    above = books.asked(claim) - account.own_left - behind
    reserved_behind = max(0, min(reserved_behind, above))
    books.ledger.lend(claim.department, -reserved_behind)
    try:
        with books.as_if(told, gone=False):
            taker = taker_of(books, claim)
            taker = replace(taker, told=True, behind=behind, inside=taker.beyond <= behind)
            found = (_settled(books, taker, tuple(told), fairness) for fairness in _fairness(books, taker))
            return next((chosen for chosen in found if chosen is not None), None)
    finally:
        books.ledger.lend(claim.department, reserved_behind)


def still_needs_all(books: Books, claim: Claim, told: Collection[Claim], behind: int) -> bool:
    """Whether a reservation of the snapshot would be made again with the same places and all who leave for it, found without
    taking it back: none of them can stay, they may still go, and with what it holds they are all that it waits for."""
    hold, free, ids = books.holds[claim.id], books.free_later, [leaver.id for leaver in told]
    if books.settings.fair_sharing or hold.charged != books.asked(claim) or books.lost_its_right(claim):
        return False
    whole = all(hold.now[slot] + hold.coming.get(slot, 0) >= amount for slot, amount in hold.later.items())
    lost = any(slot == NOWHERE or free.row[slot] < 0 for slot in hold.later)
    if lost or not whole or not needs_all(books, claim, ids):
        return False
    charges = books.standing.charges
    entries = [(claim.department, -hold.charged), *((leaver.department, charges[leaver.id]) for leaver in told)]
    for department, units in entries:
        books.ledger.lend(department, units)
    taker = taker_of(books, claim)
    allowed = permitted(books, replace(taker, told=True, behind=behind), told, Fairness.BEFORE)
    for department, units in entries:
        books.ledger.lend(department, -units)
    return allowed


def _best(
    books: Books, taker: Taker, own: list[Claim], rivals: Collection[DepartmentId], fairness: Fairness
) -> Chosen | None:
    counted = books.pool.nodes is None or taker.claim.is_recall or _has_place(books, taker)
    on_one_node = taker.claim.pods == 1 and not counted
    best = _best_on_a_node(books, taker, own, rivals, fairness) if on_one_node else None
    if on_one_node and books.ledger.flat and _only_a_place_is_lacking(books, taker):
        return best
    held = (books.holding.get(department, {}).values() for department in sorted(rivals))
    claims = own + [claim for claims in held for claim in open_to(books, taker, claims)]
    if counted:
        recalled = _cheapest_borrowed(books, taker, claims)
        return recalled or _searched(books, taker, claims, fairness)
    if best is None or len(claims) <= MANY:
        best = _better(books, taker, best, _found(books, taker, claims, fairness))
    return best


def _cheapest_borrowed(books: Books, taker: Taker, claims: list[Claim]) -> Chosen | None:
    """For a taker inside its guarantee in a flat pool without fair sharing: of the lowest priorities that suffice the claims that
    lose the least work, if every department keeps what it is promised. None where that is not all that matters."""
    need = lacking_anywhere(books, taker)
    if not taker.inside or not books.ledger.flat or books.settings.fair_sharing or need <= 0:
        return None
    mine = taker.account.id
    borrowed = [claim for claim in claims if claim.department != mine and claim.units and not books.short_by(claim)]
    victims = lowest_sum(borrowed, need, lambda claim: claim.units, books.lost_work)
    if victims is None or cost(books, taker, victims)[2]:  # some department would fall below its guarantee
        return None
    return _settled(books, taker, victims, Fairness.BEFORE)


def _has_place(books: Books, taker: Taker) -> bool:
    """Whether there is a place already, and only units of the pool or the right to them are lacking."""
    return (
        books.places(taker.claim, books.free_later, min(taker.asked, books.free_later.row[books.pool_slot])) is not None
    )


def _searched(books: Books, taker: Taker, claims: list[Claim], fairness: Fairness) -> Chosen | None:
    """The best set that a search finds among the claims."""
    victims = search(books, taker, claims, fairness, lambda victims: cost(books, taker, victims))
    return _settled(books, taker, victims, fairness)


def _found(books: Books, taker: Taker, claims: list[Claim], fairness: Fairness) -> Chosen | None:
    """The best set that is found for places on nodes: few candidates are searched whole; among many nodes are cleared one by one,
    and the search may still know better."""
    if len(claims) <= MANY:
        found = _searched(books, taker, claims, fairness)
        return found if found is not None or len(claims) <= FEW else _cleared(books, taker, claims, fairness)
    best = _cleared(books, taker, claims, fairness)
    if len(claims) <= CROWD or not books.ledger.flat:
        best = _better(books, taker, best, _searched(books, taker, claims, fairness))
    return best


def _cleared(
    books: Books, taker: Taker, claims: list[Claim], fairness: Fairness, hosts: list[Host] | None = None
) -> Chosen | None:
    """The best set that clearing the nodes (None: all) one by one finds among the claims."""
    victims = clear(books, taker, claims, fairness, lambda victims: cost(books, taker, victims), hosts)
    return _settled(books, taker, victims, fairness)


def _only_a_place_is_lacking(books: Books, taker: Taker) -> bool:
    """Whether claims elsewhere could give nothing but the right to stand inside the department's own limits."""
    account, root = taker.account, books.ledger.root
    return max(0, account.kept - account.usage) + root.subtree - root.usage >= taker.asked


def _best_on_a_node(
    books: Books, taker: Taker, own: list[Claim], rivals: Collection[DepartmentId], fairness: Fairness
) -> Chosen | None:
    """The best set for one pod on one node. Who is inside its guarantee stops its own work only where others' does not do."""
    for mine in [(), own] if taker.inside and own else [own]:
        best: Chosen | None = None
        spent: tuple[object, ...] = ()
        compared = 0
        for way, host, claims in cheapest_nodes(books, taker, mine, rivals):
            dearer = not books.settings.fair_sharing and spent[: len(way.bound)] < way.bound
            if best is not None and (dearer or compared == COMPARED):
                break
            chosen = _by_way(books, taker, way) or _cleared(books, taker, claims, fairness, [host])
            best = _better(books, taker, best, chosen)
            spent = () if best is None else cost(books, taker, best.victims)
            compared += chosen is not None
        if best is not None:
            return best
    return None


def _by_way(books: Books, taker: Taker, way: Way) -> Chosen | None:
    """The victims of a node's cheapest way, if they may go, make room and cost no more."""
    victims = way.victims
    if not victims or cost(books, taker, victims)[: len(way.bound)] != way.bound:
        return None
    places = makes_room(books, taker, victims) if permitted(books, taker, victims, Fairness.BEFORE) else None
    return None if places is None else Chosen(tuple(sorted(victims, key=lambda victim: victim.id)), places)


def _better(books: Books, taker: Taker, one: Chosen | None, other: Chosen | None) -> Chosen | None:
    """The one that costs less; of those that cost the same the one whose places waste less."""
    if one is None or other is None:
        return one or other
    costs = {cost(books, taker, chosen.victims): chosen.victims for chosen in (one, other)}
    return one if costs[cheapest(books, taker, costs)] == one.victims else other


def cost(books: Books, taker: Taker, victims: Iterable[Claim]) -> Cost:
    """What a victim set costs, in the order in which sets are compared; the least wins."""
    victims = tuple(victims)
    taken: dict[str, int] = {}
    for victim in victims:
        taken[victim.department] = taken.get(victim.department, 0) + victim.units
    mine = taken.pop(taker.account.id, 0)
    change, below = NO_CHANGE, 0
    for department, units in taken.items():
        account = books.ledger[DepartmentId(department)]
        below += max(0, account.guaranteed - (account.usage - units))
        if books.settings.fair_sharing and not account.children:
            change += lowered(account, units)
    return (
        mine if taker.inside else sum(taken.values()),
        change,
        below,
        max((victim.priority for victim in victims), default=-(10**9)),
        sum(map(books.lost_work, victims)),
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
    kept, order = list(victims), list(victims)
    if len(order) > 1:
        order.sort(key=lambda victim: cost(books, taker, (victim,)), reverse=True)
    charges, spare = books.standing.charges, -lacking_of_pool(books, taker)
    spare += sum([charges[victim.id] for victim in victims])
    for victim in order:
        if charges[victim.id] > spare:
            continue
        rest = [other for other in kept if other is not victim]
        if permitted(books, taker, rest, fairness) or not permitted(books, taker, kept, fairness):
            room = makes_room(books, taker, rest)
            if room is not None:
                kept, places, spare = rest, room, spare - charges[victim.id]
    if not (permitted(books, taker, kept, fairness) and needs_own(books, taker, kept)):
        return None
    return Chosen(tuple(sorted(kept, key=lambda victim: victim.id)), places)


# The nodes for one pod, cheapest first --------------------------------------------------------------------------------


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

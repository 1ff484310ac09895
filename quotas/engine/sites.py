"""Places one pod may go to, and where to look first when it needs victims there.

A place is a node for whole cards, a card for a part of it, as many cards as it takes where whole ones are asked of those
that others share, a node's instances of a profile. Freely cut cards have no such sum. Nodes are kept in the order of
what a place there costs at least: the cheapest borrowed claims that give what is lacking, were each the only one taken
from its department.
"""

from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, islice, takewhile
from operator import add
from typing import NamedTuple

from quotas.engine.books import Books
from quotas.engine.bounds import Bound, Gift, Least, Offer, alone, bound, cheapest, fair_bound, is_wide
from quotas.engine.exact import Goods
from quotas.engine.permission import Taker, stoppable
from quotas.engine.placement import Key
from quotas.engine.room import Rank
from quotas.engine.shares import NO_CHANGE
from quotas.engine.types import Claim, ClaimId, DepartmentId, Node, Pool
from quotas.engine.units import lost_work

Pile = tuple[list[Gift], int]
"""What several claims give of something, in the order of priority, and how much in all."""
NOTHING: Pile = ([], 0)

FEW = 4
"""Where fewer than one of so many nodes have claims that may be taken from, these are looked at alone."""
SAME = 6
"""The costs of two claims are the same but for who they are if so much of them is."""
CHOICES = 128
"""Of several shared cards, so many choices are looked at on one node; those of eight cards are 70 at most."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place that is not free: what each candidate gives there, what is lacking, and what any set there costs at least."""

    gives: Goods
    lacking: int
    least: Bound


def has_sites(pool: Pool) -> bool:
    """Whether what a pod needs of a place is a sum of units there."""
    return pool.mig is None or all(node.instances is not None for node in pool.nodes or ())


def sites_on(books: Books, taker: Taker, node: Node, own: list[Claim], theirs: list[Claim]) -> list[Site]:
    """The places on the node that these candidates can free, the taker's own and others', by what that costs at least."""
    mine = {claim.id for claim in own}
    here = _here(books, node, sorted(_offer(books, claim) for claim in [*own, *theirs]))
    found = [
        Site(
            {offer[4]: amount for offer, amount in place.gifts}, place.lacking, _bound(books, taker, node, place, mine)
        )
        for place in _places(books, taker, node, here)
    ]
    return sorted(found, key=lambda site: site.least)


def _bound(books: Books, taker: Taker, node: Node, place: "Place", mine: Container[ClaimId]) -> Bound:
    if not books.settings.fair_sharing:
        return bound(taker, place.needed, place.need, mine)
    all_may_go = not place.only or is_wide(books, taker)
    return fair_bound(books, taker, books.on_node[node.name], place.needed, place.need, mine, all_may_go)


@dataclass(frozen=True, slots=True)
class Here:
    """What claims on a node could give: each of them, and by key of the free vector. No set of them costs less than the
    cheapest alone: `least` (units below the guarantee, priority, lost work)."""

    offers: list[Offer]
    at: dict[Key, Pile]
    cards: list[Key]
    whole: int
    least: tuple[int, int, int] | None
    least_units: int


def _here(books: Books, node: Node, offers: list[Offer]) -> Here:
    at: dict[Key, list[Gift]] = {}
    for offer in offers:
        for key, amount in books.vectors[offer[4]].items():
            if key[0] != "pool":
                at.setdefault(key, []).append((offer, amount))
    piles = {key: (gifts, sum([amount for _, amount in gifts])) for key, gifts in at.items()}
    cards, whole = _cards_of(books, node)
    least = min([(short, priority, lost) for priority, short, lost, _, _ in offers], default=None)
    return Here(offers, piles, cards, whole, least, min([offer[3] for offer in offers], default=0))


def _cards_of(books: Books, node: Node) -> tuple[list[Key], int]:
    """The keys of the node's cards, and the units of a whole one."""
    key = "cards", node.name
    if key not in books.offers:
        cards = [("card", books.pool.id, node.name, index) for index in range(len(node.cards))]
        books.offers[key] = cards, max([card.units for card in node.cards], default=0)
    return books.offers[key]  # type: ignore[no-any-return]


def _offer(books: Books, claim: Claim) -> Offer:
    return claim.priority, _short(books, claim), lost_work(claim, books.now, books.settings), claim.units, claim.id


def _short(books: Books, claim: Claim) -> int:
    account = books.ledger.accounts[claim.department]
    return max(0, claim.units - account.usage + account.guaranteed)


class Place(NamedTuple):
    """What claims give at a place, and what is lacking there; the bound is that of what gives the `need`. Nothing else is
    lacking if it is `only` that."""

    gifts: list[Gift]
    lacking: int
    needed: list[Gift]
    need: int
    only: bool


def _places(books: Books, taker: Taker, node: Node, here: Here) -> list[Place]:
    """The places on the node that the claims here can free."""
    machine = _lacking_of_machine(books, taker.claim, node, here)
    if machine is None:
        return []
    parts = _parts(books, taker.claim, node, here)
    count = 1 if books.pool.mig is not None or here.whole <= 1 else max(1, taker.claim.on_card // here.whole)
    if count == 1:
        return [_place(here, gifts, lacking, machine, lacking > 0 and machine[1] <= 0) for gifts, lacking in parts]
    several = islice(combinations(parts, count), CHOICES)
    together = ((_together([gifts for gifts, _ in cards])[0], sum([max(0, u) for _, u in cards])) for cards in several)
    return [_place(here, gifts, lacking, machine, False) for gifts, lacking in together]


def _place(here: Here, gifts: list[Gift], lacking: int, machine: Pile, only: bool) -> Place:
    needed, need = (gifts, lacking) if lacking > 0 else machine
    if need <= 0:  # something that is not counted here, such as a card's compute
        needed, need = [(offer, 1) for offer in here.offers], 1
    return Place(gifts, lacking, needed, need, only)


def _parts(books: Books, claim: Claim, node: Node, here: Here) -> list[Pile]:
    """What places on the node are made of, where the claims give enough of it, and how much of it lacks: all its whole cards
    together; or each card of those that others share, of which it takes one or several; or the instances of a profile."""
    pool, free, asked, whole = books.pool, books.free_later, claim.on_card, here.whole
    if pool.mig is None and whole > 1:
        need = min(asked, whole)
        cards = here.cards if asked <= whole or asked % whole == 0 else ()
        piles = ((need - free[card], here.at.get(card, NOTHING)) for card in cards)
        return [(pile[0], lacking) for lacking, pile in piles if pile[1] >= lacking]
    if pool.mig is None:
        keys, need = here.cards, asked
    else:
        keys, need = [("instance", pool.id, node.name, claim.profile or "")], 1
    if not keys or keys[0] not in free:
        return []
    gifts, given = _together([here.at[key][0] for key in keys if key in here.at])
    lacking = need - sum([free[key] for key in keys])
    return [(gifts, lacking)] if given >= lacking else []


def _together(several: list[list[Gift]]) -> tuple[list[Gift], int]:
    """What each claim gives of all of them, and how much in all."""
    sums: dict[Offer, int] = {}
    for offer, amount in (gift for gifts in several for gift in gifts):
        sums[offer] = sums.get(offer, 0) + amount
    return sorted(sums.items()), sum(sums.values())


def _lacking_of_machine(books: Books, claim: Claim, node: Node, here: Here) -> tuple[list[Gift], int] | None:
    """What the node lacks of CPU or else of memory, and who gives how much of it; None when they do not give enough."""
    lacks: tuple[list[Gift], int] = [], 0
    for kind, asked, present in (
        ("memory", claim.memory_mib, node.memory_mib),
        ("cpu", claim.cpu_milli, node.cpu_milli),
    ):
        lacking = 0 if present is None else asked - books.free_later[kind, node.name]
        if lacking > 0:
            gifts, given = here.at.get((kind, node.name), NOTHING)
            if given < lacking:
                return None
            lacks = gifts, lacking
    return lacks


# Which node first -----------------------------------------------------------------------------------------------------


def nodes_to_try(
    books: Books, taker: Taker, own: list[Claim], rivals: Collection[DepartmentId], beaten: Callable[[Bound], bool]
) -> Generator[tuple[Bound, Node, ClaimId | None], None, None]:
    """Every node that may have a place, with what a set there costs at least, until that is `beaten` by what was found; and
    the claim that costs no more, if it gives all that a place there lacks."""
    nodes = books.pool.nodes or ()
    mine = {placed.node for claim in own for placed in claim.placement or ()}
    if not taker.inside:
        yield from (((0,), node, None) for node in nodes if node.name in mine)
    if rivals:
        yield from _by_least_cost(books, taker, own, rivals, beaten)
    if taker.inside and not beaten((1,)):
        yield from (((1,), node, None) for node in nodes if node.name in mine)


def _by_least_cost(
    books: Books, taker: Taker, own: list[Claim], rivals: Collection[DepartmentId], beaten: Callable[[Bound], bool]
) -> Iterator[tuple[Bound, Node, ClaimId | None]]:
    """The nodes where others' claims alone give what is lacking, by the least that could cost; for who is not inside its
    guarantee yet together with its own that must go."""
    claim, fair = taker.claim, books.settings.fair_sharing
    grown = [department for department in books.departments_grown() if department in books.ledger.above]
    books.free_later.touch(_nodes_of(books, grown))
    below = None if taker.policy.reclaim == "any" else claim.priority
    if fair and not taker.inside:  # often only few borrow so much that others may take from them
        theirs, nodes = set(_nodes_of(books, rivals)), books.pool.nodes or ()
        if len(theirs) * FEW < len(nodes):
            costs = ((_least_cost(books, taker, below, node), node) for node in nodes if node.name in theirs)
            found = ((least, node, None) for least, node in costs if least is not None)
            yield from takewhile(lambda one: not beaten(one[0]), sorted(found, key=lambda one: one[0]))
            return
    may_borrow = taker.inside or taker.policy.borrow_preempt is not None or not books.ledger.flat
    _, _, ceiling, lost = (0, 0, -(10**9), 0) if may_borrow or fair else _least_own(books, taker, own)

    def whole(rank: Rank) -> Bound:
        if fair:
            return rank
        return rank[0], NO_CHANGE, rank[1], max(ceiling, rank[2]), lost + rank[3], *rank[4:SAME]

    shape = claim.on_card, claim.profile, claim.cpu_milli, claim.memory_mib
    ranking = books.free_later.ranking(
        ("victims", taker.inside, shape, below, taker.patient, fair and is_wide(books, taker)),
        books.pool,
        lambda node: _floor(books, taker, _offered(books, taker.patient, below, node), node),
        bounds=True,
    )
    walk = ranking.walk(lambda node: _least_cost(books, taker, below, node), lambda rank: beaten(whole(rank)))
    yield from ((whole(rank), node, rank[SAME] if len(rank) > SAME else None) for rank, node in walk)


def _nodes_of(books: Books, departments: Iterable[DepartmentId]) -> Iterator[str]:
    """Where the departments' claims stand."""
    held = (claim for department in departments for claim in books.holding.get(department, {}).values())
    return (placed.node for claim in held for placed in claim.placement or ())


def _least_own(books: Books, taker: Taker, own: list[Claim]) -> Least:
    """What the taker's own claims cost at least that must go before it has a right to others'."""
    charges = books.standing.charges
    gifts: list[Gift] = [((0, 0, *_offer(books, claim)[2:]), charges[claim.id]) for claim in own]
    least = cheapest(gifts, taker.beyond, by_units=False)
    return (0, 0, min(claim.priority for claim in own), 0 if least is None else least[3])


def _floor(books: Books, taker: Taker, here: Here, node: Node) -> Rank | None:
    """A bound that is found quickly, whatever is asked: every set costs at least what its dearest claim does; with fair
    sharing no more than all of them change."""
    if here.least is None:
        return None
    if not books.settings.fair_sharing:
        return (0, *here.least) if taker.inside else (here.least_units, 0, -(10**9), 0)
    on_node = books.on_node[node.name]
    changes = [alone(books, on_node[offer[4]]) for offer in here.offers]
    return 0 if taker.inside else here.least_units, reduce(add, changes)


def _least_cost(books: Books, taker: Taker, below: int | None, node: Node) -> Rank | None:
    """What victims on the node cost at least, in the order of preference; None when they cannot give what is lacking. Where
    one claim alone is the best of all sets, it is its whole cost."""
    here = _offered(books, taker.patient, below, node)
    places = _places(books, taker, node, here)
    if books.settings.fair_sharing:
        return min((_bound(books, taker, node, place, ()) for place in places), default=None)
    one_may_do = taker.inside and books.ledger.flat
    ranks = [rank for place in places if (rank := _rank(place, not taker.inside, one_may_do)) is not None]
    least = min(ranks, default=None)
    if least is not None and sum([rank[:SAME] == least[:SAME] for rank in ranks]) > 1:  # it matters where they stand
        return least[:4]
    return least


def _rank(place: Place, by_units: bool, one_may_do: bool) -> Rank | None:
    """What any set costs at least that frees the place; the whole cost of one claim that does it alone, if none is less."""
    least = cheapest(place.needed, place.need, by_units)
    if least is None or not (one_may_do and place.only):
        return least
    enough = [(0, o[1], o[0], o[2], 1, o[3], o[4]) for o, amount in place.gifts if amount >= place.lacking]
    one = min(enough, default=least)
    return one if one[:4] == least else least


def _offered(books: Books, patient: bool, below: int | None, node: Node) -> Here:
    """What may come back of the claims on the node, remembered as long as they are the same and cost the same."""
    key, here = ("on", node.name, below, patient), books.on_node.get(node.name, {})
    ids, shorts, open_here, offered = books.offers.get(key, (None, None, [], None))
    same = ids == [*here]
    if not same:
        claims = (claim for claim in here.values() if below is None or claim.priority < below)
        open_here = [
            (claim.units + account.guaranteed, account, _offer(books, claim))
            for claim in claims
            if stoppable(books, patient, claim) and (account := books.ledger.accounts[claim.department])
        ]
    now = [short if (short := whole - account.usage) > 0 else 0 for whole, account, _ in open_here]
    if not same or shorts != now:
        entries = zip(now, open_here, strict=True)
        offers = [(o[0], short, o[2], o[3], o[4]) for short, (_, _, o) in entries if short < o[3]]
        offered = _here(books, node, sorted(offers))
        books.offers[key] = [*here], now, open_here, offered
    return offered  # type: ignore[no-any-return]

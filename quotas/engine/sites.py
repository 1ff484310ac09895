"""Places one pod may go to, and where to look first when it needs victims there.

A place is a node for whole cards, a card for a part of it, as many cards as it takes where whole ones are asked of those
that others share, a node's instances of a profile. Freely cut cards have no such sum. Nodes are kept in the order of
what a place there costs at least: the cheapest borrowed claims that give what is lacking, were each the only one taken
from its department.
"""

from collections.abc import Collection, Container, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, islice
from operator import add

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
    found = [
        Site({offer[4]: amount for offer, amount in gifts}, lacking, least)
        for gifts, lacking, least in _places(books, taker, node, _here(books, node, [*own, *theirs]), mine)
    ]
    return sorted(found, key=lambda site: site.least)


@dataclass(frozen=True, slots=True)
class Here:
    """What claims on a node could give: each of them, and by key of the free vector."""

    offers: list[Offer]
    at: dict[Key, Pile]
    cards: list[Key]
    whole: int
    least: Least | None
    on_card: dict[Key, Least]


def _here(books: Books, node: Node, claims: list[Claim]) -> Here:
    offers = sorted(_offer(books, claim) for claim in claims)
    at: dict[Key, list[Gift]] = {}
    for offer in offers:
        for key, amount in books.vectors[offer[4]].items():
            if key[0] != "pool":
                at.setdefault(key, []).append((offer, amount))
    piles = {key: (gifts, sum([amount for _, amount in gifts])) for key, gifts in at.items()}
    cards: list[Key] = [("card", books.pool.id, node.name, index) for index in range(len(node.cards))]
    on_card = {key: _each_at_least([offer for offer, _ in at[key]]) for key in cards if key in at}
    whole = max((card.units for card in node.cards), default=0)
    return Here(offers, piles, cards, whole, _each_at_least(offers) if offers else None, on_card)


def _each_at_least(offers: list[Offer]) -> Least:
    """No set of these costs less, whatever is asked: the least of everything that costs are compared by."""
    if len(offers) == 1:
        ((priority, short, lost, units, _),) = offers
        return units, short, priority, lost
    priorities, shorts, losses, sizes, _ = zip(*offers, strict=True)
    return min(sizes), min(shorts), min(priorities), min(losses)


def _offer(books: Books, claim: Claim) -> Offer:
    return claim.priority, _short(books, claim), lost_work(claim, books.now, books.settings), claim.units, claim.id


def _short(books: Books, claim: Claim) -> int:
    account = books.ledger.accounts[claim.department]
    return max(0, claim.units - account.usage + account.guaranteed)


def _places(
    books: Books, taker: Taker, node: Node, here: Here, mine: Container[ClaimId]
) -> Iterator[tuple[list[Gift], int, Bound]]:
    """The places on the node that the claims here can free: what they give there, what is lacking, and the bound."""
    machine = _lacking_of_machine(books, taker.claim, node, here)
    if machine is None:
        return
    free, single = books.free_later, []
    fair = books.settings.fair_sharing
    wide = fair and is_wide(books, taker)
    for keys, amount in _site_keys(books.pool, taker.claim, node, here):
        if len(keys) == 1:
            (gifts, given), lacking = here.at.get(keys[0], NOTHING), amount - free[keys[0]]
        else:
            gifts, given = _together([here.at[key][0] for key in keys if key in here.at])
            lacking = amount - sum([free[key] for key in keys])
        if given >= lacking:
            single.append((gifts, lacking))
    count = 1 if books.pool.mig is not None or here.whole <= 1 else max(1, taker.claim.on_card // here.whole)
    for several in islice(combinations(single, count), CHOICES):
        if count == 1:
            ((gifts, lacking),) = several
        else:
            gifts, _ = _together([gifts for gifts, _ in several])
            lacking = sum([max(0, lacking) for _, lacking in several])
        needed, need = (gifts, lacking) if lacking > 0 else machine
        if need <= 0:  # something that is not counted here, such as a card's compute
            needed, need = [(offer, 1) for offer in here.offers], 1
        if fair:
            all_may_go = wide or count > 1 or lacking <= 0 or machine[1] > 0
            yield gifts, lacking, fair_bound(books, taker, books.on_node[node.name], needed, need, mine, all_may_go)
        else:
            yield gifts, lacking, bound(taker, needed, need, mine)


def _together(several: list[list[Gift]]) -> tuple[list[Gift], int]:
    """What each claim gives of all of them, and how much in all."""
    sums: dict[Offer, int] = {}
    for offer, amount in (gift for gifts in several for gift in gifts):
        sums[offer] = sums.get(offer, 0) + amount
    return sorted(sums.items()), sum(sums.values())


def _site_keys(pool: Pool, claim: Claim, node: Node, here: Here) -> Iterator[tuple[list[Key], int]]:
    """The keys of the free vector that make up a place on the node, and how much of them the claim needs; or each card,
    where it needs several whole ones of those that others share."""
    if pool.mig is not None:
        if claim.profile in (node.instances or {}):
            yield [("instance", pool.id, node.name, claim.profile or "")], 1
    elif here.whole == 1:
        yield here.cards, claim.on_card
    elif here.whole and (claim.on_card <= here.whole or claim.on_card % here.whole == 0):
        yield from (([card], min(claim.on_card, here.whole)) for card in here.cards)


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
    books: Books, taker: Taker, own: list[Claim], rivals: Collection[DepartmentId]
) -> Generator[tuple[Bound, Node], None, None]:
    """Every node that may have a place, with what a set there costs at least."""
    nodes = books.pool.nodes or ()
    mine = {placed.node for claim in own for placed in claim.placement or ()}
    if not taker.inside:
        yield from (((0,), node) for node in nodes if node.name in mine)
    if rivals:
        yield from _by_least_cost(books, taker, own, rivals)
    if taker.inside:
        yield from (((1,), node) for node in nodes if node.name in mine)


def _by_least_cost(
    books: Books, taker: Taker, own: list[Claim], rivals: Collection[DepartmentId]
) -> Iterator[tuple[Bound, Node]]:
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
            yield from sorted(((least, node) for least, node in costs if least is not None), key=lambda one: one[0])
            return
    shape = claim.on_card, claim.profile, claim.cpu_milli, claim.memory_mib
    ranking = books.free_later.ranking(
        ("victims", taker.inside, shape, below, taker.patient, fair and is_wide(books, taker)),
        books.pool,
        lambda node: _at_least(books, taker, _offered(books, taker.patient, below, node), node),
    )
    least_cost = ranking.walk(lambda node: _least_cost(books, taker, below, node))
    if fair:
        yield from least_cost
        return
    may_borrow = taker.inside or taker.policy.borrow_preempt is not None or not books.ledger.flat
    _, _, ceiling, lost = (0, 0, -(10**9), 0) if may_borrow else _least_own(books, taker, own)
    for (units, below_guarantee, highest, loss), node in least_cost:
        yield (units, NO_CHANGE, below_guarantee, max(ceiling, highest), lost + loss), node


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


def _at_least(books: Books, taker: Taker, here: Here, node: Node) -> Rank | None:
    """A bound that is found quickly: one of the claims of any place that they can free; with fair sharing, all of them."""
    if here.least is None:
        return None
    if books.settings.fair_sharing:
        on_node = books.on_node[node.name]
        changes = [alone(books, on_node[offer[4]]) for offer in here.offers]
        return (0 if taker.inside else here.least[0], reduce(add, changes))
    asked, free = min(taker.claim.on_card, here.whole), books.free_later
    least = [here.least]
    if books.pool.mig is None and here.whole > 1 and not any(free[key] >= asked for key in here.cards):
        least = [one for key, one in here.on_card.items() if here.at[key][1] >= asked - free[key]]
    return min([(0, *each[1:]) for each in least] if taker.inside else least, default=None)


def _least_cost(books: Books, taker: Taker, below: int | None, node: Node) -> Rank | None:
    """What victims on the node cost at least, in the order of preference; None when they cannot give what is lacking."""
    here = _offered(books, taker.patient, below, node)
    least = min((bound for _, _, bound in _places(books, taker, node, here, ())), default=None)
    if least is None or books.settings.fair_sharing:
        return least
    return least[0], *least[2:]


def _offered(books: Books, patient: bool, below: int | None, node: Node) -> Here:
    """What may come back of the claims on the node, remembered as long as they are the same and cost the same."""
    key, here = ("on", node.name, below, patient), books.on_node.get(node.name, {})
    ids, shorts, open_here, offered = books.offers.get(key, (None, None, [], None))
    same = ids == [*here]
    if not same:
        claims = (claim for claim in here.values() if below is None or claim.priority < below)
        open_here = [(c, c.units, books.ledger[c.department]) for c in claims if stoppable(books, patient, c)]
    now = [max(0, units - account.usage + account.guaranteed) for _, units, account in open_here]
    if not same or shorts != now:
        back = [claim for (claim, units, _), short in zip(open_here, now, strict=True) if short < units]
        offered = _here(books, node, back)
        books.offers[key] = [*here], now, open_here, offered
    return offered  # type: ignore[no-any-return]
